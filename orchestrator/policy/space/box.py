"""A box of packet space: what it holds, and what is left of one when another is cut out (see the package's text)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import NamedTuple

from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.protocols import IPV6_FRAGMENT
from orchestrator.policy.space.witness import (
    PLAIN_ADDRESS,
    PLAIN_FLAGS,
    PLAIN_PORT,
    PLAIN_PROTOCOLS,
    PLAIN_SOURCE_PORT,
    first_of,
    plain,
    possible,
)
from orchestrator.policy.spans import Span, Spans

WHOLE, LATER = 1, 2
"""Fragment classes as bits: a whole packet or first fragment, which shows its transport header; a later fragment."""

ALL_BYTES = (1 << 256) - 1
ALL_PORTS: Spans = (Span(0, HIGHEST_PORT),)
ALL_ADDRESSES: Mapping[Family, Spans] = {family: (Span(0, (1 << family.bits) - 1),) for family in Family}
_FRAGMENT_HEADER = 1 << IPV6_FRAGMENT
OTHER_AXIS = "a set of bits and a set of spans are not of the same axis"


class Box(NamedTuple):
    """A set of packets of one family: every combination of one member from each axis (see the package's text)."""

    family: Family
    fragments: int = WHOLE | LATER
    protocols: int = ALL_BYTES
    icmp_types: int = ALL_BYTES
    icmp_codes: int = ALL_BYTES
    tcp_flags: int = ALL_BYTES
    source: Spans = ALL_ADDRESSES[Family.IPV4]
    destination: Spans = ALL_ADDRESSES[Family.IPV4]
    source_ports: Spans = ALL_PORTS
    destination_ports: Spans = ALL_PORTS

    def intersect(self, other: Box) -> Box | None:
        """The packets in both; None if there are none."""
        if self.family is not other.family:
            return None
        box = Box(
            self.family,
            self.fragments & other.fragments,
            self.protocols & other.protocols,
            self.icmp_types & other.icmp_types,
            self.icmp_codes & other.icmp_codes,
            self.tcp_flags & other.tcp_flags,
            spans.intersect(self.source, other.source),
            spans.intersect(self.destination, other.destination),
            spans.intersect(self.source_ports, other.source_ports),
            spans.intersect(self.destination_ports, other.destination_ports),
        )
        return settled(box)

    def overlaps(self, other: Box) -> bool:
        """Whether some packet is in both."""
        return (
            self.family is other.family
            and bool(self.protocols & other.protocols and self.fragments & other.fragments)
            and spans.meet(self.destination, other.destination)
            and spans.meet(self.source, other.source)
            and self.intersect(other) is not None
        )

    def contains(self, other: Box) -> bool:
        """Whether every packet of `other` is in this box."""
        return self.family is other.family and all(_covers(self[axis], other[axis]) for axis in SETS)

    def minus(self, other: Box) -> tuple[Box, ...]:
        """The packets of this box that are not in `other`, as disjoint boxes, at most one for each axis."""
        common = self.intersect(other)
        if common is None:
            return (self,)
        pieces = []
        rest = self
        for axis in SETS:
            outside = _without(self[axis], common[axis])
            if outside:
                piece = settled(with_axis(rest, axis, outside))
                if piece is not None:
                    pieces.append(piece)
                rest = with_axis(rest, axis, common[axis])
        return tuple(pieces)

    def holds(self, packet: Packet) -> bool:
        """Whether a packet is in the box."""
        return (
            self.family is packet.family
            and bool(self.fragments & (LATER if packet.later_fragment else WHOLE))
            and bool(self.protocols >> packet.protocol & 1)
            and bool(self.icmp_types >> packet.icmp_type & 1)
            and bool(self.icmp_codes >> packet.icmp_code & 1)
            and bool(self.tcp_flags >> packet.tcp_flags & 1)
            and spans.holds(self.source, packet.source)
            and spans.holds(self.destination, packet.destination)
            and spans.holds(self.source_ports, packet.source_port)
            and spans.holds(self.destination_ports, packet.destination_port)
        )

    def witness(self) -> Packet:
        """One packet of the box, as plain a one as there is: whole rather than a fragment, tcp rather than rare."""
        later = not self.fragments & WHOLE
        protocol = first_of(self.protocols & ~(_FRAGMENT_HEADER if self._both_kinds else 0), PLAIN_PROTOCOLS)
        return possible(
            Packet(
                family=self.family,
                source=plain(self.source, PLAIN_ADDRESS[self.family]),
                destination=plain(self.destination, PLAIN_ADDRESS[self.family]),
                protocol=protocol,
                source_port=plain(self.source_ports, PLAIN_SOURCE_PORT),
                destination_port=plain(self.destination_ports, PLAIN_PORT),
                icmp_type=first_of(self.icmp_types),
                icmp_code=first_of(self.icmp_codes),
                tcp_flags=first_of(self.tcp_flags, PLAIN_FLAGS),
                later_fragment=later,
            )
        )

    def size(self) -> int:
        """How many combinations of members the box has: for comparing boxes, not for counting packets."""
        return prod(axis.bit_count() if isinstance(axis, int) else spans.size(axis) for axis in self[1:])

    @property
    def _both_kinds(self) -> bool:
        """An IPv6 box of whole packets and later fragments alike: protocol 44 is there for the latter only."""
        return self.family is Family.IPV6 and self.fragments == WHOLE | LATER


SETS = range(1, len(Box._fields))
"""The places of the axes in a box."""


def remaining(boxes: Iterable[Box], others: Iterable[Box]) -> tuple[Box, ...]:
    """The packets of some boxes that are in none of the others; of disjoint boxes, disjoint boxes."""
    pieces = tuple(boxes)
    for other in others:
        pieces = tuple(part for piece in pieces for part in piece.minus(other))
    return pieces


def everything(family: Family) -> Box:
    """Every packet of one IP version."""
    return Box(family, source=ALL_ADDRESSES[family], destination=ALL_ADDRESSES[family])


def _covers(outer: int | Spans, inner: int | Spans) -> bool:
    """Whether one axis' set contains another's, both kept the same way."""
    if isinstance(outer, int) or isinstance(inner, int):
        return not _without(inner, outer)
    return spans.covers(outer, inner)


def _without(left: int | Spans, right: int | Spans) -> int | Spans:
    """One axis' set less another's, both kept the same way."""
    if isinstance(left, int) and isinstance(right, int):
        return left & ~right
    if isinstance(left, int) or isinstance(right, int):
        raise TypeError(OTHER_AXIS)
    return () if left == right else spans.minus(left, right)


def with_axis(box: Box, axis: int, members: int | Spans) -> Box:
    """The box with the set of one axis replaced."""
    return Box._make((*box[:axis], members, *box[axis + 1 :]))


def settled(box: Box) -> Box | None:
    """The box without the packets that do not exist; None if nothing is left."""
    if not all(box):
        return None
    if box.family is Family.IPV4:
        return box
    fragments, protocols = box.fragments, box.protocols
    if not protocols & _FRAGMENT_HEADER:
        fragments &= WHOLE
    elif protocols == _FRAGMENT_HEADER:
        fragments &= LATER
    if fragments == WHOLE:
        protocols &= ~_FRAGMENT_HEADER
    elif fragments == LATER:
        protocols &= _FRAGMENT_HEADER
    if not fragments or not protocols:
        return None
    return box._replace(fragments=fragments, protocols=protocols)
