"""Flow entries of conjunctive rules, and their changes when rules or group members change.

    clause k of conjunction c       an entry for each prefix (or port mask), which names c, k and how many clauses
    conjunction c                   an entry that asks for conj_id = c, and decides

* Rules of one priority share entries: one that several conjunctions ask for names them all, ascending. A member that
  comes into a group or leaves it is one entry for each priority at which the group is asked for.
* A conjunction's number is made from the rule's number, which is never given to another rule.

After a change an entry can be another only if a rule that names it went, came or has another priority, or if its prefix
went from a side or came to one. These entries are made as they were and as they are, each with everybody of its
priority who asks for it; all others stay. Law: what is found so is the difference of the two lists' entries.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.conjunctions.conjunctive import splits_ports
from orchestrator.compile.conjunctions.covers import has
from orchestrator.compile.conjunctions.sides import Regrouping, Sides
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.openflow import oxm
from orchestrator.compile.openflow.encoder import RuleStage, doings, meter_of, rule_flows
from orchestrator.compile.openflow.instructions import conjunction, instructions
from orchestrator.compile.openflow.oxm import Term
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.model import SIDES, Action, Rule, with_sides
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.program.delta import difference
from orchestrator.program.flows import U16, Flow, FlowTable
from orchestrator.program.program import Tier
from orchestrator.program.rules import RuleTable

_HASH_SHIFT = 12
"""Clauses have hashes of 20 bits for cookies: few share one, and neighbours share the leaves of a program's digest."""

_CLAUSE = Cookie(Tier.HOST, Kind.CLAUSE).pack()


@dataclass(frozen=True, slots=True)
class Placed:
    """A conjunctive rule with its number and its priority."""

    rule: Rule
    number: int
    priority: int


def conjunctive_flows(placed: Iterable[Placed], sides: Sides, stage: RuleStage, tenant: int) -> FlowTable:
    """Return the entries of one list's conjunctive rules.

    They must include all rules that share a priority.

    First those that decide, then the clauses, ordered by priority and match.
    """
    units = _units(placed, sides)
    deciding = FlowTable.of([unit.decider(stage, tenant) for unit in units])
    return FlowTable.join_tables([deciding, *_clause_flows(_list_parts(units), sides, stage, tenant)])


def clause_atoms(placed: Iterable[Placed], sides: Sides) -> RuleTable:
    """The clauses of conjunctive rules as atoms, each as often as rules ask for it."""
    return _Named.of(_list_parts(_units(placed, sides)), sides, 0).table


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
        doing = doings(stage, meter_of(tenant))[(self.rule.action is Action.DENY) + 2 * self.rule.log]
        cookie = Cookie(Tier.HOST, Kind.RULE, self.number).pack()
        return Flow(stage.table, self.priority, oxm.pack(terms), doing, cookie, tenant)


def _units(placed: Iterable[Placed], sides: Sides) -> list[_Unit]:
    """The conjunctions of some rules, ascending."""
    in_order = sorted(placed, key=lambda each: each.number)
    return [_make_unit(each, sides, family) for each in in_order for family in sides.families(each.rule)]


def _make_unit(placed: Placed, sides: Sides, family: Family) -> _Unit:
    return _Unit(placed.rule, placed.number, family, placed.priority, rule_clauses(placed.rule, sides, family))


def rule_clauses(rule: Rule, sides: Sides, family: Family) -> tuple[Rule, ...]:
    """Split a rule into clauses, the rules that it is the intersection of.

    A side of one prefix stays with the rest; so do source ports if they are few.
    """
    plain = Rule(rule.id, rule.action, direction=rule.direction)
    rest, parts = rule, []
    if sides.count(rule.source, family) > 1:
        parts.append(replace(plain, source=rule.source))
        rest = replace(rest, source=ANY)
    if sides.count(rule.destination, family) > 1:
        parts.append(replace(plain, destination=rule.destination))
        rest = replace(rest, destination=ANY)
    if splits_ports(rule):
        parts.append(replace(plain, protocol=rule.protocol, source_ports=rule.source_ports))
        rest = replace(rest, source_ports=EVERY_PORT)
    parts.append(rest)
    return tuple(parts) if len(parts) > 1 else (plain, rest)


class _Part(NamedTuple):
    """Clause `number` of a conjunction, or some of it, as a rule."""

    unit: _Unit
    number: int
    rule: Rule


def _list_parts(units: Sequence[_Unit]) -> list[_Part]:
    return [_Part(unit, number, rule) for unit in units for number, rule in enumerate(unit.clauses)]


class _Named(NamedTuple):
    """Clauses: what names each, its priority, and its atoms, whose `order` says whose."""

    actions: list[bytes]
    priority: U16
    table: RuleTable

    @classmethod
    def of(cls, parts: Sequence[_Part], sides: Sides, tenant: int) -> _Named:
        """Name clauses, and make atoms of them."""
        table = atoms([part.rule for part in parts], sides.groups, tenant=tenant)
        family = np.array([part.unit.family for part in parts], np.uint8)
        return cls(
            [conjunction(part.unit.conj_id, part.number, len(part.unit.clauses)) for part in parts],
            np.array([part.unit.priority for part in parts], np.uint16),
            table.take(table.family == family[table.order]),
        )


def _clause_flows(parts: Sequence[_Part], sides: Sides, stage: RuleStage, tenant: int) -> list[FlowTable]:
    """The entries of clauses; those of the same match and priority are one."""
    if not parts:
        return []
    named = _Named.of(parts, sides, tenant)
    return [merge_entries(_plain_flows(named, stage), named.actions)]


def _plain_flows(named: _Named, stage: RuleStage) -> FlowTable:
    """An entry for each atom; its cookie says which clause it is of."""
    whose = named.table.order
    return rule_flows(named.table, stage, named.priority[whose], whose.astype(np.uint64))


def merge_entries(flows: FlowTable, actions: Sequence[bytes]) -> FlowTable:
    """Merge entries of one key, with all their actions.

    A cookie is an index into `actions`.
    """
    first, row = _distinct_keys(flows)
    by_key = np.lexsort((flows.cookie, row))
    wanted = flows.cookie[by_key].tolist()
    ends = np.cumsum(np.bincount(row, minlength=len(first))).tolist()
    lists: dict[tuple[int, ...], int] = {}
    which = [lists.setdefault(tuple(wanted[start:end]), len(lists)) for start, end in pairwise([0, *ends])]
    once = flows.take(first)
    return replace(
        once,
        cookie=np.array([_CLAUSE + (zlib.crc32(key) >> _HASH_SHIFT) for key in _keys(once)], np.uint64),
        instructions=np.array(which, np.uint32),
        instruction_set=tuple(instructions([actions[index] for index in indices]) for indices in lists),
    )


def _distinct_keys(flows: FlowTable) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the first row of every (priority, match), and each row's index there."""
    priority = flows.priority.astype(">u2").view(np.uint8).reshape(-1, 2)
    whole = np.ascontiguousarray(np.concatenate((priority, flows.match_length[:, None], flows.match), axis=1))
    rows = whole.view(np.dtype((np.void, whole.shape[1]))).ravel()
    _, first, which = np.unique(rows, return_index=True, return_inverse=True)
    return first, which


def _keys(flows: FlowTable) -> list[bytes]:
    """Priority and match of every row."""
    matches, width = flows.match.tobytes(), max(flows.match.shape[1], 1)
    starts = range(0, width * len(flows), width)
    columns = flows.priority.tolist(), starts, flows.match_length.tolist()
    return [
        priority.to_bytes(2, "big") + matches[start : start + length]
        for priority, start, length in zip(*columns, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------- after a change


def conjunctive_change(
    old: Sequence[Placed], new: Sequence[Placed], groups: Regrouping, stage: RuleStage, tenant: int
) -> tuple[FlowTable, FlowTable]:
    """Return the entries to remove and add when conjunctive rules or groups change."""
    touched = _Touched()
    before, after = {each.number: each for each in old}, {each.number: each for each in new}
    for placed, others, sides in ((old, after, groups.before), (new, before, groups.after)):
        touched.add_all(_units([each for each in placed if others.get(each.number) != each], sides), sides)
    for each in old:
        if groups.concerns(each.rule) and after.get(each.number) == each:
            for family in Family:
                touched.add_members(each, groups, family)
    if not touched.parts:
        return _NOTHING, _NOTHING
    was, now = (
        touched.entries(placed, sides, stage, tenant) for placed, sides in ((old, groups.before), (new, groups.after))
    )
    return difference(was, now)


_NOTHING = FlowTable.of(())
_FEW = 64


class _Touched:
    """Entries that may have changed.

    Clauses or parts of them, their conjunctions, and by priority the prefixes that such entries name on each side.
    """

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self._deciding: set[tuple[int, int]] = set()
        self._prefixes: defaultdict[tuple[int, str], set[Prefix]] = defaultdict(set)

    def add_all(self, units: Sequence[_Unit], sides: Sides) -> None:
        """All entries of some conjunctions."""
        for unit in units:
            self._deciding.add((unit.conj_id, unit.priority))
            for part in _list_parts([unit]):
                whole = {
                    name: Addresses(tuple(sides.of(side, unit.family)))
                    for name in SIDES
                    if not (side := getattr(part.rule, name)).is_any
                }
                self._add_part(part._replace(rule=with_sides(part.rule, whole)))

    def add_members(self, placed: Placed, groups: Regrouping, family: Family) -> None:
        """Add the entries of a rule for the prefixes that its sides lost and gained.

        In one IP version.
        """
        states = [
            _make_unit(placed, sides, family) if family in sides.families(placed.rule) else None
            for sides in (groups.before, groups.after)
        ]
        was, now = states
        changes = [
            (name, tuple(prefix for prefix in some if prefix.family is family))
            for name in SIDES
            for some in groups.change(getattr(placed.rule, name))  # what went and what came, for one may hold the other
        ]
        sides_changed = {name for name, prefixes in changes if prefixes}
        if was is not None and now is not None and _has_own(was, sides_changed) and _has_own(now, sides_changed):
            plain = Rule(placed.rule.id, placed.rule.action, direction=placed.rule.direction)
            for name, prefixes in changes:
                if prefixes:
                    self._add_part(_Part(now, 0, with_sides(plain, {name: Addresses(prefixes)})))
        elif sides_changed:
            for unit, sides in zip(states, (groups.before, groups.after), strict=True):
                self.add_all([unit] if unit is not None else [], sides)

    def _add_part(self, part: _Part) -> None:
        self.parts.append(part)
        for name in SIDES:
            self._prefixes[part.unit.priority, name].update(getattr(part.rule, name).prefixes)

    def entries(self, placed: Sequence[Placed], sides: Sides, stage: RuleStage, tenant: int) -> FlowTable:
        """Make those of the touched entries that a list has."""
        priorities = {part.unit.priority for part in self.parts}
        units = _units([each for each in placed if each.priority in priorities], sides)
        deciding = [unit.decider(stage, tenant) for unit in units if (unit.conj_id, unit.priority) in self._deciding]
        near = [found for part in _list_parts(units) if (found := self._near(part, sides)) is not None]
        if not near:
            return FlowTable.of(deciding)
        keys = set(_keys(_plain_flows(_Named.of(self.parts, sides, tenant), stage)))
        (merged,) = _clause_flows(near, sides, stage, tenant)
        mine = np.array([key in keys for key in _keys(merged)], np.bool_)
        return FlowTable.join_tables([FlowTable.of(deciding), merged.take(mine)])

    def _near(self, part: _Part, sides: Sides) -> _Part | None:
        """Return the part of a clause whose entries may be touched, or None."""
        own = {}
        for name in SIDES:
            side = getattr(part.rule, name)
            if not side.is_any:
                found = _common(self._prefixes[part.unit.priority, name], sides.cover(side).prefixes)
                if not found:
                    return None
                own[name] = Addresses(found)
        return part._replace(rule=with_sides(part.rule, own)) if own else part


def _has_own(unit: _Unit, sides: Iterable[str]) -> bool:
    """Return whether each of some sides is a clause of its own.

    Then all other clauses stay when these change.
    """
    return all(getattr(unit.clauses[-1], name).is_any for name in sides)


def _common(some: set[Prefix], there: Sequence[Prefix]) -> tuple[Prefix, ...]:
    """Return those of some prefixes that are among sorted ones."""
    if len(some) < _FEW:
        return tuple(each for each in some if has(there, each))
    return tuple(some.intersection(there))
