"""What every packet filter that tracks connections must be to its driver, the fakes and the real ones alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pytest
from compiled_filter import counted_under
from enforce.contract_filters import (
    SHOP,
    Bench,
    Meddling,
    assert_decides,
    assert_holds,
    bring,
    by_cookie,
    meddle,
    policy,
    program,
)
from tracked_domain import conversation, trackable

from orchestrator.compile.cookies import NO_ROOM, Cookie
from orchestrator.compile.filters.filterrows import read_comment
from orchestrator.enforce import gap
from orchestrator.enforce.reading import are_counted
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.connections import NONE, Connections, decide_tracked
from orchestrator.policy.model import Packet, Policy
from orchestrator.policy.oracle import owner
from orchestrator.policy.protocols import ICMP, TCP, UDP
from orchestrator.program.program import Tier

TRACKED = trackable(policy())
CHANGED = trackable(policy([each for each in SHOP if each.id not in ("any", "echo")]))
MEDDLINGS = (
    Meddling("lets everything open a connection", "flush chain ip aclflow opens", "-F opens"),
    Meddling("believes every ICMP error", "flush chain ip aclflow errors_1", "-F errors_1"),
    Meddling("asks about the packet itself", "flush chain ip aclflow whole", "-F whole"),
)
OUTSIDE, INSIDE = (parse_address(text)[1] for text in ("192.0.2.1", "198.51.100.10"))
OUTSIDE6, INSIDE6 = (parse_address(text)[1] for text in ("2001:db8:ffff:1::1", "2001:db8:100::10"))
SYN, ACK, FIN, RST = 0x02, 0x10, 0x01, 0x04


class TrackedBench(Bench, Protocol):
    """A filter that tracks connections."""

    def answer(self, packets: Sequence[Packet]) -> list[bool]:
        """Which of some packets come through in the other direction."""
        ...

    def fill_table(self) -> None:
        """Have its kernel remember as many connections as it can."""
        ...

    def empty_table(self) -> None:
        """Have its kernel forget all connections."""
        ...


def tcp(port: int, flags: int = SYN) -> Packet:
    return Packet(Family.IPV4, OUTSIDE, INSIDE, TCP, port, 80, tcp_flags=flags)


def udp(port: int) -> Packet:
    return Packet(Family.IPV4, OUTSIDE, INSIDE, UDP, port, 53)


def back(packet: Packet, flags: int = 0) -> Packet:
    return replace(packet, source=packet.destination, destination=packet.source, source_port=packet.destination_port,
                   destination_port=packet.source_port, tcp_flags=flags)  # fmt: skip


FIRSTS = (
    tcp(2001), udp(2001), Packet(Family.IPV4, OUTSIDE, INSIDE, ICMP, icmp_type=8),
    Packet(Family.IPV4, OUTSIDE, INSIDE, TCP, 2002, 22, tcp_flags=SYN),
    Packet(Family.IPV4, OUTSIDE, INSIDE, TCP, 2002, 1022, tcp_flags=SYN),
    Packet(Family.IPV4, OUTSIDE, INSIDE, UDP, 2001, 54),
    Packet(Family.IPV4, INSIDE, OUTSIDE, TCP, 2003, 443, tcp_flags=SYN),
    Packet(Family.IPV4, INSIDE, OUTSIDE, TCP, 2003, 25, tcp_flags=SYN),
    Packet(Family.IPV4, INSIDE, OUTSIDE, UDP, 2003, 123),
    Packet(Family.IPV6, OUTSIDE6, INSIDE6, TCP, 2001, 80, tcp_flags=SYN),
    Packet(Family.IPV6, OUTSIDE6, INSIDE6, TCP, 2002, 22, tcp_flags=SYN),
    Packet(Family.IPV6, INSIDE6, OUTSIDE6, UDP, 2003, 123),
)  # fmt: skip
"""Of these some are permitted by the whole policy, some by the changed one, too, and some by neither."""


@dataclass
class Talk:
    """Packets through a filter, held to the oracle one by one; what was counted, by cookie."""

    bench: TrackedBench
    policy: Policy
    known: Connections = field(default_factory=lambda: NONE)
    counted: Counter[int] = field(default_factory=Counter)

    def say(self, packets: Iterable[Packet]) -> list[bool]:
        """Send packets, each from its side; which came through."""
        return [self._say(packet) for packet in packets]

    def _say(self, packet: Packet) -> bool:
        inside = owner(self.policy, packet.family, packet.source) is not None
        (came,) = (self.bench.answer if inside else self.bench.forward)([packet])
        verdict = decide_tracked(self.policy, packet, self.known)
        assert came is verdict.decision.permitted, packet
        if came:
            self.known = verdict.connections
        self.counted.update(map(_cookie, counted_under(self.policy, verdict.decision)))
        return came


def _cookie(comment: str) -> int:
    counted = read_comment(comment)
    assert counted is not None
    return Cookie(Tier.SERVER, *counted).pack()


def first_words(first: Packet) -> Iterator[Packet]:
    """The packets of a conversation up to the first that a filter drops, or four."""
    for number, packet in enumerate(conversation(first)):
        if number < 4:
            yield packet


class TrackedContract:
    def test_a_filter_goes_over_to_tracking_and_back(self, bench: TrackedBench) -> None:
        here, there = program(bench, policy()), program(bench, TRACKED, 8)
        bring(bench, here)
        bench.driver.apply(gap.step(here, there, (), bench.driver.resolve), gap.stamp_of(there))
        assert_holds(bench, there)
        assert Talk(bench, TRACKED).say([tcp(2001, ACK), *first_words(tcp(2001))]) == [False, *[True] * 4]
        back_again = program(bench, policy(), 9)
        bench.driver.apply(gap.step(there, back_again, (), bench.driver.resolve), gap.stamp_of(back_again))
        assert_holds(bench, back_again)
        assert_decides(bench, policy(), bench.packets)

    def test_conversations_pass_whole_and_count_for_the_rules_that_permit_them(self, bench: TrackedBench) -> None:
        bring(bench, program(bench, TRACKED))
        talk = Talk(bench, TRACKED)
        passed = 0
        for first in FIRSTS:
            for packet in first_words(first):
                if not talk.say([packet])[0]:
                    break
                passed += 1
        assert passed > 20
        assert by_cookie(bench.driver.hits()) == +talk.counted

    def test_nothing_begins_in_the_middle(self, bench: TrackedBench) -> None:
        bring(bench, program(bench, TRACKED))
        talk = Talk(bench, TRACKED)
        for flags in (ACK, SYN | ACK, RST, FIN | ACK, 0):
            assert talk.say([tcp(2004, flags), back(tcp(2004), flags), back(tcp(2004), ACK)]) == [False] * 3
        echo = Packet(Family.IPV4, OUTSIDE, INSIDE, ICMP, icmp_type=0)
        assert talk.say([echo, tcp(2007)]) == [False, True]
        assert bench.answer([back(tcp(2007), SYN)]) == [False], "whoever answers begins nothing between the same ends"

    def test_a_changed_list_cuts_what_it_forbids_and_nothing_else(self, bench: TrackedBench) -> None:
        here, there = program(bench, TRACKED), program(bench, CHANGED, 8)
        bring(bench, here)
        talk = Talk(bench, TRACKED)
        words = [list(conversation(first)) for first in FIRSTS]
        going = [each for each in words if all(talk.say([packet])[0] for packet in each[:3])]
        bench.driver.apply(gap.step(here, there, (), bench.driver.resolve), gap.stamp_of(there))
        assert_holds(bench, there)
        talk.policy = CHANGED
        stayed = [talk.say([each[3]])[0] for each in going]
        assert 0 < sum(stayed) < len(going)
        bench.driver.apply(gap.step(there, here, (), bench.driver.resolve), gap.stamp_of(here))
        talk.policy = TRACKED
        assert all(talk.say([each[4]])[0] for each in going)

    def test_a_tenant_that_is_deleted_has_no_connection_left(self, bench: TrackedBench) -> None:
        here, there = program(bench, TRACKED), program(bench, replace(TRACKED, tenants=TRACKED.tenants[1:]), 8)
        bring(bench, here)
        assert all(Talk(bench, TRACKED).say([*first_words(tcp(2001)), *first_words(udp(2001))]))
        bench.driver.apply(gap.step(here, there, (), bench.driver.resolve), gap.stamp_of(there))
        assert_holds(bench, there)
        assert bench.forward([tcp(2001, ACK), udp(2001)]) == [False] * 2
        assert bench.answer([back(tcp(2001), ACK), back(udp(2001))]) == [False] * 2

    @pytest.mark.parametrize("meddling", MEDDLINGS, ids=lambda each: each.name)
    def test_a_foreign_hand_in_what_tracks_is_seen_and_put_right(self, bench: TrackedBench, meddling: Meddling) -> None:
        wanted = program(bench, TRACKED)
        bring(bench, wanted)
        meddle(bench, meddling)
        assert gap.mismatch(bench.driver.observe(), bench.driver.resolve(wanted.flows, ()), gap.stamp_of(wanted))
        bring(bench, wanted)
        assert_holds(bench, wanted)
        assert Talk(bench, TRACKED).say([tcp(2001, ACK), *first_words(tcp(2001))]) == [False, *[True] * 4]

    def test_a_full_table_opens_no_direction_and_is_counted(self, bench: TrackedBench) -> None:
        bring(bench, program(bench, TRACKED))
        talk = Talk(bench, TRACKED)
        assert all(talk.say([tcp(2001), back(tcp(2001), SYN | ACK), tcp(2001, ACK)]))
        assert _without_room(bench) == 0
        bench.fill_table()
        asks = [tcp(2005), tcp(2006), udp(2005), udp(2006)]
        assert bench.forward(asks) == [False] * 4
        assert bench.answer([back(tcp(2005), SYN | ACK), back(udp(2005))]) == [False] * 2
        assert bench.forward([tcp(2005, ACK)]) == [False]
        assert all(talk.say([tcp(2001, ACK), back(tcp(2001), ACK)])), "what was known goes on"
        assert _without_room(bench) == 7, "all packets of connections that are not known"
        bench.empty_table()
        assert all(Talk(bench, TRACKED).say([tcp(2005), back(tcp(2005), SYN | ACK), *first_words(udp(2005))]))
        assert _without_room(bench) == 7


def _without_room(bench: TrackedBench) -> int:
    hits = bench.driver.hits()
    return int(hits.packets[are_counted(hits.cookie) & (hits.cookie == NO_ROOM[Tier.SERVER])].sum())
