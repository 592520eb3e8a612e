"""Rules as boxes: the step from what somebody wrote to packet space."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from orchestrator.policy.addresses import Addresses, Family
from orchestrator.policy.model import AddressGroup, Rule, families, members
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.space.box import ALL_ADDRESSES, ALL_BYTES, ALL_PORTS, LATER, WHOLE, Box, settled
from orchestrator.policy.spans import Span, Spans
from orchestrator.policy.tcpflags import FlagMatch


def boxes_of(rule: Rule, groups: Mapping[str, AddressGroup]) -> tuple[Box, ...]:
    """Exactly the packets for which `oracle.matches` holds: at most one box for each IP version."""
    found = (_box(rule, groups, family) for family in families(rule, groups))
    return tuple(box for box in found if box is not None)


def _box(rule: Rule, groups: Mapping[str, AddressGroup], family: Family) -> Box | None:
    fragments = LATER if rule.fragments else WHOLE if rule.looks_past_the_ip_header else WHOLE | LATER
    return settled(
        Box(
            family=family,
            fragments=fragments,
            protocols=ALL_BYTES if rule.protocol is None else 1 << rule.protocol,
            icmp_types=ALL_BYTES if rule.icmp_type is None else 1 << rule.icmp_type,
            icmp_codes=ALL_BYTES if rule.icmp_code is None else 1 << rule.icmp_code,
            tcp_flags=_flag_set(rule.flag_matches),
            source=side(rule.source, groups, family),
            destination=side(rule.destination, groups, family),
            source_ports=_port_spans(rule.source_ports),
            destination_ports=_port_spans(rule.destination_ports),
        )
    )


def side(addresses: Addresses, groups: Mapping[str, AddressGroup], family: Family) -> Spans:
    """The addresses of an IP version that one side of a rule names."""
    return ALL_ADDRESSES[family] if addresses.is_any else members(addresses, groups, family)


def _port_spans(ports: tuple[PortRange, ...]) -> Spans:
    return ALL_PORTS if ports == EVERY_PORT else tuple(Span(ports.low, ports.high) for ports in ports)


@lru_cache(maxsize=1024)
def _flag_set(matches: tuple[FlagMatch, ...]) -> int:
    """The set of flag bytes for which one of the matches holds; no match at all looks at nothing."""
    if not matches:
        return ALL_BYTES
    return sum(1 << flags for flags in range(256) if any(match.holds(flags) for match in matches))
