"""IP protocols and ICMP types by the names that access lists use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family

ICMP, TCP, UDP, IPV6_FRAGMENT, ICMPV6, SCTP, UDPLITE = 1, 6, 17, 44, 58, 132, 136

_NUMBERS = {
    "hopopt": 0, "icmp": ICMP, "igmp": 2, "ipip": 4, "ipencap": 4, "tcp": TCP, "egp": 8, "igp": 9, "udp": UDP,
    "dccp": 33, "ipv6": 41, "ipv6-frag": IPV6_FRAGMENT, "rsvp": 46, "gre": 47, "esp": 50, "ah": 51,
    "icmpv6": ICMPV6, "ipv6-icmp": ICMPV6, "icmp6": ICMPV6, "ipv6-nonxt": 59, "eigrp": 88, "ospf": 89, "pim": 103,
    "ipcomp": 108, "vrrp": 112, "l2tp": 115, "sctp": SCTP, "udplite": UDPLITE,
}  # fmt: skip
NUMBERS: Mapping[str, int] = MappingProxyType(_NUMBERS)
NAMES: Mapping[int, str] = MappingProxyType({number: name for name, number in reversed(_NUMBERS.items())})

WITH_PORTS = frozenset({TCP, UDP, SCTP})
"""Protocols whose ports every data plane of ours can match."""


def parse_protocol(text: str) -> int:
    """Read a protocol's name or number, 0..255. Raises BadInput for any other word."""
    lowered = text.lower()
    if lowered in NUMBERS:
        return NUMBERS[lowered]
    if text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= 255:
        return int(text)
    raise BadInput(f"'{text}' is not a protocol: give a name such as tcp or a number 0..255")


def format_protocol(number: int) -> str:
    """A protocol's name, or its number where it has none here."""
    return NAMES.get(number, str(number))


def only_family(protocol: int | None) -> Family | None:
    """Return a protocol's only family: IPv4 for ICMP, IPv6 for ICMPv6, else None."""
    return _ONLY_FAMILY.get(protocol) if protocol is not None else None


_ONLY_FAMILY = {ICMP: Family.IPV4, ICMPV6: Family.IPV6}
