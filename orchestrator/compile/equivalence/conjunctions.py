"""Rules that are conjunctions, held to what they must be, and then put plainly.

A conjunctive rule (`compile/conjunctive.py`) is several sets of entries, the clauses, and in each IP version an entry
that decides what meets them all. Here every clause is shown to be exactly one factor of its rule (its sources, its
destinations, or the rest), so that what meets them all are the rule's packets, no more and no less. Then the rule's
place among the others remains to be shown. For that a *hull* stands for it, a rule of one box that holds all its
packets: where the hull is in order, so is what is inside.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.atoms import atoms
from orchestrator.compile.conjunctive import Sides, hull
from orchestrator.compile.cookies import Kind
from orchestrator.compile.equivalence.chain import RULE, STAGES, TABLE_OF, Chain
from orchestrator.compile.equivalence.cover import COVERED, cover
from orchestrator.compile.equivalence.items import Items
from orchestrator.compile.equivalence.order import index_of
from orchestrator.compile.equivalence.rows import checked_rows, kinds
from orchestrator.compile.equivalence.wanted import wanted
from orchestrator.compile.lists import ROW_STAGES
from orchestrator.compile.openflow import rule_flows
from orchestrator.errors import NotEquivalent
from orchestrator.policy.addresses import Addresses, Family, aggregate
from orchestrator.policy.addresses import everything as whole_family
from orchestrator.policy.model import Action, Rule, families, resolve
from orchestrator.policy.space import boxes_of
from orchestrator.program.flows import Flow, FlowTable

_CONJ_ID = bytes.fromhex("00014a04")
"""The header of a match field that asks for a conjunction (Nicira extension, ovs-fields(7))."""

_NAMED = struct.pack(">HHIH", 0xFFFF, 16, 0x2320, 34)
"""How a conjunction action begins (ovs-actions(7)); clause, number of clauses and conjunction follow."""

_MOST_AT_ONCE = 60_000
"""Clauses that are shown to be disjoint together: each takes a priority of 16 bits for that."""


class Plain(NamedTuple):
    """A list and its rows with hulls for conjunctive rules; `hulls` are these by rule id, with the rules."""

    chain: Chain
    rows: FlowTable
    hulls: Mapping[str, tuple[Rule, Rule]]


def is_conjunctive(flows: FlowTable) -> npt.NDArray[np.bool_]:
    """Which rows are parts of conjunctions."""
    if flows.match.shape[1] < len(_CONJ_ID):
        return _names_clauses(flows)
    asking = (flows.match[:, : len(_CONJ_ID)] == np.frombuffer(_CONJ_ID, np.uint8)).all(axis=1)
    return np.asarray(_names_clauses(flows) | asking)


def _names_clauses(flows: FlowTable) -> npt.NDArray[np.bool_]:
    return np.asarray(kinds(flows) == Kind.CLAUSE)


def plainly(chain: Chain, rows: FlowTable) -> Plain:
    """Show that the conjunctions among a list's rows are what its rules say, and put hulls in their place.

    Raises NotEquivalent.
    """
    parts = is_conjunctive(rows)
    if not parts.any():
        return Plain(chain, rows, {})
    clauses = _names_clauses(rows)
    units = _units(chain, rows.take(parts & ~clauses))
    _check_clauses(chain, units, rows.take(clauses))
    standing = _hulls(chain, units)
    own = [_hull_rows(chain, unit, standing[unit.rule.id][1]) for unit in units.values()]
    return Plain(_standing_in(chain, standing), FlowTable.joined([rows.take(~parts), *own]), standing)


def with_hulls(chain: Chain, hulls: Mapping[str, tuple[Rule, Rule]]) -> Chain | None:
    """A list with hulls that were shown before; None if one of their rules is another now."""
    if not hulls:
        return chain
    mine = [rule for rule in chain.rules if rule.id in hulls]
    if len(mine) != len(hulls) or any(hulls[rule.id][0] is not rule for rule in mine):
        return None
    return _standing_in(chain, hulls)


def _standing_in(chain: Chain, hulls: Mapping[str, tuple[Rule, Rule]]) -> Chain:
    return replace(chain, rules=tuple(hulls[rule.id][1] if rule.id in hulls else rule for rule in chain.rules))


@dataclass(frozen=True, slots=True)
class _Unit:
    """A conjunction: a rule in one IP version, its priority, and the factors that its clauses must be."""

    rule: Rule
    family: Family
    priority: int
    factors: tuple[Rule, ...]


def _units(chain: Chain, deciding: FlowTable) -> dict[int, _Unit]:
    """The conjunctions by number, from the entries that decide them."""
    by_number = dict(zip(chain.cookies(chain.rules), chain.rules, strict=True))
    units: dict[int, _Unit] = {}
    for flow in deciding.rows():
        rule = by_number.get(flow.cookie)
        if rule is None:
            raise _wrong(flow, "decides for no rule of the list", chain)
        family = Family.IPV6 if b"\x86\xdd" in flow.match[8:14] else Family.IPV4
        number = (flow.cookie - RULE) << 1 | (family is Family.IPV6)
        if number in units or flow != _decider(chain, rule, family, number, flow.priority):
            raise _wrong(flow, f"is not the one that decides a conjunction of rule '{rule.id}'", chain)
        units[number] = _Unit(rule, family, flow.priority, tuple(_factors(rule, family, chain)))
    _check_complete(chain, units)
    return units


def _decider(chain: Chain, rule: Rule, family: Family, number: int, priority: int) -> Flow:
    """The entry that decides a conjunction, written down once more."""
    stage = STAGES[TABLE_OF[rule.direction]]
    assert stage.register is not None
    version = b"\x08\x00" if family is Family.IPV4 else b"\x86\xdd"
    halves = (chain.tenant, 0) if stage.register == 0 else (0, chain.tenant)
    ones = (0xFFFFFFFF, 0) if stage.register == 0 else (0, 0xFFFFFFFF)
    match = _CONJ_ID + struct.pack(">I", number) + b"\x80\x00\x0a\x02" + version
    match += struct.pack(">HBBIIII", 0x8001, 1, 16, *halves, *ones)
    doing = stage.permit if rule.action is Action.PERMIT else stage.deny
    return Flow(stage.table, priority, match, doing, RULE + chain.numbers[rule.id], chain.tenant)


def _check_complete(chain: Chain, units: Mapping[int, _Unit]) -> None:
    """Every IP version in which a conjunctive rule matches has its conjunction, all of one priority."""
    by_rule: dict[str, list[_Unit]] = {}
    for unit in units.values():
        by_rule.setdefault(unit.rule.id, []).append(unit)
    for name, several in by_rule.items():
        matching = set(families(several[0].rule, chain.groups))
        if {unit.family for unit in several} != matching or len({unit.priority for unit in several}) > 1:
            raise NotEquivalent(f"the conjunctions of rule '{name}' are not one for each IP version", place=chain.place)


def _factors(rule: Rule, family: Family, chain: Chain) -> Iterator[Rule]:
    """Rules whose common packets are a rule's in one IP version, in the order of the clauses."""
    only = Addresses((whole_family(family),))
    plain = Rule(rule.id, rule.action, direction=rule.direction, source=only, destination=only)
    sides = [
        Addresses(aggregate(resolve(side, chain.groups, family))) if not side.is_any else only
        for side in (rule.source, rule.destination)
    ]
    own = [len(side.prefixes) > 1 for side in sides]
    if own[0]:
        yield replace(plain, source=sides[0])
    if own[1]:
        yield replace(plain, destination=sides[1])
    if not any(own):
        yield plain
    yield replace(
        rule, source=only if own[0] else sides[0], destination=only if own[1] else sides[1], description="", owner=""
    )


def _check_clauses(chain: Chain, units: Mapping[int, _Unit], clauses: FlowTable) -> None:
    """Every clause is exactly its factor, and all its entries have the rule's priority."""
    place: dict[tuple[int, int, int], int] = {}
    for number, unit in units.items():
        for clause in range(len(unit.factors)):
            place[number, clause, len(unit.factors)] = len(place)
    named = [[place.get(each, -1) for each in _named(octets)] or [-1] for octets in clauses.instruction_set]
    of_row = [named[index] for index in clauses.instructions.tolist()]
    row = np.repeat(np.arange(len(clauses)), [len(each) for each in of_row])
    group = np.array([each for several in of_row for each in several], np.int64)
    if (group < 0).any():
        raise _wrong(clauses.row(int(row[int((group < 0).argmax())])), "names a clause of no conjunction", chain)
    priority = np.array([unit.priority for unit in units.values() for _ in unit.factors], np.int64)
    if (clauses.priority[row] != priority[group]).any():
        wrong = int((clauses.priority[row] != priority[group]).argmax())
        raise _wrong(clauses.row(int(row[wrong])), "has not the priority of its conjunction", chain)
    items = checked_rows(clauses, chain)[row]
    order = np.argsort(group, kind="stable")
    items, group = items[order], group[order]
    factors = [factor for unit in units.values() for factor in unit.factors]
    items["rule"], items["key"] = group, group
    _check_disjoint(chain, items, factors)
    wrong, at = cover(items, wanted(factors, chain.tables(factors), chain.groups))
    if wrong != COVERED:
        rule = factors[int(items["rule"][at]) if wrong == 1 else at]
        raise NotEquivalent(f"a clause of rule '{rule.id}' is not what the rule says", place=chain.place)


def _check_disjoint(chain: Chain, items: Items, factors: Sequence[Rule]) -> None:
    """No two entries of one clause overlap: each clause gets a priority of its own, and what still clashes is its own.

    `items` are ordered by clause.
    """
    for start in range(0, len(factors), _MOST_AT_ONCE):
        some = items[(items["key"] >= start) & (items["key"] < start + _MOST_AT_ONCE)].copy()
        some["priority"] = start + _MOST_AT_ONCE - some["key"]
        clash = index_of(some).conflict()
        if clash is not None:
            rule = factors[int(some["key"][clash[0]])]
            raise NotEquivalent(f"two entries of one clause of rule '{rule.id}' overlap", place=chain.place)


def _named(octets: bytes) -> list[tuple[int, int, int]]:
    """The clauses (conjunction, clause, of how many) that an instruction list names; none if it does anything else."""
    actions = octets[8:]
    if octets[:8] != struct.pack(">HHI", 4, len(octets), 0) or len(actions) % 16:
        return []
    found = []
    for at in range(0, len(actions), 16):
        if actions[at : at + 10] != _NAMED:
            return []
        clause, clauses, number = struct.unpack_from(">BBI", actions, at + 10)
        found.append((number, clause, clauses))
    return found


def _hulls(chain: Chain, units: Mapping[int, _Unit]) -> dict[str, tuple[Rule, Rule]]:
    """A hull for every conjunctive rule, shown to hold it."""
    sides = Sides(chain.groups)
    found: dict[str, tuple[Rule, Rule]] = {}
    for unit in units.values():
        rule = unit.rule
        if rule.id in found:
            continue
        around = hull(rule, sides)
        outer = {box.family: box for box in boxes_of(around, chain.groups)}
        if not all(box.family in outer and outer[box.family].contains(box) for box in boxes_of(rule, chain.groups)):
            raise NotEquivalent(f"the hull of rule '{rule.id}' does not hold the rule", place=chain.place)
        found[rule.id] = rule, around
    return found


def _hull_rows(chain: Chain, unit: _Unit, around: Rule) -> FlowTable:
    """Rows for a hull in one IP version, at the priority of its conjunction."""
    table = atoms([around], {}, tenant=chain.tenant, numbers=chain.numbers)
    table = table.take(table.family == unit.family)
    priority = np.full(len(table), unit.priority, np.uint16)
    cookie = np.full(len(table), RULE + chain.numbers[unit.rule.id], np.uint64)
    return rule_flows(table, ROW_STAGES[unit.rule.direction], priority, cookie)


def _wrong(flow: Flow, what: str, chain: Chain) -> NotEquivalent:
    text = f"table {flow.table}, priority {flow.priority}, cookie {flow.cookie:#x}, match {flow.match.hex()}"
    return NotEquivalent(f"the flow entry of {text} {what}", place=chain.place)
