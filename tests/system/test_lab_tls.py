"""A whole lab that speaks TLS: service, agent, OpenFlow. Real packets, and machines that are not who they say."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from system.dialing import give_switches, identity_of_switches, is_answered, showing
from system.test_firewall_path import LIST, POP, SHOP, TRIED

from orchestrator.enforce.state import StateDir
from orchestrator.identity.files import parsed_certificate
from orchestrator.lab import pop
from orchestrator.lab.expect import landing, policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import CONTROLLER, SERVICE, ControlPlane, agent_of
from orchestrator.lab.status import look
from orchestrator.lab.wire import Wire, shot
from orchestrator.policy.model import Acl

PATIENCE_S = 60.0
AGENT = agent_of(POP.firewalls[0])
LESS = Acl(LIST.rules[:2])


@pytest.fixture(scope="module")
def plane(layout: Layout) -> Iterator[ControlPlane]:
    with pop.temporary(layout, POP) as lab:
        plane = ControlPlane(lab, tls=True)
        plane.start({SHOP: LIST})
        yield plane


@pytest.fixture
def lab(plane: ControlPlane, layout: Layout) -> Lab:
    """As it is now: processes that were started again are others."""
    assert plane.url.startswith("https://")
    return pop.find(layout)


def put(plane: ControlPlane, acl: Acl) -> None:
    with plane.client() as client:
        plane.wait_enforced(client, client.acls.put(SHOP, acl).generation, PATIENCE_S)


def packets_fare_as(lab: Lab, acl: Acl) -> None:
    policy = policy_of(POP, {SHOP: acl})
    with Wire(lab) as wire:
        landed = wire.fire([shot(lab, sender, each) for sender, each in TRIED])
    assert [one.nodes for one in landed] == [landing(POP, policy, each) for _, each in TRIED]


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def connected(lab: Lab) -> dict[str, bool]:
    return {bridge.host: bool(bridge.connected) for bridge in look(lab).bridges}


def test_packets_fare_as_the_policy_says_and_as_the_next_one_does(plane: ControlPlane, lab: Lab) -> None:
    packets_fare_as(lab, LIST)
    put(plane, LESS)
    packets_fare_as(lab, LESS)
    targets = [lab.ovs_of(host.name).vsctl("get", "controller", host.name, "target") for host in POP.hosts]
    assert all(target.startswith('"ssl:') for target in targets)
    with plane.client() as client:
        known = {(each.usage, each.name) for each in client.certificates.read_all() if each.valid}
    assert known == {
        ("controller", socket.gethostname()),
        ("enforcer", "fw1"),
        ("switch", "host1"),
        ("switch", "host2"),
    }


def test_killed_and_started_again_everybody_is_who_they_were(plane: ControlPlane, lab: Lab) -> None:
    for name in (SERVICE, CONTROLLER, AGENT):
        lab.kill(name)
    assert set(plane.supervise()) == {SERVICE, CONTROLLER, AGENT}
    put(plane, LIST)
    packets_fare_as(lab, LIST)


def own(lab: Lab, process: str) -> Path:
    """The key and the certificate of one of the lab's enforcement points."""
    return StateDir(lab.layout.run_dir / process).identity_file


def test_the_controller_speaks_with_switches_alone(lab: Lab) -> None:
    """Not in clear, not with who shows nothing, not with machines that the authority knows as something else."""
    there = lab.controller_address
    assert not is_answered(there, None)
    assert not is_answered(there, showing(None))
    assert not is_answered(there, showing(own(lab, AGENT)))
    assert not is_answered(there, showing(own(lab, CONTROLLER)))
    assert is_answered(there, showing(identity_of_switches(lab)))


def test_a_switch_that_says_it_is_another_host_gets_none_of_its_program(plane: ControlPlane, lab: Lab) -> None:
    """The certificate is host2's: the bridge with host1's datapath id is let in by TLS and passed over after it."""
    log = lab.layout.logs / f"{CONTROLLER}.log"
    give_switches(plane, lab, "host2")
    wait_until(lambda: "switch.impostor" in log.read_text())
    with plane.client() as client:
        generation = client.acls.put(SHOP, LESS).generation
        wait_until(
            lambda: [each.host for each in client.domains.read_generation(POP.domain, generation).laggards] == ["host1"]
        )
        wait_until(lambda: any(each.kind == "host.impersonated" for each in client.events.read_newest().items))
        told = next(each for each in client.events.read_newest().items if each.kind == "host.impersonated")
        assert (told.subject, told.detail["host"], told.detail["certificate"]) == (POP.domain, "host1", ["host2"])
    give_switches(plane, lab, "host1", "host2")
    put(plane, LESS)
    packets_fare_as(lab, LESS)


def test_a_switch_whose_certificate_is_revoked_is_cut_off_and_forwards_on(plane: ControlPlane, lab: Lab) -> None:
    with plane.client() as client:
        for each in client.certificates.read_all(POP.domain):
            if each.usage == "switch":
                client.certificates.revoke(each.serial)
    wait_until(lambda: not any(connected(lab).values()))
    packets_fare_as(lab, LESS)
    give_switches(plane, lab, "host2", "host1")
    put(plane, LIST)
    put(plane, LESS)
    packets_fare_as(lab, LESS)


def test_a_firewall_whose_certificate_is_revoked_learns_nothing_more_and_filters_on(
    plane: ControlPlane, lab: Lab
) -> None:
    serial = f"{parsed_certificate(own(lab, AGENT).read_bytes(), 'x').serial_number:040x}"
    with plane.client() as client:
        log = lab.layout.logs / f"{AGENT}.log"
        said = len(log.read_text())
        client.certificates.revoke(serial)
        wait_until(lambda: "program.watch_failed" in log.read_text()[said:])  # its stream is cut, and it gets no other
        generation = client.acls.put(SHOP, LIST).generation
        wait_until(
            lambda: [each.host for each in client.domains.read_generation(POP.domain, generation).laggards] == ["fw1"]
        )
        packets_fare_as(lab, LESS)  # what the firewall permits still is what it permitted
        lab.kill(AGENT)
        StateDir(lab.layout.run_dir / AGENT).forget_who_we_were()
        own(lab, AGENT).unlink()
        plane.start_agent(POP.firewalls[0], client.enrolment.invite(POP.domain, name="fw1", kind="nftables"))
        plane.wait_enforced(client, generation, PATIENCE_S)
    packets_fare_as(lab, LIST)
