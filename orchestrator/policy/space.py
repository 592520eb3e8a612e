"""Packet space: sets of packets as boxes, and exact arithmetic on them.

What a question about a list ("is this rule shadowed?", "what does this change open?") asks is always set arithmetic on
packets: intersect, subtract, is anything left. Packets are points in a space with one axis for each field a rule can
look at, and what a rule matches is a *box*: one set per axis, every combination of members allowed.

    axis                 set kept as             full set
    fragments            bits                    WHOLE | LATER        whole or first fragment; later fragment
    protocols            bits, one a number      ALL_BYTES
    icmp_types, _codes   bits                    ALL_BYTES
    tcp_flags            bits, one a flag byte   ALL_BYTES            bit 0x12 is in the set <=> SYN+ACK matches
    source, destination  spans of addresses      the family's
    source_ports, dest.  spans of ports          0-65535

Because an axis holds any set and not just one interval, a rule is one box in each IP version, however many prefixes,
port ranges and flag combinations it lists, and a difference of two boxes has at most one piece for each axis:

          +-----------+                 +-----------+        The pieces are cut one axis after the other, so they
          | a         |                 |   a - b   |        are disjoint. The order is: fragments, protocols, then
          |    +------+----+   a - b    |----+------+        the fields of the transport header. (Here: first by
          |    |  b   |    |    ==>     |    |               height, then by width.)
          +----+------+    |            |    |
               +-----------+            +----+

Which packets there are
    Not every combination of fields is a packet: ICMP has no ports. `Packet` keeps zero where there is no field, and a
    box keeps the *full* set there. Three invariants make this safe; `boxes_of` starts with them and every operation
    keeps them:

    1. A box narrows ports only if its protocols are among tcp, udp and sctp and its fragments are WHOLE; TCP flags only
       for tcp, ICMP types and codes only for the family's own ICMP, WHOLE as well. (Rules are refused otherwise, and a
       difference cuts fragments and protocols first, so what is cut by ports is of one kind.)
    2. An IPv6 later fragment has protocol 44, and nothing else in IPv6 has: `_settled` removes the impossible half
       whenever fragments or protocols were narrowed.
    3. No axis is empty: an empty result is None or is left out, so a box in hand always holds a packet.

    With these, a box is inside another exactly if it is so on every axis, and two boxes are the same set of packets
    exactly if they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from orchestrator.policy import spans
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import AddressGroup, Packet, Rule, families, resolve
from orchestrator.policy.ports import EVERY_PORT, HIGHEST_PORT, PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, IPV6_FRAGMENT, TCP, UDP, WITH_PORTS
from orchestrator.policy.spans import Span, Spans
from orchestrator.policy.tcpflags import FlagMatch

WHOLE, LATER = 1, 2
"""Fragment classes as bits: a whole packet or first fragment, which shows its transport header; a later fragment."""

ALL_BYTES = (1 << 256) - 1
ALL_PORTS: Spans = (Span(0, HIGHEST_PORT),)
ALL_ADDRESSES: Mapping[Family, Spans] = {family: (Span(0, (1 << family.bits) - 1),) for family in Family}
_FRAGMENT_HEADER = 1 << IPV6_FRAGMENT
_OTHER_AXIS = "a set of bits and a set of spans are not of the same axis"
OWN_ICMP = {Family.IPV4: ICMP, Family.IPV6: ICMPV6}


class Box(NamedTuple):
    """A set of packets of one family: every combination of one member from each axis (see the module's text)."""

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
        return _settled(box)

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
        return self.family is other.family and all(_covers(self[axis], other[axis]) for axis in _SETS)

    def minus(self, other: Box) -> tuple[Box, ...]:
        """The packets of this box that are not in `other`, as disjoint boxes, at most one for each axis."""
        common = self.intersect(other)
        if common is None:
            return (self,)
        pieces = []
        rest = self
        for axis in _SETS:
            outside = _without(self[axis], common[axis])
            if outside:
                piece = _settled(_with(rest, axis, outside))
                if piece is not None:
                    pieces.append(piece)
                rest = _with(rest, axis, common[axis])
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
        protocol = _first_of(self.protocols & ~(_FRAGMENT_HEADER if self._both_kinds else 0), PLAIN_PROTOCOLS)
        return possible(
            Packet(
                family=self.family,
                source=_plain(self.source, PLAIN_ADDRESS[self.family]),
                destination=_plain(self.destination, PLAIN_ADDRESS[self.family]),
                protocol=protocol,
                source_port=_plain(self.source_ports, PLAIN_SOURCE_PORT),
                destination_port=_plain(self.destination_ports, PLAIN_PORT),
                icmp_type=_first_of(self.icmp_types),
                icmp_code=_first_of(self.icmp_codes),
                tcp_flags=_first_of(self.tcp_flags, PLAIN_FLAGS),
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


_SETS = range(1, len(Box._fields))
PLAIN_PROTOCOLS = (TCP, UDP, ICMP, ICMPV6)
PLAIN_FLAGS = (0x02, 0x10, 0x12, 0x04, 0x18)
PLAIN_ADDRESS = {Family.IPV4: 0xC0000201, Family.IPV6: 0x20010DB8 << 96 | 1}
PLAIN_SOURCE_PORT, PLAIN_PORT = 49152, 80
"""For witnesses: the packets that a reader has seen before, and addresses that are for documentation."""


def remaining(boxes: Iterable[Box], others: Iterable[Box]) -> tuple[Box, ...]:
    """The packets of some boxes that are in none of the others; of disjoint boxes, disjoint boxes."""
    pieces = tuple(boxes)
    for other in others:
        pieces = tuple(part for piece in pieces for part in piece.minus(other))
    return pieces


def everything(family: Family) -> Box:
    """Every packet of one IP version."""
    return Box(family, source=ALL_ADDRESSES[family], destination=ALL_ADDRESSES[family])


def boxes_of(rule: Rule, groups: Mapping[str, AddressGroup]) -> tuple[Box, ...]:
    """Exactly the packets for which `oracle.matches` holds: at most one box for each IP version."""
    found = (_box(rule, groups, family) for family in families(rule, groups))
    return tuple(box for box in found if box is not None)


def _box(rule: Rule, groups: Mapping[str, AddressGroup], family: Family) -> Box | None:
    fragments = LATER if rule.fragments else WHOLE if rule.looks_past_the_ip_header else WHOLE | LATER
    return _settled(
        Box(
            family=family,
            fragments=fragments,
            protocols=ALL_BYTES if rule.protocol is None else 1 << rule.protocol,
            icmp_types=ALL_BYTES if rule.icmp_type is None else 1 << rule.icmp_type,
            icmp_codes=ALL_BYTES if rule.icmp_code is None else 1 << rule.icmp_code,
            tcp_flags=_flag_set(rule.flag_matches),
            source=_address_spans(rule, "source", groups, family),
            destination=_address_spans(rule, "destination", groups, family),
            source_ports=_port_spans(rule.source_ports),
            destination_ports=_port_spans(rule.destination_ports),
        )
    )


def _address_spans(rule: Rule, side: str, groups: Mapping[str, AddressGroup], family: Family) -> Spans:
    addresses = rule.source if side == "source" else rule.destination
    if addresses.is_any:
        return ALL_ADDRESSES[family]
    named = resolve(addresses, groups, family)
    if len(named) == 1:
        return (Span(named[0].network, named[0].last),)
    return spans.union(Span(prefix.network, prefix.last) for prefix in named)


def _port_spans(ports: tuple[PortRange, ...]) -> Spans:
    return ALL_PORTS if ports == EVERY_PORT else tuple(Span(ports.low, ports.high) for ports in ports)


@lru_cache(maxsize=1024)
def _flag_set(matches: tuple[FlagMatch, ...]) -> int:
    """The set of flag bytes for which one of the matches holds; no match at all looks at nothing."""
    if not matches:
        return ALL_BYTES
    return sum(1 << flags for flags in range(256) if any(match.holds(flags) for match in matches))


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
        raise TypeError(_OTHER_AXIS)
    return () if left == right else spans.minus(left, right)


def _with(box: Box, axis: int, members: int | Spans) -> Box:
    """The box with the set of one axis replaced."""
    return Box._make((*box[:axis], members, *box[axis + 1 :]))


def _settled(box: Box) -> Box | None:
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


def _plain(members: Spans, preferred: int) -> int:
    """The preferred member of a set if the set is large and has it, else the lowest."""
    return preferred if members[0].low == 0 and spans.holds(members, preferred) else members[0].low


def _first_of(bits: int, preferred: Sequence[int] = ()) -> int:
    """A member of a non-empty bit set: the first of `preferred` that is in it, else the lowest."""
    for member in preferred:
        if bits >> member & 1:
            return member
    return (bits & -bits).bit_length() - 1


def possible(packet: Packet) -> Packet:
    """The packet with zeros in the fields that it does not have, as `Packet` wants it.

    IPv6 with protocol 44 becomes a later fragment, and an IPv6 later fragment gets protocol 44.
    """
    later, protocol = packet.later_fragment, packet.protocol
    if packet.family is Family.IPV6:
        later = later or protocol == IPV6_FRAGMENT
        protocol = IPV6_FRAGMENT if later else protocol
    ports = protocol in WITH_PORTS and not later
    icmp = protocol == OWN_ICMP[packet.family] and not later
    return Packet(
        family=packet.family,
        source=packet.source,
        destination=packet.destination,
        protocol=protocol,
        source_port=packet.source_port if ports else 0,
        destination_port=packet.destination_port if ports else 0,
        icmp_type=packet.icmp_type if icmp else 0,
        icmp_code=packet.icmp_code if icmp else 0,
        tcp_flags=packet.tcp_flags if protocol == TCP and not later else 0,
        later_fragment=later,
    )


def uncovered(box: Box, covers: Sequence[Box]) -> Packet | None:
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


def merged(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """The packets of disjoint boxes in fewer boxes: those that differ on one axis only become one, again and again.

    Not always the fewest possible (that is set cover), but what was cut along one axis after the other comes together.
    """
    found = list(boxes)
    before = len(found) + 1
    while len(found) < before:
        before = len(found)
        for axis in reversed(_SETS):
            groups: dict[tuple[object, ...], Box] = {}
            for box in found:
                key = (*box[:axis], *box[axis + 1 :])
                like = groups.get(key)
                groups[key] = box if like is None else _with(like, axis, _together(like[axis], box[axis]))
            found = list(groups.values())
        found = _halves_joined(found)
    return tuple(found)


def _together(left: int | Spans, right: int | Spans) -> int | Spans:
    """Two sets of one axis, kept the same way, as one."""
    if isinstance(left, int) and isinstance(right, int):
        return left | right
    if isinstance(left, int) or isinstance(right, int):
        raise TypeError(_OTHER_AXIS)
    return spans.union((*left, *right))


def _halves_joined(boxes: Iterable[Box]) -> list[Box]:
    """IPv6 whole packets and later fragments differ on two axes at once, fragments and protocols: join them here."""
    found = set(boxes)
    for later in [box for box in found if box.family is Family.IPV6 and box.fragments == LATER]:
        whole = next((box for box in found if box.fragments == WHOLE and box[3:] == later[3:]), None)
        if whole is not None and whole.family is Family.IPV6:
            found -= {later, whole}
            found.add(whole._replace(fragments=WHOLE | LATER, protocols=whole.protocols | later.protocols))
    return sorted(found)
