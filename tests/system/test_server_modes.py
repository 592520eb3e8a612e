"""A firewall server whose mode for misdirected packets changes while packets flow: at no moment does one pass that
neither the old mode nor the new one lets pass, and once the change is made, only the new one counts.

Every packet says when it was sent: while a mode was in force, or while one gave way to another.
"""

from __future__ import annotations

import itertools
import select
import struct
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import pytest
from system.test_firewall_server import Server, number_of, served_policy, server, share

from orchestrator.enforce import gap
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab.router import _MACS, _ROUTER_MACS, LEFT, RIGHT
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.prefilter import Fate, Misdirect, verdict
from orchestrator.policy.protocols import UDP
from orchestrator.program.delta import between

__all__ = ["server"]

MAGIC = b"aclmode\xf1"
STAMP = struct.Struct("!II")
AT_REST = 300
"""So many rounds of packets are sent while a mode is in force."""
WAYS = [*itertools.permutations(Misdirect, 2)]
PACKETS = {
    "another server's": Packet(Family.IPV4, number_of("192.0.2.7"), number_of("203.0.113.9"), UDP, 1, 2),
    "nobody's": Packet(Family.IPV4, number_of("192.0.2.7"), number_of("100.64.0.9"), UDP, 1, 2),
    "denied": Packet(Family.IPV4, number_of("192.0.2.200"), number_of("198.51.100.77"), UDP, 1, 2),
    "permitted": Packet(Family.IPV4, number_of("192.0.2.7"), number_of("198.51.100.77"), UDP, 1, 2),
}


@dataclass
class Flow:
    """Packets of every kind, one after the other, and which came out on the right, by when they were sent."""

    server: Server
    now: int = 0
    rounds: int = 0
    passed: Counter[tuple[str, int]] = field(default_factory=Counter)
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Flow:
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def rest(self) -> None:
        """Wait until packets of now have been sent for a while."""
        until = self.rounds + AT_REST
        while self.rounds < until:
            self._ended.wait(0.002)

    def _send(self) -> None:
        left = self.server.router.sockets[LEFT]
        crafts = [partial(frames.frame, packet, src_mac=_MACS[LEFT], dst_mac=_ROUTER_MACS[LEFT])
                  for packet in PACKETS.values()]  # fmt: skip
        while not self._ended.is_set():
            for kind, craft in enumerate(crafts):
                left.send(craft(payload=MAGIC + STAMP.pack(kind, self.now)))
            self.rounds += 1
            self._ended.wait(0.0005)

    def _receive(self) -> None:
        right, kinds = self.server.router.sockets[RIGHT], list(PACKETS)
        while select.select([right], [], [], 0.2)[0] or not self._ended.is_set():
            if select.select([right], [], [], 0)[0]:
                frame = right.recv(2048)
                place = frame.find(MAGIC)
                if place >= 0:
                    kind, sent = STAMP.unpack_from(frame, place + len(MAGIC))
                    self.passed[kinds[kind], sent] += 1


@pytest.fixture
def flow(server: Server) -> Flow:
    return Flow(server)


def let_pass(mode: Misdirect) -> set[str]:
    """What reaches the right in a mode, as the oracle says."""
    of = served_policy()
    return {name for name, packet in PACKETS.items() if verdict(of, share(mode), packet).fate is Fate.PERMIT}


def test_no_change_of_mode_lets_pass_what_neither_does(server: Server, flow: Flow) -> None:
    modes = [WAYS[0][0]]
    for old, new in WAYS:  # every way once: back to where it begins, then on
        modes += [old, new] if modes[-1] is not old else [new]
    programs = {mode: server.program(served_policy(), share(mode), number) for number, mode in enumerate(Misdirect, 1)}
    server.bring(programs[modes[0]])
    with flow:
        flow.rest()
        for old, new in itertools.pairwise(modes):
            if old is new:
                continue
            flow.now += 1  # from here on in between
            delta = between(programs[old], programs[new])
            server.inside(partial(server.driver.apply, delta, gap.stamp_of(programs[new])))
            flow.now += 1
            flow.rest()
    steps = [(old, new) for old, new in itertools.pairwise(modes) if old is not new]
    assert set(steps) == set(WAYS)
    for number, (old, new) in enumerate(steps):
        passing = {name for (name, sent) in flow.passed if sent == 2 * number + 1}
        assert passing <= let_pass(old) | let_pass(new), (old, new)
        assert {name for (name, sent) in flow.passed if sent == 2 * number + 2} == let_pass(new), (old, new)
