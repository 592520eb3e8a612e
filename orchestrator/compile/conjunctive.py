"""Rules over address groups without a cross product: conjunctive match.

A rule from 1,000 sources to 100 destinations on ten ports is a million combinations, but only 1,110 facts. Open vSwitch
takes it as facts: each *clause* of the rule (sources, destinations, everything else) is a set of entries that only say
"this packet meets clause k of n of conjunction c", and one entry, which asks for ``conj_id=c``, decides.

    src 10.1.0.0/16 ──┐ conjunction(c, 1/3)            ┌─ conj_id=c ── permit, the rule's cookie and counters
    src 10.7.3.0/24 ──┤                                │
    dst 192.0.2.1/32 ─┤ conjunction(c, 2/3) ── all n ──┘
    tcp dport 443 ────┘ conjunction(c, 3/3)

* All entries of a rule have its priority. It is found with the rule's *hull*, the smallest single box around it: two
  rules whose hulls are disjoint never meet, so an order that respects hulls respects the rules.
* Rules of one priority share entries: one that several conjunctions ask for names them all. A member that comes into a
  group or leaves it is one entry for each priority at which the group is asked for.
* A conjunction's number is made from the rule's number, which is never given to another rule.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile import oxm
from orchestrator.compile.atoms import atoms
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.instructions import conjunction, instructions
from orchestrator.compile.openflow import RuleStage, rule_flows
from orchestrator.compile.oxm import Term
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix, aggregate
from orchestrator.policy.model import Action, AddressGroup, Rule, resolve
from orchestrator.policy.ports import EVERY_PORT, PortRange, masks
from orchestrator.policy.protocols import only_family
from orchestrator.program.flows import U16, Flow, FlowTable
from orchestrator.program.program import Tier
from orchestrator.program.rules import RuleTable

WORTH = 32
"""Rules of fewer combinations are written out."""

GAIN = 2
"""So many times fewer entries must a conjunction take: it costs a second look-up for the first packet of a flow."""

MOST_NUMBERS = 1 << 31
"""Rule numbers from here on have no conjunction: its number has 32 bits, one of them for the IP version."""

_HASH_SHIFT = 12
"""Clauses have hashes of 20 bits for cookies: few share one, and neighbours share the leaves of a program's digest."""

_CLAUSE = Cookie(Tier.HOST, Kind.CLAUSE).pack()


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


@dataclass(frozen=True, slots=True)
class Sides:
    """What the sides of a list's rules stand for, each worked out once: disjoint prefixes, by IP version."""

    groups: Mapping[str, AddressGroup]
    _known: dict[Addresses, Mapping[Family, tuple[Prefix, ...]]] = field(default_factory=dict)

    def of(self, side: Addresses) -> Mapping[Family, tuple[Prefix, ...]]:
        """The prefixes of a side."""
        found = self._known.get(side)
        if found is None:
            found = {family: aggregate(resolve(side, self.groups, family)) for family in Family}
            self._known[side] = found
        return found

    def size(self, side: Addresses) -> int:
        """At most so many prefixes, without working them out."""
        return len(side.prefixes) + sum(len(self.groups[name].prefixes) for name in side.groups)

    def families(self, rule: Rule) -> tuple[Family, ...]:
        """The IP versions in which a rule matches at all."""
        sources, destinations, only = self.of(rule.source), self.of(rule.destination), only_family(rule.protocol)
        return tuple(each for each in Family if only in (None, each) and sources[each] and destinations[each])

    def parts(self, rule: Rule, family: Family) -> Parts:
        """How many entries each clause takes in one IP version."""
        return Parts(len(self.of(rule.source)[family]), len(self.of(rule.destination)[family]), _rest(rule))


def is_conjunctive(rule: Rule, sides: Sides, number: int = 1) -> bool:
    """Whether a rule is better written as a conjunction than as all its combinations."""
    if _names_one_each(rule.source) and _names_one_each(rule.destination):  # nearly all do
        return False
    at_most = max(sides.size(rule.source), 1) * max(sides.size(rule.destination), 1) * _rest(rule)
    if number >= MOST_NUMBERS or at_most < WORTH:
        return False
    parts = [sides.parts(rule, family) for family in sides.families(rule)]
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
        return Addresses(tuple(_around(several) for several in sides.of(side).values() if several))

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


def _names_one_each(side: Addresses) -> bool:
    return not side.groups and len(side.prefixes) < 2


def _rest(rule: Rule) -> int:
    ports = [
        sum(len(masks(each)) for each in several) if several != EVERY_PORT else 1
        for several in (rule.source_ports, rule.destination_ports)
    ]
    return ports[0] * ports[1] * max(len(rule.flag_matches), 1)


def _around(prefixes: Sequence[Prefix]) -> Prefix:
    """The longest prefix that contains all of them; they are sorted."""
    first, last = prefixes[0], prefixes[-1]
    length = min(each.length for each in prefixes)
    length = min(length, first.family.bits - (first.network ^ last.last).bit_length())
    shift = first.family.bits - length
    return Prefix(first.family, first.network >> shift << shift, length)


def _span(ports: tuple[PortRange, ...]) -> tuple[PortRange, ...]:
    span = (PortRange(ports[0].low, ports[-1].high),)
    return EVERY_PORT if span == EVERY_PORT else span


@dataclass(frozen=True, slots=True)
class Placed:
    """A conjunctive rule with its number and its priority."""

    rule: Rule
    number: int
    priority: int


def conjunctive_flows(placed: Iterable[Placed], sides: Sides, stage: RuleStage, tenant: int) -> FlowTable:
    """The entries of the conjunctive rules of one list, which must include all that share a priority.

    First those that decide, in list order, then the clauses, ordered by priority and match.
    """
    units = _units(placed, sides)
    deciding = FlowTable.of([unit.decider(stage, tenant) for unit in units])
    return FlowTable.joined([deciding, *_clause_flows(units, sides, stage, tenant)])


def clause_atoms(placed: Iterable[Placed], sides: Sides) -> RuleTable:
    """The clauses of conjunctive rules as atoms, each as often as rules ask for it."""
    return _Named.of(_units(placed, sides), sides, 0).table


@dataclass(frozen=True, slots=True)
class _Unit:
    """A conjunction: one rule in one IP version."""

    rule: Rule
    number: int
    family: Family
    priority: int
    clauses: tuple[Rule, ...]

    @property
    def conj_id(self) -> int:
        return self.number << 1 | (self.family is Family.IPV6)

    def decider(self, stage: RuleStage, tenant: int) -> Flow:
        """The entry that decides what meets all clauses."""
        version = oxm.IPV4 if self.family is Family.IPV4 else oxm.IPV6
        terms = [Term(oxm.CONJ_ID, self.conj_id), Term(oxm.ETH_TYPE, version)]
        if stage.register is not None:
            terms.append(Term(stage.register, tenant))
        doing = stage.permit if self.rule.action is Action.PERMIT else stage.deny
        cookie = Cookie(Tier.HOST, Kind.RULE, self.number).pack()
        return Flow(stage.table, self.priority, oxm.pack(terms), doing, cookie, tenant)


def _units(placed: Iterable[Placed], sides: Sides) -> list[_Unit]:
    return [
        _Unit(each.rule, each.number, family, each.priority, _clauses(each.rule, sides, family))
        for each in placed
        for family in sides.families(each.rule)
    ]


def _clauses(rule: Rule, sides: Sides, family: Family) -> tuple[Rule, ...]:
    """A rule taken apart into rules that it is the intersection of. A side of one prefix stays with the rest."""
    plain = Rule(rule.id, rule.action, direction=rule.direction)
    rest, parts = rule, []
    if len(sides.of(rule.source)[family]) > 1:
        parts.append(replace(plain, source=rule.source))
        rest = replace(rest, source=ANY)
    if len(sides.of(rule.destination)[family]) > 1:
        parts.append(replace(plain, destination=rule.destination))
        rest = replace(rest, destination=ANY)
    parts.append(rest)
    return tuple(parts) if len(parts) > 1 else (plain, rest)


class _Named(NamedTuple):
    """The clauses of some conjunctions: what names each, its priority, and its atoms, whose `order` says whose."""

    actions: list[bytes]
    priority: U16
    table: RuleTable

    @classmethod
    def of(cls, units: Sequence[_Unit], sides: Sides, tenant: int) -> _Named:
        parts = [(unit, number, part) for unit in units for number, part in enumerate(unit.clauses)]
        table = atoms([part for _, _, part in parts], sides.groups, tenant=tenant)
        family = np.array([unit.family for unit, _, _ in parts], np.uint8)
        return cls(
            [conjunction(unit.conj_id, number, len(unit.clauses)) for unit, number, _ in parts],
            np.array([unit.priority for unit, _, _ in parts], np.uint16),
            table.take(table.family == family[table.order]),
        )


def _clause_flows(units: Sequence[_Unit], sides: Sides, stage: RuleStage, tenant: int) -> list[FlowTable]:
    """The clauses of all conjunctions, entries of the same match and priority put together."""
    if not units:
        return []
    named = _Named.of(units, sides, tenant)
    whose = named.table.order
    flows = rule_flows(named.table, stage, named.priority[whose], whose.astype(np.uint64))
    return [_merged(flows, named.actions)]


def _merged(flows: FlowTable, actions: Sequence[bytes]) -> FlowTable:
    """Entries with an index into `actions` for a cookie; those of the same key become one, with all their actions."""
    keys, first, row = _distinct_keys(flows)
    by_key = np.lexsort((flows.cookie, row))
    wanted = flows.cookie[by_key].tolist()
    ends = np.cumsum(np.bincount(row, minlength=len(first))).tolist()
    lists: dict[tuple[int, ...], int] = {}
    which = [lists.setdefault(tuple(wanted[start:end]), len(lists)) for start, end in pairwise([0, *ends])]
    return replace(
        flows.take(first),
        cookie=np.array([_CLAUSE + (zlib.crc32(key) >> _HASH_SHIFT) for key in keys], np.uint64),
        instructions=np.array(which, np.uint32),
        instruction_set=tuple(instructions([actions[index] for index in indices]) for indices in lists),
    )


def _distinct_keys(flows: FlowTable) -> tuple[list[bytes], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Every (priority, match) once, in order; the first row that has it; and for each row which of them it has."""
    priority = flows.priority.astype(">u2").view(np.uint8).reshape(-1, 2)
    whole = np.ascontiguousarray(np.concatenate((priority, flows.match_length[:, None], flows.match), axis=1))
    keys, first, row = np.unique(
        whole.view(np.dtype((np.void, whole.shape[1]))).ravel(), return_index=True, return_inverse=True
    )
    return [key.tobytes() for key in keys], first, row
