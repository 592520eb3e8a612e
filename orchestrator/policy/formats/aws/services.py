"""Protocols, ports and ICMP types as the EC2 interface writes them, in both directions.

security group     IpProtocol "tcp" | "6" | "-1", FromPort and ToPort: ports, or ICMP's type and code, -1 for all
network ACL        Protocol "6" | "-1", PortRange {From, To}: ports; IcmpTypeCode {Type, Code}, -1 for all
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from orchestrator.errors import BadInput
from orchestrator.policy.formats.json_node import Node
from orchestrator.policy.formats.lineboxes import Axes, icmp_axes
from orchestrator.policy.formats.one_sided import Service
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP
from orchestrator.policy.space import WHOLE
from orchestrator.policy.spans import Span

EVERY = "-1"
_NAMES: Mapping[str, int] = MappingProxyType({"tcp": TCP, "udp": UDP, "icmp": ICMP, "icmpv6": ICMPV6})
_WORDS: Mapping[int, str] = MappingProxyType({number: name for name, number in _NAMES.items()})
PORTED = frozenset({TCP, UDP})
"""The protocols whose ports AWS looks at."""

_PORTS = "destination_ports"
_EVERY_PORT = (0, HIGHEST_PORT)


def protocol(node: Node) -> int | None:
    """A protocol by name or number, None for all. Raises BadInput."""
    word = node.text()
    if word == EVERY:
        return None
    if word in _NAMES:
        return _NAMES[word]
    if word.isascii() and word.isdigit() and len(word) <= 3 and int(word) <= 255:
        return int(word)
    raise node.fault(f"{node.shown()} is not a protocol: tcp, udp, icmp, icmpv6, a number 0..255, or -1")


def axes_of(number: int | None, low: Node | None, high: Node | None) -> Axes:
    """Return the axes that a line narrows.

    `low` and `high` are ports, or an ICMP type and code; other protocols have neither.

    Only ICMPv6 may do without them, and means all. Raises BadInput, without a place, where they are missing or make no
    sense.
    """
    if number is None:
        return {}
    axes: Axes = {"protocols": 1 << number}
    if number in PORTED:
        first, last = _value(low, HIGHEST_PORT), _value(high, HIGHEST_PORT)
        if first is None or last is None or first > last:
            raise BadInput("its ports are missing or out of order")
        return axes if (first, last) == _EVERY_PORT else axes | {_PORTS: (Span(first, last),), "fragments": WHOLE}
    if number in (ICMP, ICMPV6):
        if (low is None or high is None) and not (number == ICMPV6 and low is high is None):
            raise BadInput("its ICMP type or code is missing; -1 is all of them")
        kind, code = _value(low, 255), _value(high, 255)
        if kind is None and code is not None:
            raise BadInput("an ICMP code means nothing without its type")
        if kind is not None:
            axes |= icmp_axes(kind, code)
    return axes


def _value(node: Node | None, highest: int) -> int | None:
    """A port, type or code; None for -1 or none at all."""
    found = -1 if node is None else node.number(-1, highest)
    return None if found == -1 else found


def ends_of(service: Service) -> tuple[int, int]:
    """Return a service's two ports, or ICMP type and code; -1 means all."""
    if service.low is None and service.protocol in PORTED:
        return _EVERY_PORT
    return (-1 if service.low is None else service.low), (-1 if service.high is None else service.high)


def word_of(number: int | None) -> str:
    """A protocol as a security group names it."""
    return EVERY if number is None else _WORDS.get(number, str(number))
