"""A box of packet space, subtraction of boxes, and rules as boxes.

See the package's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from operator import and_, attrgetter
from typing import Any, NamedTuple, TypeAlias

from orchestrator.policy import spans
from orchestrator.policy.addresses import Addresses, Family
from orchestrator.policy.dscp import EVERY_CODE_POINT
from orchestrator.policy.fields import BITS_AXES, CARRIED, FIELDS, FRAGMENTS, PROTOCOL, SPAN_AXES, Kind, MatchField
from orchestrator.policy.model import AddressGroup, Packet, Rule, families, members
from orchestrator.policy.ports import EVERY_PORT, HIGHEST_PORT, PortRange
from orchestrator.policy.protocols import IPV6_FRAGMENT
from orchestrator.policy.spans import Span, Spans
from orchestrator.policy.tcpflags import FlagMatch

WHOLE, LATER = 1, 2
"""Fragment classes as bits: a whole packet or first fragment, which shows its transport header; a later fragment."""

ALL_BYTES = (1 << 256) - 1
ALL_PORTS: Spans = (Span(0, HIGHEST_PORT),)
ALL_ADDRESSES: Mapping[Family, Spans] = {family: (Span(0, (1 << family.bits) - 1),) for family in Family}
_FRAGMENT_HEADER = 1 << IPV6_FRAGMENT
OTHER_AXIS = "a set of bits and a set of spans are not of the same axis"


class Box(NamedTuple):
    """A set of packets of one family: the product of one set for each axis.

    See the package's text.
    """

    family: Family
    fragments: int = WHOLE | LATER
    protocols: int = ALL_BYTES
    icmp_types: int = ALL_BYTES
    icmp_codes: int = ALL_BYTES
    tcp_flags: int = ALL_BYTES
    dscp: int = EVERY_CODE_POINT
    source: Spans = ALL_ADDRESSES[Family.IPV4]
    destination: Spans = ALL_ADDRESSES[Family.IPV4]
    source_ports: Spans = ALL_PORTS
    destination_ports: Spans = ALL_PORTS

    @property
    def icmp(self) -> tuple[int, int]:
        """The sets of ICMP types and codes."""
        return self.icmp_types, self.icmp_codes

    @property
    def sets(self) -> tuple[Any, ...]:
        """The set on each axis (bits or spans), in the order of `FIELDS`."""
        return self[1:]

    def intersect(self, other: Box) -> Box | None:
        """The packets in both; None if there are none."""
        if self.family is not other.family:
            return None
        mine, theirs = self.sets, other.sets
        bits = map(and_, mine[:_FIRST_SPANS], theirs[:_FIRST_SPANS])
        both = map(spans.intersect, mine[_FIRST_SPANS:], theirs[_FIRST_SPANS:])
        return settle_box(Box._make((self.family, *bits, *both)))

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
        """Return this box without `other`, as disjoint boxes, at most one an axis."""
        common = self.intersect(other)
        if common is None:
            return (self,)
        pieces = []
        rest = self
        for axis in SETS:
            outside = _without(self[axis], common[axis])
            if outside:
                piece = settle_box(with_axis(rest, axis, outside))
                if piece is not None:
                    pieces.append(piece)
                rest = with_axis(rest, axis, common[axis])
        return tuple(pieces)

    def holds(self, packet: Packet) -> bool:
        """Whether a packet is in the box."""
        return (
            self.family is packet.family
            and all(map(_has_member, self.sets[:_FIRST_SPANS], _BIT_VALUES(packet)))
            and all(map(spans.holds, self.sets[_FIRST_SPANS:], _SPAN_VALUES(packet)))
        )

    def witness(self) -> Packet:
        """Return a plain packet of the box: whole, of TCP, if the box has one."""
        box = self
        if self._both_kinds:
            box = self._replace(protocols=self.protocols & ~_FRAGMENT_HEADER)
        values: dict[str, Any] = dict(zip(_NAMES, map(plain, box.sets, _SHOWN[self.family]), strict=True))
        values[FRAGMENTS.name] = not self.fragments & WHOLE
        return possible(Packet(self.family, **values))

    def size(self) -> int:
        """How many combinations of members the box has: for comparing boxes, not for counting packets."""
        return prod(axis.bit_count() if isinstance(axis, int) else spans.size(axis) for axis in self[1:])

    @property
    def _both_kinds(self) -> bool:
        """Return whether an IPv6 box has whole packets and later fragments.

        Protocol 44 is there for the latter only.
        """
        return self.family is Family.IPV6 and self.fragments == WHOLE | LATER


SETS = range(1, len(Box._fields))
"""The places of the axes in a box: those of `FIELDS`, one on."""

_FULL = {
    family: {
        field: (Span(0, (1 << bits) - 1),) if field.is_spans else (1 << (1 << bits)) - 1
        for field, bits in ((field, field.bits[family]) for field in FIELDS)
    }
    for family in Family
}

_FIRST_SPANS = len(BITS_AXES)
"""The place among a box's sets of the first one that is kept as spans; all behind it are."""

_BIT_VALUES = attrgetter(*(field.name for field in BITS_AXES))
_SPAN_VALUES = attrgetter(*(field.name for field in SPAN_AXES))
"""The values of a packet's fields, in the order of a box's axes."""

_NAMES = tuple(field.name for field in FIELDS)
_SHOWN = {family: tuple(field.shown[family] for field in FIELDS) for family in Family}


def remaining(boxes: Iterable[Box], others: Iterable[Box]) -> tuple[Box, ...]:
    """Return the packets of some boxes outside others; disjoint if the boxes are."""
    pieces = tuple(boxes)
    for other in others:
        pieces = tuple(part for piece in pieces for part in piece.minus(other))
    return pieces


def full_set(field: MatchField, family: Family) -> int | Spans:
    """The set of every value of a field, as a box keeps it."""
    return _FULL[family][field]


def everything(family: Family) -> Box:
    """Every packet of one IP version."""
    return Box(family, source=ALL_ADDRESSES[family], destination=ALL_ADDRESSES[family])


def _has_member(members: Any, value: int) -> int:
    return int(members) >> value & 1


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


def settle_box(box: Box) -> Box | None:
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


def find_uncovered(box: Box, covers: Sequence[Box]) -> Packet | None:
    """A packet of `box` that none of `covers` holds; None if together they cover it."""
    return search(box, lambda packet: next((cover for cover in covers if cover.holds(packet)), None))


def search(box: Box, ruled_out: Callable[[Packet], Box | None]) -> Packet | None:
    """A packet of `box` for which `ruled_out` gives no box; None if there is none.

    `ruled_out` gives a box that holds the packet it is asked about and nothing that is searched for. Depth first, led
    by packets: take a packet of what is left, cut away the box that rules it out, go on with the pieces. Where there is
    something to find, the first packets find it; only a search in vain pays for all the pieces.
    """
    pieces = [box]
    while pieces:
        piece = pieces.pop()
        packet = piece.witness()
        cut = ruled_out(packet)
        if cut is None:
            return packet
        pieces += reversed(piece.minus(cut))
    return None


def merge_boxes(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """Merge boxes that differ on one axis only, until none do; they may overlap.

    Not always the fewest possible (that is set cover), but what was cut along one axis after the other comes together.
    """
    found = list(boxes)
    before = len(found) + 1
    while len(found) < before:
        before = len(found)
        for axis in reversed(SETS):
            groups: dict[tuple[object, ...], list[Box]] = {}
            for box in found:
                groups.setdefault((*box[:axis], *box[axis + 1 :]), []).append(box)
            found = [_unite_boxes(boxes, axis) for boxes in groups.values()]
        found = _halves_joined(found)
    return tuple(found)


def _unite_boxes(boxes: Sequence[Box], axis: int) -> Box:
    """Return boxes that differ on one axis only as one."""
    if len(boxes) == 1:
        return boxes[0]
    sets = [box[axis] for box in boxes]
    bits, members = 0, list[Span]()
    for each in sets:
        if isinstance(each, int):
            bits |= each
        else:
            members += each
    if bits and members:
        raise TypeError(OTHER_AXIS)
    return with_axis(boxes[0], axis, spans.union(members) if members else bits)


def _halves_joined(boxes: Iterable[Box]) -> list[Box]:
    """Join IPv6 whole packets and later fragments, which differ on two axes."""
    found = set(boxes)
    for later in [box for box in found if box.family is Family.IPV6 and box.fragments == LATER]:
        whole = next((box for box in found if box.fragments == WHOLE and box[3:] == later[3:]), None)
        if whole is not None and whole.family is Family.IPV6:
            found -= {later, whole}
            found.add(whole._replace(fragments=WHOLE | LATER, protocols=whole.protocols | later.protocols))
    return sorted(found)


StandIn: TypeAlias = "Spans | int"

_FEW = 16
"""A set of up to so many spans stands for itself."""


class StandIns:
    """Keys that are equal exactly where sets, or boxes, are; good among themselves.

    A group of thousands of prefixes is a tuple of thousands of spans, and each dict that has it for a key goes through
    all of it. But rules that name one group have the same object, so it is gone through once.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, Spans]] = {}
        """Sets by identity, with their numbers. They are kept, so that no other comes to have the identity."""
        self._numbers: dict[Spans, int] = {}

    def of(self, members: Spans) -> StandIn:
        """Return the stand-in of a set."""
        if len(members) <= _FEW:
            return members
        seen = self._seen.get(id(members))
        if seen is None:
            seen = self._seen[id(members)] = self._numbers.setdefault(members, len(self._numbers)), members
        return seen[0]

    def of_box(self, box: Box) -> tuple[object, ...]:
        """Return the stand-in of a box."""
        sets = box.source, box.destination, box.source_ports, box.destination_ports
        if max(map(len, sets)) <= _FEW:
            return box
        return *box[: -len(sets)], *map(self.of, sets)


def plain(members: int | Spans, preferred: Sequence[int]) -> int:
    """Return a member of a non-empty set: a preferred one if any, else the lowest.

    Of spans it is a preferred one only where they begin at zero: a set that somebody narrowed shows its own end.
    """
    if isinstance(members, int):
        return first_of(members, preferred)
    wide = members[0].low == 0
    return next((each for each in preferred if wide and spans.holds(members, each)), members[0].low)


def first_of(bits: int, preferred: Sequence[int] = ()) -> int:
    """Return a member of a non-empty bit set: the first preferred, else the lowest."""
    for member in preferred:
        if bits >> member & 1:
            return member
    return (bits & -bits).bit_length() - 1


def possible(packet: Packet) -> Packet:
    """Return the packet with zeros in absent fields, as `Packet` requires.

    IPv6 with protocol 44 becomes a later fragment, and an IPv6 later fragment gets protocol 44.
    """
    later, protocol = packet.later_fragment, packet.protocol
    if packet.family is Family.IPV6:
        later = later or protocol == IPV6_FRAGMENT
        protocol = IPV6_FRAGMENT if later else protocol
    absent = _ABSENT[packet.family][_LATER if later else protocol]
    if protocol == packet.protocol and later == packet.later_fragment and not any(absent.values_of(packet)):
        return packet
    values: dict[str, Any] = dict(zip(_NAMES, _VALUES(packet), strict=True))
    return Packet(packet.family, **values | absent.zeros | {PROTOCOL.name: protocol, FRAGMENTS.name: later})


_VALUES = attrgetter(*_NAMES)


class _Absent(NamedTuple):
    """The fields absent from packets of a kind: their reader, and zeros for them."""

    values_of: Callable[[Packet], Iterable[int]]
    zeros: dict[str, Any]

    @classmethod
    def of(cls, names: Sequence[str]) -> _Absent:
        """Return a reader of the named fields, and zeros for them."""
        return cls(attrgetter(*names, *names[-1:]), dict.fromkeys(names, 0))  # of a single name it gives no tuple


_LATER = 256
_ABSENT = {
    family: [
        _Absent.of([field.name for field in CARRIED if not field.is_carried(family, protocol)])
        for protocol in range(_LATER)
    ]
    + [_Absent.of([field.name for field in CARRIED])]
    for family in Family
}
"""For each IP version: of whole packets by protocol, and of later fragments last."""


def boxes_of(rule: Rule, groups: Mapping[str, AddressGroup]) -> tuple[Box, ...]:
    """Make boxes of the packets that a rule matches, at most one a version."""
    found = (_make_box(rule, groups, family) for family in families(rule, groups))
    return tuple(box for box in found if box is not None)


def _make_box(rule: Rule, groups: Mapping[str, AddressGroup], family: Family) -> Box | None:
    asked = zip(_ASKED(rule), _EVERY, _FULL[family].values(), _READERS, strict=True)
    sets = [full if each is every else set_of(each, groups, family) for each, every, full, set_of in asked]
    if rule.looks_past_the_ip_header:
        sets[_FRAGMENTS] = WHOLE
    return settle_box(Box._make((family, *sets)))


def side(addresses: Addresses, groups: Mapping[str, AddressGroup], family: Family) -> Spans:
    """The addresses of an IP version that one side of a rule names."""
    return ALL_ADDRESSES[family] if addresses.is_any else members(addresses, groups, family)


def _make_port_spans(ports: tuple[PortRange, ...]) -> Spans:
    return ALL_PORTS if ports == EVERY_PORT else tuple(Span(ports.low, ports.high) for ports in ports)


@lru_cache(maxsize=1024)
def _flag_set(matches: tuple[FlagMatch, ...]) -> int:
    """Return the flag bytes that one of the matches holds for; all without a match."""
    if not matches:
        return ALL_BYTES
    return sum(1 << flags for flags in range(256) if any(match.holds(flags) for match in matches))


_SET_OF_KIND: Mapping[Kind, Callable[[Any, Mapping[str, AddressGroup], Family], int | Spans]] = {
    Kind.PREFIXES: side,
    Kind.RANGES: lambda asked, _groups, _family: _make_port_spans(asked),
    Kind.NUMBER: lambda asked, _groups, _family: 1 << int(asked),
    Kind.BITS: lambda asked, _groups, _family: _flag_set(asked),
    Kind.SET: lambda asked, _groups, _family: int(asked),
    Kind.LATER: lambda _asked, _groups, _family: LATER,
}
"""The set of values that a rule asks for, as a box keeps it, where it does not ask for every value."""

_ASKED = attrgetter(*(field.attribute for field in FIELDS))
_EVERY = tuple(field.every for field in FIELDS)
_READERS = tuple(_SET_OF_KIND[field.kind] for field in FIELDS)
_FRAGMENTS = FIELDS.index(FRAGMENTS)
