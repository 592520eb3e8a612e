"""A box of packet space said in rules: what readers of foreign formats end with.

Readers think in boxes (`policy/space/`), where negations, jumps and exceptions are plain set arithmetic; rules are
narrower than boxes: one protocol each, one ICMP type, one match of TCP flags. So one box becomes one or more rules,
whose union is the box. All but one thing can be said exactly:

    "Whole packets and first fragments only, whatever they carry" (`! -f`, `-m icmp` with any type). A rule leaves later
    fragments out only by looking past the IP header. TCP, UDP and SCTP have ports to split in two halves; for the
    rest the rule is marked `catches_fragments`, and the list around it decides what that means.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix, everything
from orchestrator.policy.dscp import EVERY_CODE_POINT
from orchestrator.policy.fields import OWN_ICMP
from orchestrator.policy.model import Direction
from orchestrator.policy.ports import EVERY_PORT, HIGHEST_PORT, PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, IPV6_FRAGMENT, WITH_PORTS
from orchestrator.policy.space import ALL_ADDRESSES, ALL_BYTES, ALL_PORTS, LATER, WHOLE, Box
from orchestrator.policy.spans import Spans
from orchestrator.policy.tcpflags import ESTABLISHED_SET, FlagMatch, flag_matches_of

MOST_RULES = 1024
"""A box that takes more rules than this is refused."""

MOST_PREFIXES = 65_536
"""A side of a rule with more prefixes than this is refused."""

NO_PACKETS: Mapping[Family, frozenset[int]] = MappingProxyType(
    {Family.IPV4: frozenset({ICMPV6}), Family.IPV6: frozenset({ICMP, 0, 43, 51, 60})}
)
"""Protocols that no packet has: the other version's ICMP, which no host takes, and IPv6's extension headers, for the
protocol of a packet is what stands behind them."""

_LOWER_HALF, _UPPER_HALF = (PortRange(0, 32767),), (PortRange(32768, HIGHEST_PORT),)


@dataclass(frozen=True, slots=True)
class Match:
    """The matching half of a rule, in the words of `Rule`.

    `catches_fragments`: the rule matches later fragments too, though the box it stands for does not hold them.
    """

    protocol: int | None
    source: Addresses
    destination: Addresses
    source_ports: tuple[PortRange, ...] = EVERY_PORT
    destination_ports: tuple[PortRange, ...] = EVERY_PORT
    icmp_type: int | None = None
    icmp_code: int | None = None
    established: bool = False
    tcp_flags: FlagMatch | None = None
    fragments: bool = False
    dscp: int | None = None
    catches_fragments: bool = False

    def rule_attributes(self) -> dict[str, Any]:
        """The attributes of the rule that matches the same."""
        return dict(zip(_RULE_ATTRIBUTES, _ASKED(self), strict=True))


_RULE_ATTRIBUTES = tuple(each.name for each in fields(Match) if each.name != "catches_fragments")
_ASKED = attrgetter(*_RULE_ATTRIBUTES)


def matches_of(box: Box, direction: Direction) -> tuple[Match, ...]:
    """The rules' matches whose union is the box (but for `catches_fragments`). Raises TooLarge beyond MOST_RULES.

    Protocols that no packet of the box' version has (NO_PACKETS) are left out; a box of nothing else gives no match.
    """
    source, destination = _sides(box, direction)
    found: list[Match] = []
    for protocol in _protocols(box):
        if protocol not in NO_PACKETS[box.family]:
            found += _of_protocol(box, Match(protocol, source, destination, dscp=_asked_code_points(box)))
        if len(found) > MOST_RULES:
            raise TooLarge(f"it takes more than {MOST_RULES} rules to say this")
    return tuple(found)


def prefixes_of(spans: Spans, family: Family) -> tuple[Prefix, ...]:
    """The shortest list of prefixes that makes up the spans. Raises TooLarge beyond MOST_PREFIXES."""
    found: list[Prefix] = []
    for low, high in spans:
        found += _make_prefixes(low, high, family)
        if len(found) > MOST_PREFIXES:
            raise TooLarge(f"it takes more than {MOST_PREFIXES} prefixes to say this")
    return tuple(found)


def _protocols(box: Box) -> tuple[int | None, ...]:
    """The protocols to name, one rule each; None stands for all of them."""
    named = box.protocols
    if box.family is Family.IPV6 and box.fragments == LATER:
        return (None,)
    if box.family is Family.IPV6 and box.fragments == WHOLE:
        named |= 1 << IPV6_FRAGMENT  # which whole packets do not have
    if named == ALL_BYTES:
        return (None,)
    return tuple(number for number in range(256) if box.protocols >> number & 1)


def _asked_code_points(box: Box) -> int | None:
    return None if box.dscp == EVERY_CODE_POINT else box.dscp


def _of_protocol(box: Box, base: Match) -> list[Match]:
    """The matches of a box for one of its protocols (or all of them: None)."""
    if box.fragments != WHOLE:
        return [replace(base, fragments=box.fragments == LATER)]
    ported = base.protocol in WITH_PORTS
    if ported and (box.tcp_flags, box.source_ports, box.destination_ports) != (ALL_BYTES, ALL_PORTS, ALL_PORTS):
        return _match_ports_and_flags(box, base)
    if base.protocol == OWN_ICMP[box.family] and (box.icmp_types, box.icmp_codes) != (ALL_BYTES, ALL_BYTES):
        return _match_icmp(box, base)
    if box.family is Family.IPV6 and base.protocol is not None:
        return [base]  # its later fragments have another protocol
    if ported:
        return [replace(base, source_ports=half) for half in (_LOWER_HALF, _UPPER_HALF)]
    return [replace(base, catches_fragments=True)]


def _match_icmp(box: Box, base: Match) -> list[Match]:
    codes: list[int | None] = [None] if box.icmp_codes == ALL_BYTES else [*_list_members(box.icmp_codes)]
    if box.icmp_types.bit_count() * len(codes) > MOST_RULES:
        raise TooLarge(f"it takes more than {MOST_RULES} rules to say this")
    return [replace(base, icmp_type=kind, icmp_code=code) for kind in _list_members(box.icmp_types) for code in codes]


def _match_ports_and_flags(box: Box, base: Match) -> list[Match]:
    source_ports, destination_ports = _make_port_ranges(box.source_ports), _make_port_ranges(box.destination_ports)
    ported = replace(base, source_ports=source_ports, destination_ports=destination_ports)
    if box.tcp_flags == ESTABLISHED_SET:
        return [replace(ported, established=True)]
    return [replace(ported, tcp_flags=flags) for flags in flag_matches_of(box.tcp_flags)] or [ported]


def _sides(box: Box, direction: Direction) -> tuple[Addresses, Addresses]:
    """Source and destination as a rule names them.

    On the tenant's own side the full set stays `any`, for there a prefix must be the tenant's own; the far side then
    names the IP version, unless the own side does it already.
    """
    source, destination = _make_addresses(box.source, box.family), _make_addresses(box.destination, box.family)
    own, far = (destination, source) if direction is Direction.INGRESS else (source, destination)
    if own.is_any and far.is_any:
        far = Addresses((everything(box.family),))
    return (far, own) if direction is Direction.INGRESS else (own, far)


@functools.lru_cache(maxsize=4096)
def _make_addresses(spans: Spans, family: Family) -> Addresses:
    return ANY if spans == ALL_ADDRESSES[family] else Addresses(prefixes_of(spans, family))


@functools.lru_cache(maxsize=4096)
def _make_prefixes(low: int, high: int, family: Family) -> tuple[Prefix, ...]:
    found = []
    while low <= high:
        aligned = (low & -low).bit_length() - 1 if low else family.bits
        size = min(aligned, (high - low + 1).bit_length() - 1)
        found.append(Prefix(family, low, family.bits - size))
        low += 1 << size
    return tuple(found)


def _make_port_ranges(spans: Spans) -> tuple[PortRange, ...]:
    return EVERY_PORT if spans == ALL_PORTS else tuple(PortRange(low, high) for low, high in spans)


def _list_members(bits: int) -> Iterator[int]:
    return (number for number in range(256) if bits >> number & 1)
