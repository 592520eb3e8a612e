"""Rows of flow caches to draw from, and packets near them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from orchestrator.compile.filters.cacherows import CacheRow, Verdict
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP
from orchestrator.policy.space import possible
from orchestrator.policy.spans import Span

BASE = {Family.IPV4: 0xC0000200, Family.IPV6: 0x20010DB8_00010000_00000000_00000000}
"""Where addresses begin; IPv6 ranges reach over the middle of an address."""

_COUNTS = ((), (1,), (2, 1), (3, 2, 1))
_EVERY_PORT, _EVERY_PROTOCOL = Span(0, 65535), Span(0, 255)


@st.composite
def _addresses(draw: DrawFn, family: Family) -> Span:
    if draw(st.integers(0, 4)) == 0:
        return Span(0, (1 << family.bits) - 1)
    scale = draw(st.sampled_from((0, 60))) if family is Family.IPV6 else 0
    low, high = sorted((draw(st.integers(0, 20)), draw(st.integers(0, 20))))
    return Span(BASE[family] + (low << scale), BASE[family] + (high << scale))


@st.composite
def _ports(draw: DrawFn) -> Span:
    ends = sorted(draw(st.tuples(*[st.sampled_from((0, 1, 3, 8, 15, 16, 255, 65535))] * 2)))
    return draw(st.sampled_from((_EVERY_PORT, Span(*ends))))


@st.composite
def row(draw: DrawFn) -> CacheRow:
    """One row; its counts and verdict mean nothing."""
    family = draw(st.sampled_from(list(Family)))
    one = (TCP, TCP, TCP, UDP, ICMP, ICMPV6)
    protocol = draw(st.sampled_from((_EVERY_PROTOCOL, *(Span(number, number) for number in one), Span(7, 200))))
    flags = draw(st.sampled_from(((0, 0), (2, 2), (0x10, 0x12)))) if protocol == Span(TCP, TCP) else (0, 0)
    return CacheRow(
        family, draw(_addresses(family)), draw(_addresses(family)), draw(_ports()), draw(_ports()), protocol, flags,
        draw(st.sampled_from(list(Verdict))), draw(st.sampled_from(_COUNTS)),
    )  # fmt: skip


def row_lists(most: int = 8) -> st.SearchStrategy[tuple[CacheRow, ...]]:
    """Rows as a cache holds them: those of IPv4 first."""
    return st.lists(row(), max_size=most).map(lambda found: tuple(sorted(found, key=lambda each: each.family)))


@st.composite
def packets_near(draw: DrawFn, rows: Sequence[CacheRow]) -> Packet:
    """A packet at the ends of some rows' ranges, each field of another row, or just outside."""

    def near(span: Span, highest: int) -> int:
        value = draw(st.sampled_from((span.low, span.high, span.low - 1, span.high + 1)))
        return min(max(value, 0), highest)

    family = draw(st.sampled_from([each.family for each in rows] or list(Family)))
    mine = st.sampled_from([each for each in rows if each.family is family])
    highest = (1 << family.bits) - 1
    first, second = near(draw(mine).source_ports, 65535), near(draw(mine).destination_ports, 65535)
    return possible(
        Packet(
            family, near(draw(mine).source, highest), near(draw(mine).destination, highest),
            draw(st.sampled_from((TCP, TCP, UDP, SCTP, ICMP, ICMPV6, 47, 7, 200))), first, second,
            first & 0xFF, second & 0xFF, draw(st.sampled_from((0, 2, 0x10, 0x12, 0xFF))), draw(st.integers(0, 9)) == 0,
        )
    )  # fmt: skip
