"""Rules that are conjunctions, held to what they must be, and then put plainly.

A conjunctive rule (`compile/conjunctions/conjunctive.py`) is several sets of entries, the clauses, and in each IP
version an entry that decides what meets them all. Here every clause is shown to be exactly one factor of its rule (its
sources, its destinations, its source ports, or the rest), so that what meets them all are the rule's packets, no more
and no less. Then the rule's place among the others remains to be shown. For that a *hull* stands for it, a rule of one
box that holds all its packets: where the hull is in order, so is what is inside.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.conjunctions.conjunctive import hull, splits_ports
from orchestrator.compile.conjunctions.sides import Sides
from orchestrator.compile.cookies import Kind
from orchestrator.compile.equivalence.chain import RULE, STAGES, TABLE_OF, Chain
from orchestrator.compile.equivalence.checks import COVERED, cover
from orchestrator.compile.equivalence.order import index_of
from orchestrator.compile.equivalence.rowdecoder import Items
from orchestrator.compile.equivalence.rulesets import expected_packets
from orchestrator.compile.equivalence.sortedrows import checked_rows, kind_of, kinds
from orchestrator.compile.lists.atoms import atoms
from orchestrator.compile.lists.lists import ROW_STAGES
from orchestrator.compile.openflow.encoder import rule_flows
from orchestrator.errors import NotEquivalent
from orchestrator.policy.addresses import Addresses, Family, aggregate
from orchestrator.policy.addresses import everything as whole_family
from orchestrator.policy.model import SIDES, Rule, families, resolve, with_sides
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.space import boxes_of
from orchestrator.program.flows import Flow, FlowTable

_CONJ_ID = bytes.fromhex("00014a04")
"""The header of a match field that asks for a conjunction (Nicira extension, ovs-fields(7))."""

_NAMED = struct.pack(">HHIH", 0xFFFF, 16, 0x2320, 34)
"""How a conjunction action begins (ovs-actions(7)); clause, number of clauses and conjunction follow."""

_MOST_AT_ONCE = 60_000
"""Clauses that are shown to be disjoint together: each takes a priority of 16 bits for that."""


@dataclass(frozen=True, slots=True, eq=False)
class Conjunctions:
    """The proven conjunctions of a list by number, and their rules and hulls by id.

    `sides` only says how clauses were cut and how wide hulls are; that is then shown by itself. `rest` has the items of
    the clauses that are no sides.
    """

    units: Mapping[int, Unit]
    hulls: Mapping[str, tuple[Rule, Rule]]
    sides: Sides
    rest: Mapping[Clause, Items]

    @classmethod
    def none(cls, chain: Chain) -> Conjunctions:
        """Return the conjunctions of a list without any."""
        return cls({}, {}, Sides(chain.groups), {})

    def standing_in(self, chain: Chain) -> Chain:
        """The list with hulls for its conjunctive rules."""
        if not self.hulls:
            return chain
        hulls = {name: around for name, (_, around) in self.hulls.items()}
        names = map(attrgetter("id"), chain.rules)
        return replace(chain, rules=tuple(map(hulls.get, names, chain.rules)))

    def hull_rows(self, chain: Chain, numbers: Iterable[int]) -> FlowTable:
        """Rows for the hulls of some conjunctions, at their priorities."""
        some = [self.units[number] for number in numbers if number in self.units]
        return FlowTable.join_tables([_hull_rows(chain, unit, self.hulls[unit.rule.id][1]) for unit in some])


class Plain(NamedTuple):
    """The rows of a list with hulls for conjunctive rules, and what stands for what."""

    rows: FlowTable
    conjunctions: Conjunctions


def is_conjunctive(flows: FlowTable) -> npt.NDArray[np.bool_]:
    """Which rows are parts of conjunctions."""
    if flows.match.shape[1] < len(_CONJ_ID):
        return names_clauses(flows)
    asking = (flows.match[:, : len(_CONJ_ID)] == np.frombuffer(_CONJ_ID, np.uint8)).all(axis=1)
    return np.asarray(names_clauses(flows) | asking)


def may_be_conjunctive(flows: FlowTable) -> bool:
    """Whether some of few rows may be parts of conjunctions; a no is certain."""
    return _CONJ_ID in flows.match.tobytes() or Kind.CLAUSE in map(kind_of, flows.cookie.tolist())


def names_clauses(flows: FlowTable) -> npt.NDArray[np.bool_]:
    """Which rows are entries of clauses."""
    return np.asarray(kinds(flows) == Kind.CLAUSE)


def plainly(chain: Chain, rows: FlowTable) -> Plain:
    """Check the conjunctions of a list's rows against its rules, and substitute hulls.

    Raises NotEquivalent.
    """
    parts = is_conjunctive(rows)
    if not parts.any():
        return Plain(rows, Conjunctions.none(chain))
    clauses, sides = names_clauses(rows), Sides(chain.groups)
    units = _units(chain, sides, rows.take(parts & ~clauses))
    rest = _check_clauses(chain, units, rows.take(clauses))
    hulls: dict[str, tuple[Rule, Rule]] = {unit.rule.id: (unit.rule, hull(unit.rule, sides)) for unit in units.values()}
    for rule, around in hulls.values():
        check_hull(chain, rule, around)
    found = Conjunctions(units, hulls, sides, rest)
    return Plain(FlowTable.join_tables([rows.take(~parts), found.hull_rows(chain, units)]), found)


@dataclass(frozen=True, slots=True)
class Unit:
    """A conjunction of one rule in one IP version: priority and clauses by side."""

    rule: Rule
    family: Family
    priority: int
    own: tuple[bool, bool]

    @classmethod
    def of(cls, rule: Rule, family: Family, priority: int, sides: Sides) -> Unit:
        """Return a rule as a conjunction: each side of several prefixes is a clause."""
        many = (sides.count(rule.source, family) > 1, sides.count(rule.destination, family) > 1)
        return cls(rule, family, priority, many)

    @property
    def clauses(self) -> int:
        """The number of clauses.

        The rest is one, and never the only one; source ports may be one.
        """
        return max(sum(self.own) + splits_ports(self.rule) + 1, 2)

    def side_of(self, clause: int) -> str | None:
        """The side that a clause is; None for source ports and the rest."""
        names = [name for name, own in zip(SIDES, self.own, strict=True) if own]
        return names[clause] if clause < len(names) else None

    def factors(self, chain: Chain) -> list[Rule]:
        """Return rules whose intersection is the rule's packets, one per clause."""
        only = Addresses((whole_family(self.family),))
        plain, rest, found = plain_factor(self.rule, self.family), self.rule, []
        for name, own in zip(SIDES, self.own, strict=True):
            side = getattr(self.rule, name)
            mine = only if side.is_any else Addresses(aggregate(resolve(side, chain.groups, self.family)))
            if own:
                found.append(with_sides(plain, {name: mine}))
            rest = with_sides(rest, {name: only if own else mine})
        if splits_ports(self.rule):
            found.append(replace(plain, protocol=self.rule.protocol, source_ports=self.rule.source_ports))
            rest = replace(rest, source_ports=EVERY_PORT)
        return [*(found or [plain]), replace(rest, description="", owner="")]


def plain_factor(rule: Rule, family: Family) -> Rule:
    """A rule for every packet of one IP version."""
    only = Addresses((whole_family(family),))
    return Rule(rule.id, rule.action, direction=rule.direction, source=only, destination=only)


def _units(chain: Chain, sides: Sides, deciding: FlowTable) -> dict[int, Unit]:
    """The conjunctions by number, from the entries that decide them."""
    by_cookie = dict(zip(chain.cookies(chain.rules), chain.rules, strict=True))
    units: dict[int, Unit] = {}
    for flow in deciding.rows():
        number, unit = unit_of(chain, by_cookie.get(flow.cookie), flow, sides)
        if number in units:
            raise wrong_flow(flow, "decides a conjunction once more", chain)
        units[number] = unit
    for name in {unit.rule.id for unit in units.values()}:
        mine = [unit for unit in units.values() if unit.rule.id == name]
        check_complete(chain, mine, set(families(mine[0].rule, chain.groups)))
    return units


def unit_of(chain: Chain, rule: Rule | None, flow: Flow, sides: Sides) -> tuple[int, Unit]:
    """Return an entry's conjunction, which must be a rule's, and its number.

    Raises NotEquivalent.
    """
    if rule is None:
        raise wrong_flow(flow, "decides for no rule of the list", chain)
    family = Family.IPV6 if b"\x86\xdd" in flow.match[8:14] else Family.IPV4
    number = (flow.cookie - RULE) << 1 | (family is Family.IPV6)
    unit = Unit.of(rule, family, flow.priority, sides)
    if flow != decider(chain, unit):
        raise wrong_flow(flow, f"is not the one that decides a conjunction of rule '{rule.id}'", chain)
    return number, unit


def decider(chain: Chain, unit: Unit) -> Flow:
    """The entry that decides a conjunction, written down once more."""
    rule, number = unit.rule, chain.numbers[unit.rule.id]
    stage = STAGES[TABLE_OF[rule.direction]]
    assert stage.register is not None
    version = b"\x08\x00" if unit.family is Family.IPV4 else b"\x86\xdd"
    halves = (chain.tenant, 0) if stage.register == 0 else (0, chain.tenant)
    ones = (0xFFFFFFFF, 0) if stage.register == 0 else (0, 0xFFFFFFFF)
    match = _CONJ_ID + struct.pack(">I", number << 1 | (unit.family is Family.IPV6)) + b"\x80\x00\x0a\x02" + version
    match += struct.pack(">HBBIIII", 0x8001, 1, 16, *halves, *ones)
    doing = stage.does(rule.action, chain.tenant, log=rule.log)
    return Flow(stage.table, unit.priority, match, doing, RULE + number, chain.tenant)


def check_complete(chain: Chain, units: Sequence[Unit], matching: set[Family]) -> None:
    """Check that a rule has one conjunction per IP version, all of one priority.

    The IP versions are those in which it matches.

    Raises NotEquivalent.
    """
    if {unit.family for unit in units} != matching or len({unit.priority for unit in units}) > 1:
        name = units[0].rule.id
        raise NotEquivalent(f"the conjunctions of rule '{name}' are not one for each IP version", place=chain.place)


def _check_clauses(chain: Chain, units: Mapping[int, Unit], clauses: FlowTable) -> dict[Clause, Items]:
    """Check that every clause is exactly its factor, at the rule's priority.

    Returns the items of clauses that are no sides.
    """
    place: dict[Clause, int] = {}
    for number, unit in units.items():
        for clause in range(unit.clauses):
            place[Clause(number, clause, unit.clauses)] = len(place)
    named = [[place.get(each, -1) for each in named_clauses(data)] or [-1] for data in clauses.instruction_set]
    of_row = [named[index] for index in clauses.instructions.tolist()]
    row = np.repeat(np.arange(len(clauses)), [len(each) for each in of_row])
    group = np.array([each for several in of_row for each in several], np.int64)
    if (group < 0).any():
        raise wrong_flow(clauses.row(int(row[int((group < 0).argmax())])), "names a clause of no conjunction", chain)
    priority = np.array([unit.priority for unit in units.values() for _ in range(unit.clauses)], np.int64)
    if (clauses.priority[row] != priority[group]).any():
        wrong = int((clauses.priority[row] != priority[group]).argmax())
        raise wrong_flow(clauses.row(int(row[wrong])), "has not the priority of its conjunction", chain)
    items = checked_rows(clauses, chain)[row]
    order = np.argsort(group, kind="stable")
    items, group = items[order], group[order]
    factors = [factor for unit in units.values() for factor in unit.factors(chain)]
    items["rule"], items["key"] = group, group
    _check_disjoint(chain, items, factors)
    wrong, at = cover(items, expected_packets(factors, chain.tables(factors), chain.groups))
    if wrong != COVERED:
        rule = factors[int(items["rule"][at]) if wrong == 1 else at]
        raise NotEquivalent(f"a clause of rule '{rule.id}' is not what the rule says", place=chain.place)
    ends = np.searchsorted(group, np.arange(len(place) + 1))
    return {
        each: items[ends[number] : ends[number + 1]]
        for each, number in place.items()
        if units[each.conjunction].side_of(each.clause) is None
    }


def _check_disjoint(chain: Chain, items: Items, factors: Sequence[Rule]) -> None:
    """Check that no two entries of a clause overlap, except those it repeats.

    `items` are ordered by clause.
    """
    for start in range(0, len(factors), _MOST_AT_ONCE):
        some = items[(items["key"] >= start) & (items["key"] < start + _MOST_AT_ONCE)].copy()
        some["priority"] = start + _MOST_AT_ONCE - some["key"]
        clash = index_of(some).conflict()
        if clash is not None:
            rule = factors[int(some["key"][clash[0]])]
            raise NotEquivalent(f"two entries of one clause of rule '{rule.id}' overlap", place=chain.place)


class Clause(NamedTuple):
    """A clause named by an entry: its conjunction, and the number of clauses there."""

    conjunction: int
    clause: int
    clauses: int


def named_clauses(data: bytes) -> list[Clause]:
    """The clauses that an instruction list names; none if it does anything else."""
    actions = data[8:]
    if data[:8] != struct.pack(">HHI", 4, len(data), 0) or len(actions) % 16:
        return []
    found = []
    for at in range(0, len(actions), 16):
        if actions[at : at + 10] != _NAMED:
            return []
        clause, clauses, number = struct.unpack_from(">BBI", actions, at + 10)
        found.append(Clause(number, clause, clauses))
    return found


def check_hull(chain: Chain, rule: Rule, around: Rule) -> None:
    """Hold a hull to hold its rule. Raises NotEquivalent."""
    outer = {box.family: box for box in boxes_of(around, chain.groups)}
    if not all(box.family in outer and outer[box.family].contains(box) for box in boxes_of(rule, chain.groups)):
        raise NotEquivalent(f"the hull of rule '{rule.id}' does not hold the rule", place=chain.place)


def _hull_rows(chain: Chain, unit: Unit, around: Rule) -> FlowTable:
    """Rows for a hull in one IP version, at the priority of its conjunction."""
    table = atoms([around], {}, tenant=chain.tenant, numbers=chain.numbers)
    table = table.take(table.family == unit.family)
    priority = np.full(len(table), unit.priority, np.uint16)
    cookie = np.full(len(table), RULE + chain.numbers[unit.rule.id], np.uint64)
    return rule_flows(table, ROW_STAGES[unit.rule.direction], priority, cookie)


def wrong_flow(flow: Flow, what: str, chain: Chain) -> NotEquivalent:
    """The error that names an entry."""
    text = f"table {flow.table}, priority {flow.priority}, cookie {flow.cookie:#x}, match {flow.match.hex()}"
    return NotEquivalent(f"the flow entry of {text} {what}", place=chain.place)
