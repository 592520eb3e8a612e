"""Compiler and driver in this process, against a lab's real switches: everything but the service and its loops.

For tests of what packets do; the service and its failures have tests of their own.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.hostprogram import compile_host
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.openflow import headers
from orchestrator.enforce.drivers.openflow.channel import Channel
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.drivers.openflow.launcher import Launcher, Listen
from orchestrator.lab.pop import Lab
from orchestrator.policy.model import Packet, Policy
from orchestrator.program.program import Program

PATIENCE_S = 60.0


class Direct:
    """Brings every host of a lab to a policy. The launcher's observer; used in a `with` statement.

    `in_kernel`: as if the hosts' switches forwarded in the kernel.
    """

    def __init__(self, lab: Lab, *, in_kernel: bool = False) -> None:
        self._lab = lab
        self._in_kernel = in_kernel
        self._changed = threading.Condition()
        self._channels: dict[int, Channel] = {}
        self._generation = 0
        self.sightings: list[tuple[int, int, Packet, int]] = []
        self._launcher = Launcher(Listen(*lab.controller_address), observer=self)

    def __enter__(self) -> Direct:
        self._launcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._launcher.stop()

    def enforce(self, policy: Policy, *, on: Collection[str] | None = None) -> Program:
        """Returns once every host, or those named, were read back to hold the policy."""
        self._generation += 1
        program = compile_host(policy, domain=self._lab.spec.domain, generation=self._generation)
        hosts = {int(host.datapath_id, 16): host for host in self._lab.spec.hosts}
        with self._changed:
            assert self._changed.wait_for(lambda: set(hosts) <= set(self._channels), PATIENCE_S), "a switch is missing"
        for datapath_id, host in hosts.items():
            if on is not None and host.name not in on:
                continue
            switch = Switch(self._channels[datapath_id], uplink=host.uplink, in_kernel=self._in_kernel)
            self._bring(switch, program)
        return program

    def packets_by_rule(self, host: str) -> dict[int, int]:
        """What each rule's flows on a host have counted, by rule number; rules that counted nothing left out."""
        self._lab.ovs_of(host).forget()  # brings the counters up to date
        channel = self._channels[int(self._lab.spec.host(host).datapath_id, 16)]
        return packets_by_rule(Switch(channel, uplink=self._lab.spec.host(host).uplink))

    def _bring(self, switch: Switch, program: Program) -> None:
        assert switch.claim(self._generation)
        switch.apply(gap.correction(switch.observe(), program, switch.resolve), gap.stamp_of(program))
        rows = switch.resolve(program.flows, program.ports)
        wrong = gap.mismatch(switch.observe(), rows, gap.stamp_of(program))
        assert wrong is None, wrong.text

    def switch_connected(self, channel: Channel) -> None:
        with self._changed:
            self._channels[channel.datapath_id] = channel
            self._changed.notify_all()

    def switch_disconnected(self, channel: Channel) -> None:
        with self._changed:
            if self._channels.get(channel.datapath_id) is channel:
                del self._channels[channel.datapath_id]

    def ports_changed(self, channel: Channel) -> None:
        """The driver asks the channel each time."""

    def links_changed(self, channel: Channel) -> None:
        """Nothing is spread here."""

    def switch_demoted(self, channel: Channel) -> None:
        raise AssertionError("nobody else commands these switches")

    def seen(self, channel: Channel, message: bytes) -> None:
        shown = headers.read_packet_in(message)
        if shown is not None:
            self.sightings.append((channel.datapath_id, *shown))


def packets_by_rule(switch: Switch) -> dict[int, int]:
    """What each rule's flows have counted, by rule number; rules that counted nothing left out."""
    hits = switch.hits()
    counted: Counter[int] = Counter()
    for number, packets in zip(hits.cookie.tolist(), hits.packets.tolist(), strict=True):
        cookie = Cookie.unpack(number)
        if cookie is not None and cookie.kind is Kind.RULE:
            counted[cookie.number] += packets
    return dict(+counted)
