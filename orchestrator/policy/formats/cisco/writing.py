"""What the writers of routers' and of firewalls' lists have in common: names, remarks, words."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from types import MappingProxyType

from orchestrator.policy.formats.assemble import plain, with_marker
from orchestrator.policy.model import Direction, Rule
from orchestrator.policy.ports import EVERY_PORT, PortRange

NAMES: Mapping[str, Direction] = MappingProxyType(
    {
        "ingress": Direction.INGRESS,
        "ingress6": Direction.INGRESS,
        "egress": Direction.EGRESS,
        "egress6": Direction.EGRESS,
    }
)
"""The names of the lists, with their directions."""

_LONGEST_REMARK = 100


def default_marker(name: str) -> str:
    """The id in the remark above the last line of a list, which says its default."""
    return f"{name}.default"


def remarks(rule: Rule) -> list[str]:
    """A rule's id and description in lines short enough for a remark."""
    return textwrap.wrap(plain(with_marker(rule)), _LONGEST_REMARK)


def port_words(ports: PortRange) -> str:
    """`` eq 80`` or `` range 20 21``; nothing for every port."""
    if ports == EVERY_PORT[0]:
        return ""
    return f" eq {ports.low}" if ports.low == ports.high else f" range {ports.low} {ports.high}"


def icmp_words(rule: Rule) -> str:
    """The type and the code that a rule asks for."""
    if rule.icmp_type is None:
        return ""
    return f" {rule.icmp_type}" if rule.icmp_code is None else f" {rule.icmp_type} {rule.icmp_code}"
