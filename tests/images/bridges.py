"""Bridges of a machine under QEMU, brought to programs by this process: what its kernel's datapath takes."""

from __future__ import annotations

from collections.abc import Collection

from images.guest import HERE, Guest

from orchestrator.bench.benchlab import wait_connected
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.lab.processes import free_port
from orchestrator.program.program import Program, Tier

_DATAPATH = 0xAC1F00000501


def check_it_takes(guest: Guest, name: str, tier: Tier, program: Program, ports: Collection[str]) -> None:
    """A bridge of its own, with ports that lead nowhere, holds a program."""
    listening = Listen("127.0.0.1", free_port())
    words = [
        *("add-br", name, "--", "set", "bridge", name, "fail_mode=secure", "protocols=OpenFlow15"),
        *(f"other_config:datapath-id={_DATAPATH:016x}", "--", "set-controller", name, f"tcp:{HERE}:{listening.port}"),
    ]
    for port in ports:
        words += ["--", "add-port", name, port, "--", "set", "interface", port, "type=internal"]
    done = guest.ssh("sudo", "ovs-vsctl", *words)
    assert done.returncode == 0, done.stderr
    try:
        with wait_connected(lambda observer: Launcher(listening, observer), {_DATAPATH}) as channels:
            device = Switch(channels[_DATAPATH], uplink="wan", tier=tier)
            assert device.claim(1)
            device.apply(gap.correction(device.observe(), program, device.resolve), gap.stamp_of(program))
            rows = device.resolve(program.flows, program.ports)
            wrong = gap.mismatch(device.observe(), rows, gap.stamp_of(program))
            assert wrong is None, wrong.text
    finally:
        guest.ssh("sudo", "ovs-vsctl", "del-br", name)
