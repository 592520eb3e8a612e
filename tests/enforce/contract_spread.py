"""What a switch with a spreading program does with packets: over the fake and over a real Open vSwitch.

Which firewall a packet went to is read from where it came out and how it was addressed.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from enforce.contract_driver import Bench

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.compile.pipelines.spread import INSIDE_PORT, OUTSIDE_PORT
from orchestrator.compile.spreadprogram import Member, MemberState, Side, Spread, spread_program
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.enforce.gap import correction, step
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.program.delta import between
from orchestrator.program.program import Program
from orchestrator.scaling.buckets import NOBODY, Owners, assign, count_moved

NAMES = ("a", "b", "c")
MEMBERS = tuple(
    Member(name, number, Side(f"l{name}", 0x0A0000000010 + number), Side(f"r{name}", 0x0A0000000020 + number))
    for number, name in enumerate(NAMES, 5)
)
PORTS = (OUTSIDE_PORT, INSIDE_PORT, *(side.port for each in MEMBERS for side in (each.left, each.right)))
SAMPLES = 120
SYN, ACK = 0x02, 0x10


def fair(*names: str, before: Owners = NOBODY) -> Owners:
    return assign(before, dict.fromkeys(names, 1.0))


def spread(*names: str, stateful: bool, before: Owners = NOBODY) -> Spread:
    members = tuple(each for each in MEMBERS if each.name in names)
    return Spread(members, fair(*names, before=before), stateful)


def connections(family: Family = Family.IPV4, protocol: int = TCP, first_port: int = 20000) -> list[Packet]:
    outer, inner = (0xC6336400, 0xCB007100) if family is Family.IPV4 else (0x20010DB8 << 96, 0x20010DB9 << 96)
    return [
        Packet(family, outer + index % 7, inner + index % 5, protocol, first_port + index, 443)
        for index in range(SAMPLES)
    ]


def answer(packet: Packet) -> Packet:
    ports = packet.destination_port, packet.source_port
    flags = packet.tcp_flags | ACK if packet.protocol == TCP else 0
    return Packet(packet.family, packet.destination, packet.source, packet.protocol, *ports, tcp_flags=flags)


def begins(packet: Packet) -> Packet:
    """The first packet of its connection."""
    return replace(packet, tcp_flags=SYN) if packet.protocol == TCP else packet


def goes_on(packet: Packet) -> Packet:
    """A later one."""
    return replace(packet, tcp_flags=ACK) if packet.protocol == TCP else packet


def draining(name: str) -> Member:
    """A member that drains."""
    return replace(next(each for each in MEMBERS if each.name == name), state=MemberState.DRAINING)


def frame(packet: Packet) -> bytes:
    return frames.frame(packet, src_mac=1, dst_mac=GATEWAY_MAC)


class SpreadContract:
    """A bench whose driver is of the tier of spreading switches and whose switch has `PORTS`."""

    def _hold(self, bench: Bench, wanted: Spread, generation: int = 1) -> Program:
        program = spread_program(wanted, domain="shop", generation=generation)
        delta = correction(bench.driver.observe(), program, bench.driver.resolve)
        bench.driver.apply(delta, Stamp(generation, program.digest))
        assert not len(correction(bench.driver.observe(), program, bench.driver.resolve).added)
        return program

    def _met(self, bench: Bench, packets: Iterable[Packet], side: str) -> list[str | None]:
        """The firewall that each packet from a side goes to; None: dropped."""
        port = OUTSIDE_PORT if side == "l" else INSIDE_PORT
        macs = {each.name: (each.left if side == "l" else each.right).mac for each in MEMBERS}
        met: list[str | None] = []
        for packet in packets:
            sent = bench.forward(frame(packet), port)
            assert len(sent) <= 1
            for out, octets in sent:
                name = out.removeprefix(side)
                expected = macs[name].to_bytes(6, "big") + GATEWAY_MAC.to_bytes(6, "big")
                assert octets == expected + frame(packet)[12:]
            met.append(sent[0][0].removeprefix(side) if sent else None)
        return met

    def test_what_comes_out_of_a_firewall_goes_on(self, bench: Bench) -> None:
        for stateful in (False, True):
            self._hold(bench, spread("a", "b", stateful=stateful), 1 + stateful)
            sent = frame(connections()[0])
            assert bench.forward(sent, "ra") == [(INSIDE_PORT, sent)]
            assert bench.forward(sent, "lb") == [(OUTSIDE_PORT, sent)]
            assert bench.forward(sent, "lc") == []
            assert bench.forward(frames.ethernet(1, GATEWAY_MAC, 0x0806, bytes(28)), OUTSIDE_PORT) == []

    def test_firewalls_in_a_network_behind_one_port_get_their_packets_and_what_they_let_out_goes_on(
        self, bench: Bench
    ) -> None:
        """The port is one for all; a frame's receiver tells which firewall it goes to."""
        left, right = MEMBERS[0].left.port, MEMBERS[0].right.port
        members = tuple(
            replace(each, left=replace(each.left, port=left), right=replace(each.right, port=right)) for each in MEMBERS
        )
        macs = {each.left.mac.to_bytes(6, "big") for each in members}
        for generation, stateful in enumerate((False, True), 1):
            self._hold(bench, Spread(members, fair(*NAMES), stateful), generation)
            sent = [bench.forward(frame(packet), OUTSIDE_PORT) for packet in connections()]
            assert {port for found in sent for port, _ in found} == {left}
            assert {octets[:6] for found in sent for _, octets in found} == macs
            for each in members:
                for side, onwards in ((each.left, OUTSIDE_PORT), (each.right, INSIDE_PORT)):
                    out = frames.frame(connections()[0], src_mac=side.mac, dst_mac=GATEWAY_MAC)
                    assert bench.forward(out, side.port) == [(onwards, out)]
                    to_another = frames.frame(connections()[0], src_mac=side.mac, dst_mac=members[0].right.mac)
                    assert bench.forward(to_another, side.port) == [], "what they send each other stays there"
            assert bench.forward(frame(connections()[0]), left) == [], "a stranger of the network is no firewall"

    def test_every_connection_has_a_firewall_and_every_firewall_its_share(self, bench: Bench) -> None:
        for generation, stateful in enumerate((False, True), 1):
            self._hold(bench, spread(*NAMES, stateful=stateful), generation)
            for family in Family:
                met = self._met(bench, connections(family), "l")
                assert met == self._met(bench, connections(family), "l")
                shares = Counter(met)
                assert shares.keys() == set(NAMES)
                assert min(shares.values()) >= SAMPLES // 8
                assert set(self._met(bench, map(answer, connections(family)), "r")) == set(NAMES)

    def test_both_directions_of_a_tracked_connection_meet_the_same_firewall(self, bench: Bench) -> None:
        self._hold(bench, spread(*NAMES, stateful=True))
        for family in Family:
            for protocol in (TCP, UDP):
                there = connections(family, protocol)
                assert self._met(bench, there, "l") == self._met(bench, map(answer, there), "r")

    def test_only_the_share_that_must_move_moves(self, bench: Bench) -> None:
        """Stateful: only of what begins; what began before stays where it is."""
        for generation, stateful in enumerate((False, True)):
            before = spread("a", "b", stateful=stateful)
            after = spread(*NAMES, stateful=stateful, before=before.owners)
            assert count_moved(before.owners, after.owners) == 85
            old = self._hold(bench, before, 10 * generation + 1)
            met = self._met(bench, map(begins, connections()), "l")
            new = spread_program(after, domain="shop", generation=10 * generation + 2)
            change = step(old, new, (between(old, new),), bench.driver.resolve)
            bench.driver.apply(change, Stamp(new.generation, new.digest))
            then = self._met(bench, map(goes_on, connections()), "l")
            if stateful:
                assert then == met
                then = self._met(bench, map(begins, connections(first_port=30000)), "l")
            else:
                assert {one for was, one in zip(met, then, strict=True) if was != one} == {"c"}
            assert SAMPLES // 6 <= then.count("c") <= SAMPLES // 2

    def test_with_nobody_left_nothing_passes(self, bench: Bench) -> None:
        for generation, stateful in enumerate((False, True), 1):
            self._hold(bench, spread("a", stateful=stateful), 2 * generation)
            self._hold(bench, Spread(MEMBERS[:0], NOBODY, stateful), 2 * generation + 1)
            assert self._met(bench, connections()[:10], "l") == [None] * 10
            assert self._met(bench, map(answer, connections()[:10]), "r") == [None] * 10

    def test_a_draining_firewall_gets_nothing_new_and_what_comes_out_of_it_goes_on(self, bench: Bench) -> None:
        self._hold(bench, Spread((MEMBERS[0], draining("b")), fair("a"), stateful=False))
        assert set(self._met(bench, connections(), "l")) == {"a"}
        sent = frame(connections()[0])
        assert bench.forward(sent, "rb") == [(INSIDE_PORT, sent)]

    def test_a_tracked_connection_stays_with_the_firewall_that_it_began_with(self, bench: Bench) -> None:
        """Whoever comes and goes meanwhile; once its firewall is gone, it is whose its bucket is."""
        old = spread("a", "b", stateful=True)
        self._hold(bench, old)
        running, later = self._of_every_kind(0), self._of_every_kind(40)
        before = self._met(bench, map(begins, running), "l")
        grown = spread(*NAMES, stateful=True, before=old.owners)
        self._hold(bench, grown, 2)
        self._stay(bench, running, before)
        assert "c" in self._met(bench, map(begins, later), "l")
        left = fair("a", "c", before=grown.owners)
        a, _, c = MEMBERS
        self._hold(bench, Spread((a, draining("b"), c), left, stateful=True), 3)
        self._stay(bench, running, before)
        assert set(self._met(bench, map(begins, self._of_every_kind(80)), "l")) == {"a", "c"}
        self._hold(bench, Spread((a, c), left, stateful=True), 4)
        after = self._met(bench, map(goes_on, running), "l")
        assert set(after) == {"a", "c"}
        assert all(now == was for now, was in zip(after, before, strict=True) if was != "b")
        self._hold(bench, spread(*NAMES, stateful=True, before=left), 5)
        self._stay(bench, running, after)

    @staticmethod
    def _of_every_kind(first: int) -> list[Packet]:
        """Connections of both IP versions, over TCP and UDP."""
        return [
            packet
            for family in Family
            for protocol in (TCP, UDP)
            for packet in connections(family, protocol)[first:][:12]
        ]

    def _stay(self, bench: Bench, running: list[Packet], where: list[str | None]) -> None:
        """Both directions of connections meet these firewalls."""
        assert self._met(bench, map(answer, running), "r") == where
        assert self._met(bench, map(goes_on, running), "l") == where

    def test_later_fragments_of_one_datagram_stay_together(self, bench: Bench) -> None:
        """Of what is no TCP or SCTP only the addresses are hashed, so fragments go where the first one went."""
        self._hold(bench, spread(*NAMES, stateful=True))
        for packet in connections(protocol=UDP)[:30]:
            addresses = packet.source, packet.destination
            body = struct.pack("!HHHH", packet.source_port, packet.destination_port, 64, 0)
            first, later = (
                frames.ethernet(1, GATEWAY_MAC, frames.IPV4, frames.ipv4(*addresses, UDP, octets, fragment=place))
                for octets, place in ((body, frames.MORE_FRAGMENTS), (bytes(64), frames.LATER_OFFSET))
            )
            assert bench.forward(first, OUTSIDE_PORT)[0][0] == bench.forward(later, OUTSIDE_PORT)[0][0]
