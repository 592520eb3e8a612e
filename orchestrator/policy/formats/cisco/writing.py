"""Names, remarks, words and line ends that IOS and ASA lists share."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from orchestrator.policy.addresses import Family, Prefix, format_address
from orchestrator.policy.formats.assemble import plain, with_marker
from orchestrator.policy.formats.tailor import Limit
from orchestrator.policy.model import Acl, Direction, Rule, RuleId
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
_ONES = 0xFFFFFFFF


def protocol_zero(system: str) -> Limit:
    """The limit of systems for which the protocol number 0 is every protocol."""
    return Limit(
        f"{system} takes the protocol number 0 for every protocol",
        lambda rule: rule.protocol == 0,
        lambda rule: replace(rule, protocol=None),
    )


def default_rule(acl: Acl, name: str, direction: Direction) -> Rule:
    """The last line of a list as a rule."""
    return Rule(RuleId(default_marker(name)), acl.default(direction), direction)


def ends_of(acl: Acl, rule: Rule, family: Family, every: str, *, wildcards: bool) -> Iterator[str]:
    """Yield addresses and ports of every combination of a rule's prefixes and port ranges.

    Of one IP version.

    `every` is the word for every address, `wildcards` says that IPv4 masks are written with ones where a bit is free.
    """
    sources, destinations = (
        [_write_address(prefix, every, wildcards=wildcards) for prefix in acl.prefixes(side, family)]
        for side in (rule.source, rule.destination)
    )
    for source, source_ports, destination, destination_ports in itertools.product(
        sources, map(port_words, rule.source_ports), destinations, map(port_words, rule.destination_ports)
    ):
        yield f"{source}{source_ports} {destination}{destination_ports}"


def _write_address(prefix: Prefix, every: str, *, wildcards: bool) -> str:
    if prefix.length == 0:
        return every
    address, _, _ = str(prefix).partition("/")
    if prefix.length == prefix.family.bits:
        return f"host {address}"
    if prefix.family is Family.IPV6:
        return str(prefix)
    return f"{address} {format_address(Family.IPV4, prefix.mask ^ (_ONES if wildcards else 0))}"


def default_marker(name: str) -> str:
    """Return the id in the remark above the last line, which states the default."""
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
    return "".join(f" {number}" for number in rule.icmp)
