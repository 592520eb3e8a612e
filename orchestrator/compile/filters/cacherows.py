"""Rows of a flow cache: ranges on each axis, a verdict, and cookies.

A flow cache (`enforce/drivers/bpf`) asks its rows in order, and the first that holds a packet decides. It sees whole,
unfragmented packets only. A row is one interval on each axis, so a box takes one row for each combination of its spans;
ICMP's type and code stand where others have their ports, and TCP flags are looked at under a mask.

    bytes   IPv4                                              bytes   IPv6
    0        source, its span (last - first)      4 + 4       0        source, first and last       16 + 16
    8        destination, its span                4 + 4       32       destination, first and last  16 + 16
    16       source port, its span                2 + 2       64       the same as from 16 on       12
    20       destination port, its span           2 + 2       76       zero                         4
    24       protocol, its span, flags, mask      1 + 1 + 1 + 1

A row of a program has these bytes as its match (little-endian; of an address of 128 bits the upper 64 first), the
verdict and the cookies of whom it counts for as its instructions, and a priority that falls from row to row.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import (
    DESTINATION,
    FIELDS,
    FRAGMENTS,
    OWN_ICMP,
    PROTOCOL,
    SLOTS,
    SOURCE,
    TCP_FLAGS,
    slot_values,
)
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import IPV6_FRAGMENT
from orchestrator.policy.space import ALL_BYTES, WHOLE, Box, full_set
from orchestrator.policy.spans import Span, Spans
from orchestrator.policy.tcpflags import flag_matches_of
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Tier

MOST_COUNTED = 3
"""An operator's rule alone, or a sender's and a receiver's list: at most so many count one packet."""

FLOWCACHE = 5
"""The table of a firewall's program in which the rows of its flow cache are."""

CLASSIFIER = 11
"""The table of a firewall server's program in which the rows of its classifier are."""

FIRST_PRIORITY = 0xFFFF
_HALF = (1 << 64) - 1
_UPPER = "HHHHBBBB"
_FORMS = {Family.IPV4: struct.Struct(f"<IIII{_UPPER}"), Family.IPV6: struct.Struct(f"<QQQQQQQQ{_UPPER}4x")}
_FAMILIES = {form.size: family for family, form in _FORMS.items()}


class Verdict(enum.IntEnum):
    """The verdict of a row.

    Deferred packets are left to the packet filter, and rows below do not see them.
    """

    DEFER = 0
    PERMIT = 1
    DENY = 2


@dataclass(frozen=True, slots=True)
class CacheRow:
    """One row.

    `flags` are (value, mask); `counts` are the cookies of all that count such a packet.
    """

    family: Family
    source: Span
    destination: Span
    source_ports: Span
    destination_ports: Span
    protocols: Span
    flags: tuple[int, int]
    verdict: Verdict
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.counts) > MOST_COUNTED:
            raise BadInput(f"a packet counts for {MOST_COUNTED} lists at most", place="counts")

    def holds(self, packet: Packet) -> bool:
        """Return whether the row matches a packet. Only whole packets match."""
        first, second = slot_values(packet)
        value, mask = self.flags
        return (
            self.family is packet.family
            and not packet.later_fragment
            and _contains(self.source, packet.source)
            and _contains(self.destination, packet.destination)
            and _contains(self.source_ports, first)
            and _contains(self.destination_ports, second)
            and _contains(self.protocols, packet.protocol)
            and packet.tcp_flags & mask == value
        )

    @property
    def match(self) -> bytes:
        """The bytes of the row's match."""
        ports = (*_measure_span(self.source_ports), *_measure_span(self.destination_ports))
        upper = (*ports, *_measure_span(self.protocols), *self.flags)
        if self.family is Family.IPV4:
            return _FORMS[self.family].pack(*_measure_span(self.source), *_measure_span(self.destination), *upper)
        ends = (*self.source, *self.destination)
        return _FORMS[self.family].pack(*(half for end in ends for half in (end >> 64, end & _HALF)), *upper)

    @classmethod
    def of(cls, match: bytes, verdict: Verdict, counts: tuple[int, ...]) -> CacheRow:
        """Read a row from its match bytes. Raises BadInput."""
        family = _FAMILIES.get(len(match))
        if family is None:
            raise BadInput(f"{len(match)} bytes are no row of a flow cache", place="match")
        fields = _FORMS[family].unpack(match)
        upper = fields[-8:]
        if family is Family.IPV4:
            source, destination = _make_span(*fields[0:2]), _make_span(*fields[2:4])
        else:
            ends = [high << 64 | low for high, low in zip(fields[0:8:2], fields[1:8:2], strict=True)]
            source, destination = Span(ends[0], ends[1]), Span(ends[2], ends[3])
        ports, flags = (_make_span(*upper[0:2]), _make_span(*upper[2:4])), (upper[6], upper[7])
        return cls(family, source, destination, *ports, _make_span(*upper[4:6]), flags, verdict, counts)


_LOOKED_AT = (SOURCE, DESTINATION, PROTOCOL, FRAGMENTS, TCP_FLAGS, *(field for slot in SLOTS for field in slot))
UNSEEN = tuple(field for field in FIELDS if field not in _LOOKED_AT)
"""The fields at which a row does not look."""


def widen(box: Box) -> Box:
    """Widen a box to the least one that rows can say."""
    full: dict[str, Any] = {field.axis: full_set(field, box.family) for field in UNSEEN}
    return box._replace(**full) if full else box


def rows_of(box: Box, verdict: Verdict, counts: tuple[int, ...]) -> Iterator[CacheRow]:
    """Yield disjoint rows for exactly a box's whole packets; there may be none.

    The box is one that rows can say.
    """
    if not box.fragments & WHOLE:
        return
    own_icmp = box.protocols == 1 << OWN_ICMP[box.family]
    first, second = map(_bit_spans, box.icmp) if own_icmp else (box.source_ports, box.destination_ports)
    protocols = box.protocols
    if box.family is Family.IPV6:
        protocols |= 1 << IPV6_FRAGMENT  # which no whole packet has, so that what is everything stays one span
    flags = [(match.value, match.mask) for match in flag_matches_of(box.tcp_flags)] or [(0, 0)]
    for axes in product(box.source, box.destination, first, second, _bit_spans(protocols), flags):
        yield CacheRow(box.family, *axes, verdict, counts)


def cache_table(rows: Sequence[CacheRow], table: int = FLOWCACHE) -> FlowTable:
    """Return a program's rows for a cache's rows, in their order."""
    return FlowTable.of(
        Flow(
            table,
            FIRST_PRIORITY - place,
            row.match,
            _pack_instructions(row),
            row.counts[-1] if row.counts else _NOBODYS,
        )
        for place, row in enumerate(rows)
    )


def read_table(flows: FlowTable) -> tuple[CacheRow, ...]:
    """Return the cache's rows from a program's rows, in order.

    Raises BadInput.
    """
    ordered = sorted(flows.rows(), key=lambda flow: -flow.priority)
    return tuple(CacheRow.of(flow.match, *_read_instructions(flow.instructions)) for flow in ordered)


def families(flows: FlowTable) -> npt.NDArray[np.uint8]:
    """The IP version that each row of a cache is about, told by its length."""
    return np.where(flows.match_length == _FORMS[Family.IPV4].size, Family.IPV4, Family.IPV6).astype(np.uint8)


_NOBODYS = Cookie(Tier.SERVER, Kind.STRUCTURE).pack()


def _pack_instructions(row: CacheRow) -> bytes:
    return struct.pack(f"<B{len(row.counts)}Q", row.verdict, *row.counts)


def _read_instructions(data: bytes) -> tuple[Verdict, tuple[int, ...]]:
    counted, rest = divmod(len(data) - 1, 8)
    if rest or counted > MOST_COUNTED or data[0] not in _VERDICTS:
        raise BadInput(f"{data.hex()} says nothing to a flow cache", place="instructions")
    verdict, *counts = struct.unpack(f"<B{counted}Q", data)
    return Verdict(verdict), tuple(counts)


_VERDICTS = frozenset(Verdict)


def _bit_spans(members: int) -> Spans:
    """A set of bytes as spans."""
    if members == ALL_BYTES:
        return (Span(0, 255),)
    found, low = [], 0
    while members >> low:
        low += ((members >> low) & -(members >> low)).bit_length() - 1
        rest = ~(members >> low)
        high = low + (rest & -rest).bit_length() - 2
        found.append(Span(low, high))
        low = high + 1
    return tuple(found)


def _contains(span: Span, value: int) -> bool:
    return span.low <= value <= span.high


def _measure_span(span: Span) -> tuple[int, int]:
    return span.low, span.high - span.low


def _make_span(low: int, width: int) -> Span:
    return Span(low, low + width)
