"""Rules as boxes: the step from what somebody wrote to packet space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any

from orchestrator.policy.addresses import Addresses, Family
from orchestrator.policy.fields import FIELDS, FRAGMENTS, Kind
from orchestrator.policy.model import AddressGroup, Rule, families, members
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.space.box import ALL_ADDRESSES, ALL_BYTES, ALL_PORTS, LATER, WHOLE, Box, full_set, settle_box
from orchestrator.policy.spans import Span, Spans
from orchestrator.policy.tcpflags import FlagMatch


def boxes_of(rule: Rule, groups: Mapping[str, AddressGroup]) -> tuple[Box, ...]:
    """Make boxes of the packets that a rule matches, at most one a version."""
    found = (_make_box(rule, groups, family) for family in families(rule, groups))
    return tuple(box for box in found if box is not None)


def _make_box(rule: Rule, groups: Mapping[str, AddressGroup], family: Family) -> Box | None:
    asked = zip(_ASKED(rule), _EVERY, _FULL[family], _SETS, strict=True)
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
    Kind.LATER: lambda _asked, _groups, _family: LATER,
}
"""The set of values that a rule asks for, as a box keeps it, where it does not ask for every value."""

_ASKED = attrgetter(*(field.attribute for field in FIELDS))
_EVERY = tuple(field.every for field in FIELDS)
_FULL = {family: tuple(full_set(field, family) for field in FIELDS) for family in Family}
_SETS = tuple(_SET_OF_KIND[field.kind] for field in FIELDS)
_FRAGMENTS = FIELDS.index(FRAGMENTS)
