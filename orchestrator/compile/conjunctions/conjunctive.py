"""Rules over address groups without a cross product: conjunctive match.

A rule from 1,000 sources to 100 destinations on ten ports is a million combinations, but only 1,110 facts. Open vSwitch
takes it as facts: each *clause* of the rule (sources, destinations, everything else) is a set of entries that only say
"this packet meets clause k of n of conjunction c", and one entry, which asks for ``conj_id=c``, decides.

    src 10.1.0.0/16 ──┐ conjunction(c, 1/3)            ┌─ conj_id=c ── permit, the rule's cookie and counters
    src 10.7.3.0/24 ──┤                                │
    dst 192.0.2.1/32 ─┤ conjunction(c, 2/3) ── all n ──┘
    tcp dport 443 ────┘ conjunction(c, 3/3)

Here it is decided which rules are such. All entries of a rule have its priority. It is found with the rule's *hull*,
the smallest single box around it: two rules whose hulls are disjoint never meet, so an order that respects hulls
respects the rules. `clauses.py` makes the entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.compile.conjunctions.sides import Sides
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.model import Rule
from orchestrator.policy.ports import EVERY_PORT, PortRange, masks

WORTH = 32
"""Rules of fewer combinations are written out."""

GAIN = 2
"""So many times fewer entries must a conjunction take: it costs a second look-up for the first packet of a flow."""

MOST_NUMBERS = 1 << 31
"""Rule numbers from here on have no conjunction: its number has 32 bits, one of them for the IP version."""


class Parts(NamedTuple):
    """How many entries the clauses of a rule take in one IP version."""

    sources: int
    destinations: int
    rest: int

    @property
    def combinations(self) -> int:
        return self.sources * self.destinations * self.rest

    @property
    def entries(self) -> int:
        """As a conjunction: its clauses, and the entry that decides."""
        return self.sources + self.destinations + self.rest + 1


def parts_of(rule: Rule, sides: Sides, family: Family) -> Parts:
    """How many entries each clause of a rule takes in one IP version."""
    return Parts(sides.count(rule.source, family), sides.count(rule.destination, family), _rest(rule))


def is_conjunctive(rule: Rule, sides: Sides, number: int = 1) -> bool:
    """Whether a rule is better written as a conjunction than as all its combinations."""
    if names_one_each(rule):
        return False
    at_most = max(sides.size(rule.source), 1) * max(sides.size(rule.destination), 1) * _rest(rule)
    if number >= MOST_NUMBERS or at_most < WORTH:
        return False
    parts = [parts_of(rule, sides, family) for family in sides.families(rule)]
    combinations = sum(each.combinations for each in parts)
    return combinations >= WORTH and combinations >= GAIN * sum(each.entries for each in parts)


class Hull(Rule):
    """The smallest rule of a single box an IP version around another: it takes that one's place, and has no entries."""

    __slots__ = ()


def hull(rule: Rule, sides: Sides) -> Hull:
    """What a conjunctive rule's place among the others is found with."""

    def around(side: Addresses) -> Addresses:
        if side.is_any:
            return ANY
        both = (sides.of(side, family) for family in Family)
        return Addresses(tuple(_around(several) for several in both if several))

    return Hull(
        rule.id,
        rule.action,
        direction=rule.direction,
        protocol=rule.protocol,
        source=around(rule.source),
        destination=around(rule.destination),
        source_ports=_span(rule.source_ports),
        destination_ports=_span(rule.destination_ports),
        icmp_type=rule.icmp_type,
        icmp_code=rule.icmp_code,
        fragments=rule.fragments,
    )


def names_one_each(rule: Rule) -> bool:
    """Whether a rule has at most one prefix on each side, and no groups: nearly all do."""
    source, destination = rule.source, rule.destination
    few = len(source.prefixes) < 2 and len(destination.prefixes) < 2
    return few and not source.groups and not destination.groups


def _rest(rule: Rule) -> int:
    ports = [
        sum(len(masks(each)) for each in several) if several != EVERY_PORT else 1
        for several in (rule.source_ports, rule.destination_ports)
    ]
    return ports[0] * ports[1] * max(len(rule.flag_matches), 1)


def _around(prefixes: Sequence[Prefix]) -> Prefix:
    """The longest prefix that contains all of them; they are sorted and disjoint."""
    first, last = prefixes[0], prefixes[-1]
    length = first.family.bits - (first.network ^ last.last).bit_length()
    shift = first.family.bits - length
    return Prefix(first.family, first.network >> shift << shift, length)


def _span(ports: tuple[PortRange, ...]) -> tuple[PortRange, ...]:
    span = (PortRange(ports[0].low, ports[-1].high),)
    return EVERY_PORT if span == EVERY_PORT else span
