"""Rules over address groups without a cross product: conjunctive match.

A rule from 1,000 sources to 100 destinations on ten ports is a million combinations, but only 1,110 facts. Open vSwitch
takes it as facts: each *clause* of the rule (sources, destinations, everything else) is a set of entries that only say
"this packet meets clause k of n of conjunction c", and one entry, which asks for ``conj_id=c``, decides.

    src 10.1.0.0/16 ──┐ conjunction(c, 1/3)            ┌─ conj_id=c ── permit, the rule's cookie and counters
    src 10.7.3.0/24 ──┤                                │
    dst 192.0.2.1/32 ─┤ conjunction(c, 2/3) ── all n ──┘
    tcp dport 443 ────┘ conjunction(c, 3/3)

Where a rule has many source ports and many destination ports, its source ports are a clause of their own as well: 300
of each are 600 entries, not 90,000.

Here it is decided which rules are such. All entries of a rule have its priority. It is found with the rule's *hull*,
the smallest single box around it: two rules whose hulls are disjoint never meet, so an order that respects hulls
respects the rules. `clauses.py` makes the entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from orchestrator.compile.conjunctions.sides import Sides
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.maskedword import count_rows_of_rule
from orchestrator.policy.model import Rule
from orchestrator.policy.ports import EVERY_PORT, PortRange, masks

WORTH = 32
"""Rules of fewer combinations are written out."""

GAIN = 2
"""So many times fewer entries must a conjunction take: it costs a second look-up for the first packet of a flow."""

PORTS_WORTH = 1024
"""From so many combinations of ports on source ports are a clause of their own; two ranges have at most 900."""

MOST_NUMBERS = 1 << 31
"""Rule numbers from here on have no conjunction: its number has 32 bits, one of them for the IP version."""


class Parts(NamedTuple):
    """The number of entries of each clause of a rule in one IP version.

    `source_ports` 0: they stay with the rest.
    """

    sources: int
    destinations: int
    source_ports: int
    rest: int

    @property
    def combinations(self) -> int:
        return self.sources * self.destinations * (self.source_ports or 1) * self.rest

    @property
    def entries(self) -> int:
        """How many entries a conjunction takes: its clauses, and the one that decides."""
        return self.sources + self.destinations + self.source_ports + self.rest + 1


def parts_of(rule: Rule, sides: Sides, family: Family) -> Parts:
    """How many entries each clause of a rule takes in one IP version."""
    sources, rest = port_parts(rule)
    apart = (sources, rest) if _are_worth_it(sources, rest) else (0, sources * rest)
    return Parts(sides.count(rule.source, family), sides.count(rule.destination, family), *apart)


def is_conjunctive(rule: Rule, sides: Sides, number: int = 1) -> bool:
    """Whether a rule is better written as a conjunction than as all its combinations."""
    if not may_be_conjunctive(rule):
        return False
    sources, rest = port_parts(rule)
    at_most = max(sides.size(rule.source), 1) * max(sides.size(rule.destination), 1) * sources * rest
    if number >= MOST_NUMBERS or at_most < WORTH:
        return False
    parts = [parts_of(rule, sides, family) for family in sides.families(rule)]
    combinations = sum(each.combinations for each in parts)
    return combinations >= WORTH and combinations >= GAIN * sum(each.entries for each in parts)


class Hull(Rule):
    """The smallest rule of one box per IP version around another rule.

    It takes that rule's place in the order, and has no entries.
    """

    __slots__ = ()


def hull(rule: Rule, sides: Sides) -> Hull:
    """Return the hull of a conjunctive rule, which finds its place among the others."""

    def enclose_side(side: Addresses) -> Addresses:
        if side.is_any:
            return ANY
        both = (sides.of(side, family) for family in Family)
        return Addresses(tuple(_around(several) for several in both if several))

    return Hull(
        rule.id,
        rule.action,
        direction=rule.direction,
        protocol=rule.protocol,
        source=enclose_side(rule.source),
        destination=enclose_side(rule.destination),
        source_ports=_widen_ports(rule.source_ports),
        destination_ports=_widen_ports(rule.destination_ports),
        icmp_type=rule.icmp_type,
        icmp_code=rule.icmp_code,
        fragments=rule.fragments,
    )


def names_one_each(rule: Rule) -> bool:
    """Return whether a rule has at most one prefix on each side, and no groups.

    Nearly all rules do.
    """
    source, destination = rule.source, rule.destination
    few = len(source.prefixes) < 2 and len(destination.prefixes) < 2
    return few and not source.groups and not destination.groups


def may_be_conjunctive(rule: Rule) -> bool:
    """Return whether a rule may be conjunctive; False is certain.

    It has several prefixes on a side, groups, or ports that are worth a clause.
    """
    return not names_one_each(rule) or splits_ports(rule)


def splits_ports(rule: Rule) -> bool:
    """Return whether a rule's source ports would be a clause of their own."""
    return rule.source_ports is not EVERY_PORT and _are_worth_it(*port_parts(rule))


def count_masks(ports: tuple[PortRange, ...]) -> int:
    """How many masks cover some ports."""
    if ports is EVERY_PORT:
        return 1
    return sum([1 if each.low == each.high else _count_masks(each.low, each.high) for each in ports])


@lru_cache(maxsize=1 << 16)
def _count_masks(low: int, high: int) -> int:
    return len(masks(PortRange(low, high)))


def port_parts(rule: Rule) -> tuple[int, int]:
    """Count the entries of a rule's source ports, and of its other matches besides addresses."""
    return count_masks(rule.source_ports), count_masks(rule.destination_ports) * count_rows_of_rule(rule)


def _are_worth_it(sources: int, rest: int) -> bool:
    return sources * rest >= max(PORTS_WORTH, GAIN * (sources + rest + 1))


def _around(prefixes: Sequence[Prefix]) -> Prefix:
    """The longest prefix that contains all of them; they are sorted and disjoint."""
    first, last = prefixes[0], prefixes[-1]
    length = first.family.bits - (first.network ^ last.last).bit_length()
    shift = first.family.bits - length
    return Prefix(first.family, first.network >> shift << shift, length)


def _widen_ports(ports: tuple[PortRange, ...]) -> tuple[PortRange, ...]:
    span = (PortRange(ports[0].low, ports[-1].high),)
    return EVERY_PORT if span == EVERY_PORT else span
