"""Packets that switches show us: read from their bytes, told once, thrown away rather than waited for."""

from __future__ import annotations

import itertools
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.enforce.drivers.openflow import frames, headers
from orchestrator.enforce.sightings import Lookout
from orchestrator.errors import BadInput, Unreachable
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import TCP
from orchestrator.program.sightings import MOST_AT_ONCE, Sightings

SYN = Packet(Family.IPV4, 0x0A000001, 0x0A000002, TCP, 1024, 80, tcp_flags=2)


class Sink:
    def __init__(self) -> None:
        self.reports: list[Sightings] = []
        self.broken: list[bool] = []
        self.refused: list[int] = []
        """The cookies of packets that no report may have."""
        self.takeovers = 0

    def report_sightings(self, domain: str, enforcer: int, report: Sightings) -> None:
        assert (domain, enforcer) == ("pop", 7)
        assert self.takeovers, "numbers begin anew before any is told"
        self.reports.append(report)
        if {*cookies(report)} & {*self.refused}:
            raise BadInput("there is no such packet")
        if self.broken and self.broken.pop(0):
            raise Unreachable("nobody answers")

    def take_over(self) -> None:
        self.takeovers += 1


def lookout(sink: Sink, most_kept: int = 10_000) -> Lookout:
    ticks = itertools.count(1_000)
    return Lookout(sink, "pop", 7, sink.take_over, clock=lambda: float(next(ticks)), most_kept=most_kept)


def see(keeper: Lookout, *cookies: int) -> None:
    for cookie in cookies:
        keeper.seen("host1", cookie, SYN, 60)


def cookies(report: Sightings) -> list[int]:
    return [each.cookie for each in report.seen]


def test_what_was_seen_is_told_once_and_in_order() -> None:
    sink = Sink()
    keeper = lookout(sink)
    keeper.tell()
    see(keeper, 1, 2)
    keeper.tell()
    see(keeper, 3)
    keeper.tell()
    keeper.tell()
    assert [cookies(each) for each in sink.reports] == [[1, 2], [3]]
    assert sink.reports[0].number < sink.reports[1].number
    assert [each.at for each in sink.reports[0].seen] == [1_001_000_000, 1_002_000_000]


def test_a_report_without_an_answer_comes_again_under_its_number() -> None:
    sink = Sink()
    sink.broken = [True, False]
    keeper = lookout(sink)
    see(keeper, 1)
    with pytest.raises(Unreachable):
        keeper.tell()
    see(keeper, 2)
    keeper.tell()
    first, again, then = sink.reports
    assert first == again
    assert (cookies(first), cookies(then)) == ([1], [2])
    assert then.number > first.number


def test_a_report_that_will_never_be_taken_is_thrown_away_and_told_of() -> None:
    sink = Sink()
    sink.refused = [2]
    keeper = lookout(sink)
    for cookie in (1, 2):
        see(keeper, cookie)
        with suppress(BadInput):
            keeper.tell()
    keeper.tell()
    see(keeper, 3)
    keeper.tell()
    assert [(cookies(each), each.lost) for each in sink.reports] == [([1], 0), ([2], 0), ([], 1), ([3], 0)]


def test_nothing_is_told_before_there_is_an_epoch() -> None:
    class Away(Sink):
        def take_over(self) -> None:
            raise Unreachable("nobody answers")

    sink = Away()
    keeper = lookout(sink)
    see(keeper, 1)
    with pytest.raises(Unreachable):
        keeper.tell()
    assert sink.reports == []


def test_too_many_are_told_in_pieces_and_the_oldest_are_thrown_away() -> None:
    sink = Sink()
    keeper = lookout(sink, most_kept=MOST_AT_ONCE + 5)
    see(keeper, *range(MOST_AT_ONCE + 8))
    keeper.tell()
    assert [len(each.seen) for each in sink.reports] == [MOST_AT_ONCE, 5]
    assert [each.lost for each in sink.reports] == [3, 0]
    assert sink.reports[0].seen[0].cookie == 3


def shown(frame: bytes, *, reason: int = 1, cookie: int = 0xAC11 << 48 | 5, whole: int | None = None) -> bytes:
    match = struct.pack("!HHII", 1, 12, 0x80000004, 3) + bytes(4)
    length = len(frame) if whole is None else whole
    body = struct.pack("!IHBBQ", 0xFFFFFFFF, length, reason, 50, cookie) + match + bytes(2) + frame
    return struct.pack("!BBHI", 6, 10, 8 + len(body), 0) + body


@given(st.integers(0, 1400))
def test_a_packet_is_read_from_what_was_cut_off(payload: int) -> None:
    frame = frames.frame(SYN, src_mac=1, dst_mac=2, payload=bytes(payload))
    assert headers.read_packet_in(shown(frame[:128], whole=len(frame))) == (0xAC11 << 48 | 5, SYN, len(frame))


@given(st.binary(max_size=80))
def test_whatever_a_switch_sends_is_no_reason_to_fail(octets: bytes) -> None:
    headers.read_packet_in(octets)
    headers.read_packet_in(shown(octets))


def test_what_no_rule_shows_is_not_taken() -> None:
    frame = frames.frame(SYN, src_mac=1, dst_mac=2, payload=b"")
    assert headers.read_packet_in(shown(frame, reason=0)) is None
    arp = frames.ethernet(1, 2, frames.ARP, frames.arp(1, 1, 0x0A000001, 0, 0x0A000002))
    assert headers.read_packet_in(shown(arp)) is None
