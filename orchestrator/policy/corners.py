"""Packets at the corners of rules, for all laws and checks against the oracle.

Packets drawn evenly from the whole space miss nearly every rule, and never notice two priorities that are swapped. The
edges tell two lists apart: the first and the last value that a rule still matches, the one just outside, the flag that
is not set, the later fragment, and above all the packets that two rules both match.

Everything is listed, nothing is drawn: the same rules give the same packets in the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.fields import BITS_AXES, FIELDS, FRAGMENTS, PROTOCOL, SPAN_AXES, Kind, MatchField
from orchestrator.policy.model import AddressGroup, Direction, Packet, Policy, ReturnTraffic, Rule
from orchestrator.policy.oracle import PATH_MTU_RULES
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP
from orchestrator.policy.space import ALL_BYTES, Box, boxes_of, everything, possible
from orchestrator.policy.spans import Span, Spans, union

NO_GROUPS: Mapping[str, AddressGroup] = MappingProxyType({})
_USUAL_PROTOCOLS = (TCP, UDP, ICMP, ICMPV6, SCTP, 47)
_USUAL = {PROTOCOL: _USUAL_PROTOCOLS}
_USUAL_FLAGS = (0x00, 0x02, 0x10, 0x12, 0x04, 0x01)


def corner_packets(
    rules: Sequence[Rule], groups: Mapping[str, AddressGroup] = NO_GROUPS, *, overlaps: bool = True
) -> tuple[Packet, ...]:
    """Return packets at the corners of every rule and of every two rules' overlap.

    Without repeats.

    For each rule, in each IP version it matches: its lowest and highest corner, and from the lowest corner one field at
    a time moved to its other edges and just outside them. For each overlapping pair: the corners of the overlap alone
    (`overlaps=False` leaves these out: their number grows with the square of the rules). About 30 packets a rule and
    version and 2 a pair. With no rules at all there is still one packet of each version.
    """
    boxes = [box for rule in rules for box in boxes_of(rule, groups)]
    found: dict[Packet, None] = {}
    for box in boxes:
        found.update(dict.fromkeys(around(box)))
    if overlaps:
        for first, second in itertools.combinations(boxes, 2):
            common = first.intersect(second)
            if common is not None and common not in (first, second):
                found.update(dict.fromkeys(corners(common)))
    for family in Family:
        found.setdefault(everything(family).witness())
    return tuple(found)


def policy_packets(policy: Policy) -> tuple[Packet, ...]:
    """Return corner packets of every list of a policy.

    Where a rule says `any` on its own side, the tenant's addresses are used.

    On the far side every packet is also sent from (or to) the first address of each tenant, so that one packet meets
    two lists.
    """
    found: dict[Packet, None] = {}
    somebody = {family: _list_first_addresses(policy, family) for family in Family}
    for packet in corner_packets(policy.operator):
        found[packet] = None
        for ours in somebody[packet.family]:
            found[replace(packet, destination=ours)] = None
    messages = PATH_MTU_RULES if policy.return_traffic is ReturnTraffic.PATH_MTU else ()
    for tenant in policy.tenants:
        for rule in (*tenant.acl.rules, *messages, None):
            for direction in Direction if rule is None else (rule.direction,):
                boxes = _make_everything() if rule is None else boxes_of(rule, tenant.acl.groups)
                for box in _confine_boxes(boxes, tenant.prefixes, direction):
                    found.update(dict.fromkeys(_vary_far_side(box, direction, somebody[box.family])))
    return tuple(found)


def corners(box: Box) -> tuple[Packet, ...]:
    """The lowest and the highest packet of a box, and the plainest one."""
    return tuple(dict.fromkeys((_corner(box, 0), _corner(box, -1), box.witness())))


def around(box: Box) -> Iterator[Packet]:
    """Yield a box's corners, and packets one field away from its lowest corner."""
    yield from corners(box)
    base = _corner(box, 0)
    for field in (*SPAN_AXES, *reversed(BITS_AXES)):
        for value in _edge_values(field, box):
            moved: dict[str, Any] = {field.name: value}
            yield possible(replace(base, **moved))


def _edge_values(field: MatchField, box: Box) -> Iterable[int]:
    """The values at the edges of a box's axis, and next to them."""
    members = getattr(box, field.axis)
    if field.is_spans:
        return _edges(members, (1 << field.bits[box.family]) - 1)
    if field.kind is Kind.LATER:
        return False, True
    if field.kind is Kind.BITS:
        return _choose_flags(members)
    near = _members(members, (1 << field.bits[box.family]) - 1)
    return (*near, *_USUAL_PROTOCOLS) if field is PROTOCOL else near


def _corner(box: Box, end: int) -> Packet:
    """The packet with every field at its lowest (`end` 0) or highest (-1) member."""
    values: dict[str, Any] = {
        field.name: members[end][end] if isinstance(members, tuple) else _find_end(members, end, _USUAL.get(field, ()))
        for field, members in zip(FIELDS, box.sets, strict=True)
    }
    return possible(Packet(box.family, **values | {FRAGMENTS.name: bool(values[FRAGMENTS.name])}))


def _find_end(bits: int, end: int, instead_of_all: tuple[int, ...] = ()) -> int:
    if instead_of_all and bits.bit_count() > len(instead_of_all):
        return instead_of_all[end]
    return bits.bit_length() - 1 if end else (bits & -bits).bit_length() - 1


def _edges(spans: Spans, highest: int) -> list[int]:
    """The ends of the first and the last span and their neighbours outside."""
    ends = {spans[0].low, spans[0].high, spans[-1].low, spans[-1].high}
    near = {spans[0].low - 1, spans[0].high + 1, spans[-1].low - 1, spans[-1].high + 1}
    return sorted(value for value in ends | near if 0 <= value <= highest)


def _members(bits: int, highest: int) -> list[int]:
    """The lowest and highest member of a bit set, and the numbers beside them."""
    low, high = _find_end(bits, 0), _find_end(bits, -1)
    if (low, bits.bit_count()) == (0, highest + 1):
        return [0, highest]
    return [number for number in sorted({low - 1, low, low + 1, high, high + 1}) if 0 <= number <= highest]


def _choose_flags(bits: int) -> tuple[int, ...]:
    if bits == ALL_BYTES:
        return _USUAL_FLAGS[:3]
    return tuple(dict.fromkeys((*_USUAL_FLAGS, _find_end(bits, 0), _find_end(bits, -1))))


def _make_everything() -> tuple[Box, ...]:
    """Return all packets, a box for each IP version."""
    return tuple(everything(family) for family in Family)


def _confine_boxes(boxes: Iterable[Box], prefixes: tuple[Prefix, ...], direction: Direction) -> Iterator[Box]:
    """Yield boxes cut to the tenant's prefixes on its own side, one a prefix."""
    for box in boxes:
        for prefix in prefixes:
            if prefix.family is box.family:
                own = union((Span(prefix.network, prefix.last),))
                whole = everything(box.family)
                limit = (
                    whole._replace(destination=own) if direction is Direction.INGRESS else whole._replace(source=own)
                )
                cut = box.intersect(limit)
                if cut is not None:
                    yield cut


def _vary_far_side(box: Box, direction: Direction, somebody: tuple[int, ...]) -> Iterator[Packet]:
    for packet in around(box):
        yield packet
        for other in somebody:
            if direction is Direction.INGRESS:
                yield replace(packet, source=other)
            else:
                yield replace(packet, destination=other)


def _list_first_addresses(policy: Policy, family: Family) -> tuple[int, ...]:
    firsts = (
        next((prefix.network for prefix in tenant.prefixes if prefix.family is family), None)
        for tenant in policy.tenants
    )
    return tuple(address for address in firsts if address is not None)
