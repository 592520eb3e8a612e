"""What a lab's switches must hold, by its database, and what they do hold: read over connections of the test's own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from enforce.real_switch import SocketLink

from orchestrator.compile.hostprogram import compile_host
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.lab.pop import Lab
from orchestrator.lab.spec import HostSpec
from orchestrator.program.program import Program
from orchestrator.store import open_store


def committed(lab: Lab) -> Program:
    """The program of what the service has committed to its database."""
    store = open_store(f"sqlite:///{lab.layout.run_dir / 'service' / 'aclflow.db'}")
    try:
        with store.read() as unit:
            snapshot = unit.domains.policy(lab.spec.domain)
    finally:
        store.close()
    return compile_host(snapshot.policy, domain=lab.spec.domain, generation=snapshot.generation)


def differences(lab: Lab, program: Program) -> list[str]:
    """How the hosts' switches differ from a program, stamp included; empty: they hold exactly it."""
    found = []
    for host in lab.spec.hosts:
        with connected(lab, host) as switch:
            wrong = gap.mismatch(switch.observe(), switch.resolve(program.flows, program.ports), gap.stamp_of(program))
        if wrong is not None:
            found.append(f"{host.name}: {wrong.text}")
    return found


def seconds_until_exact(lab: Lab, patience_s: float) -> float:
    """How long until every switch holds exactly what is committed. Fails when patience is over."""
    program = committed(lab)
    began = time.monotonic()
    while wrong := differences(lab, program):
        assert time.monotonic() - began < patience_s, wrong
        time.sleep(0.05)
    return time.monotonic() - began


@contextlib.contextmanager
def connected(lab: Lab, host: HostSpec) -> Iterator[Switch]:
    """A switch over its management socket, beside its controller, which is not disturbed."""
    link = SocketLink(lab.ovs_of(host.name).run_dir / f"{host.name}.mgmt")
    try:
        yield Switch(link.channel, uplink=host.uplink)
    finally:
        link.close()
