"""Conjunctions after a change: what is left to be shown of them.

Which conjunctions there are follows from the entries that decide and went or came. Of each clause that changed, or that
an entry names which went or came, one of these is shown:

    a side, as before       what went and came is exactly what the side lost and found (`memberproof.py`)
    a side, new or gone     all that came is the clause; all that went was the clause
    the rest of a rule      what is left of its entries, which are few and known, with those that came, is the clause

That the entries of sides that went were there is for the caller to see to (`Blocks.replace_rows` refuses others).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from orchestrator.compile.conjunctions.conjunctive import hull
from orchestrator.compile.conjunctions.sides import Sides
from orchestrator.compile.equivalence.chain import RULE, Chain
from orchestrator.compile.equivalence.checks import COVERED, cover
from orchestrator.compile.equivalence.conjunctions import (
    Clause,
    Conjunctions,
    Unit,
    check_complete,
    check_hull,
    decider,
    is_conjunctive,
    may_be_conjunctive,
    named_clauses,
    names_clauses,
    plain_factor,
    unit_of,
    wrong_flow,
)
from orchestrator.compile.equivalence.memberproof import Regrouped, outermost, prefixes_of
from orchestrator.compile.equivalence.order import index_of
from orchestrator.compile.equivalence.provenfacts import NO_ITEMS, content, join_items, replace_items
from orchestrator.compile.equivalence.rowdecoder import Items
from orchestrator.compile.equivalence.rulesets import expected_packets
from orchestrator.compile.equivalence.shortestedit import edits_of
from orchestrator.compile.equivalence.sortedrows import checked_rows
from orchestrator.errors import NotEquivalent
from orchestrator.policy.addresses import Addresses, Family
from orchestrator.policy.model import SIDES, Rule, with_sides
from orchestrator.policy.protocols import only_family
from orchestrator.program.flows import FlowTable

_MOST_STEPS = 64


class Change(NamedTuple):
    """A change between lists: rules, groups, and the rows removed and added."""

    old: Chain
    new: Chain
    groups: Regrouped
    removed: FlowTable
    added: FlowTable


class Step(NamedTuple):
    """The conjunctions after a change, and the changed rows with hulls substituted."""

    conjunctions: Conjunctions
    removed: FlowTable
    added: FlowTable


def follow_conjunctions(known: Conjunctions, change: Change) -> Step | None:
    """Show what became of conjunctions. None: they are to be shown from scratch. Raises NotEquivalent."""
    if not known.units and not may_be_conjunctive(change.removed) and not may_be_conjunctive(change.added):
        same = known.sides.groups is change.new.groups
        return Step(known if same else Conjunctions.none(change.new), change.removed, change.added)
    gone, come = is_conjunctive(change.removed), is_conjunctive(change.added)
    sides = known.sides.follow_groups(change.new.groups)
    steps = edits_of(change.old.rules, change.new.rules, _MOST_STEPS)
    if sides.is_large or steps is None:
        return None
    rules = _Rules(
        {change.old.rules[step.old].id for step in steps if not step.is_insert},
        {change.new.rules[step.new].id: change.new.rules[step.new] for step in steps if step.is_insert},
    )
    for unit in known.units.values():
        sides.change(unit.rule.source)
        sides.change(unit.rule.destination)
    parts = change._replace(removed=change.removed.take(gone), added=change.added.take(come))
    units, touched = _units_after(known, rules, parts, sides.after)
    clauses = _check_clauses(known, units, touched, parts)
    hulls = _hulls_after(known, units, touched, change, sides.after)
    after = Conjunctions(units, hulls, sides.after, clauses)
    return Step(
        after,
        FlowTable.join_tables([change.removed.take(~gone), known.hull_rows(change.old, sorted(touched))]),
        FlowTable.join_tables([change.added.take(~come), after.hull_rows(change.new, sorted(touched))]),
    )


class _Rules(NamedTuple):
    """The ids of the rules that went, and the rules that came."""

    went: set[str]
    came: Mapping[str, Rule]


# ------------------------------------------------------------------------------------------------- which there are


def _units_after(known: Conjunctions, rules: _Rules, change: Change, sides: Sides) -> tuple[dict[int, Unit], set[int]]:
    """Return the next list's conjunctions, and the numbers of those that may differ."""
    units, touched = dict(known.units), set[int]()
    for flow in change.removed.take(~names_clauses(change.removed)).rows():
        number = (flow.cookie - RULE) << 1 | (b"\x86\xdd" in flow.match[8:14])
        unit = units.pop(number, None)
        if unit is None or flow != decider(change.old, unit):
            raise wrong_flow(flow, "was never there", change.old)
        touched.add(number)
    for number, unit in tuple(units.items()):
        if unit.rule.id in rules.went:
            units[number] = _taken_over(unit, rules.came.get(unit.rule.id), change, sides)
            touched.add(number)
        elif any(change.groups.names(getattr(unit.rule, name)) for name in SIDES):
            units[number] = Unit.of(unit.rule, unit.family, unit.priority, sides)
            touched.add(number)
    for flow in change.added.take(~names_clauses(change.added)).rows():
        number, unit = unit_of(change.new, _rule_of(flow.cookie, known, rules, change.new), flow, sides)
        if number in units:
            raise wrong_flow(flow, "decides a conjunction once more", change.new)
        units[number] = unit
        touched.add(number)
    _check_all_complete(units, touched, change)
    return units, touched


def _taken_over(unit: Unit, rule: Rule | None, change: Change, sides: Sides) -> Unit:
    """The conjunction of a rule that is another now, though the entry that decides stayed."""
    if rule is None:
        raise NotEquivalent(f"a conjunction is left of rule '{unit.rule.id}', which is no more", place=change.new.place)
    after = Unit.of(rule, unit.family, unit.priority, sides)
    if decider(change.new, after) != decider(change.old, unit):
        raise NotEquivalent(f"the conjunction of rule '{rule.id}' does what it said before", place=change.new.place)
    return after


def _rule_of(cookie: int, known: Conjunctions, rules: _Rules, chain: Chain) -> Rule | None:
    """The rule of the list that a cookie is of."""
    near = [rule for rule, _ in known.hulls.values() if rule.id not in rules.went]
    for rule in (*rules.came.values(), *near):
        if RULE + chain.numbers[rule.id] == cookie:
            return rule
    named = (rule for rule in chain.rules if rule.source.groups or rule.destination.groups)
    return next((rule for rule in named if RULE + chain.numbers[rule.id] == cookie), None)


def _check_all_complete(units: Mapping[int, Unit], touched: Iterable[int], change: Change) -> None:
    """Check that each touched rule has a conjunction for each IP version it matches in."""
    by_rule: dict[str, list[Unit]] = {}
    for number in touched:
        if number in units:
            by_rule[units[number].rule.id] = []
    for unit in units.values():
        if unit.rule.id in by_rule:
            by_rule[unit.rule.id].append(unit)
    for mine in by_rule.values():
        rule, sets = mine[0].rule, change.groups.after
        check_complete(
            change.new,
            mine,
            {
                family
                for family in Family
                if only_family(rule.protocol) in (None, family)
                and all(sets.has_any(getattr(rule, name), family) for name in SIDES)
            },
        )


# --------------------------------------------------------------------------------------------------- their clauses


class _Moved(NamedTuple):
    """A clause's items removed and added, and those it had, where known."""

    gone: Items
    come: Items
    left: Items = NO_ITEMS


def _check_clauses(
    known: Conjunctions, units: Mapping[int, Unit], touched: set[int], change: Change
) -> dict[Clause, Items]:
    """Check every clause that may have changed against its rule.

    Returns the items of clauses that are no sides.
    """
    gone = _by_clause(change.removed, change.old)
    come = _by_clause(change.added, change.new)
    clauses = {
        Clause(number, clause, some[number].clauses)
        for some in (known.units, units)
        for number in touched
        if number in some
        for clause in range(some[number].clauses)
    }
    rest = dict(known.rest)
    for each in clauses | gone.keys() | come.keys():
        moved = _Moved(gone.get(each, NO_ITEMS), come.get(each, NO_ITEMS))
        was = _unit_with(known.units, each, moved.gone, change.old)
        now = _unit_with(units, each, moved.come, change.new)
        items = _check_clause(each.clause, was, now, moved._replace(left=rest.pop(each, NO_ITEMS)), change)
        if items is not None:
            rest[each] = items
    return rest


def _by_clause(rows: FlowTable, chain: Chain) -> dict[Clause, Items]:
    """The items of entries by the clauses that they name."""
    entries = rows.take(names_clauses(rows))
    items = checked_rows(entries, chain)
    named = [named_clauses(data) for data in entries.instruction_set]
    places: defaultdict[Clause, list[int]] = defaultdict(list)
    for row, which in enumerate(entries.instructions.tolist()):
        if not named[which]:
            raise wrong_flow(entries.row(row), "names no clause", chain)
        for each in named[which]:
            places[each].append(row)
    return {each: items[mine] for each, mine in places.items()}


def _unit_with(units: Mapping[int, Unit], clause: Clause, items: Items, chain: Chain) -> Unit | None:
    """Return the conjunction of a clause whose items have its priority.

    None where no items say there is one.
    """
    unit = units.get(clause.conjunction)
    if unit is not None and (clause.clauses != unit.clauses or clause.clause >= unit.clauses):
        unit = None
    if len(items) and (unit is None or (items["priority"] != unit.priority).any()):
        raise NotEquivalent(f"a flow entry names clause {clause.clause} of no conjunction", place=chain.place)
    return unit


def _check_clause(clause: int, was: Unit | None, now: Unit | None, moved: _Moved, change: Change) -> Items | None:
    """Check one clause after its items changed; return its items, if it is no side."""
    if was is not None and now is not None and _is_same_side(was, now, clause):
        _check_part(was, now, clause, moved, change)
        return None
    left = moved.left
    if was is not None and was.side_of(clause) is None:
        left = replace_items(left, moved.gone, NO_ITEMS, change.old.place)
    elif was is not None:
        _check_exact(was.factors(change.old)[clause], was, moved.gone, change.old)
    items = join_items((left, moved.come))
    if now is None:
        if len(items):
            raise NotEquivalent(f"a clause is left of no conjunction, {clause}", place=change.new.place)
        return None
    _check_exact(now.factors(change.new)[clause], now, items, change.new)
    return items if now.side_of(clause) is None else None


def _is_same_side(was: Unit, now: Unit, clause: int) -> bool:
    """Return whether a clause is the same side in two states of a conjunction."""
    same_place = was.priority == now.priority and was.rule.direction is now.rule.direction
    return same_place and was.side_of(clause) is not None and was.side_of(clause) == now.side_of(clause)


def _check_part(was: Unit, now: Unit, clause: int, moved: _Moved, change: Change) -> None:
    """Hold what went and came of a side to be what it lost and found."""
    name = now.side_of(clause)
    assert name is not None
    sides = getattr(was.rule, name), getattr(now.rule, name)
    gone, come = _without_common(moved.gone, moved.come)
    touched = [*prefixes_of(gone, name), *prefixes_of(come, name)]
    if None in touched:
        raise _refuse_clause(now, change.new)
    places = outermost([*(each for each in touched if each is not None), *change.groups.places_apart(*sides)])
    plain = plain_factor(now.rule, now.family)
    for sets, side, items in ((change.groups.before, sides[0], gone), (change.groups.after, sides[1], come)):
        part = tuple(each for place in places if place.family is now.family for each in sets.within(side, place))
        if part:
            _check_exact(with_sides(plain, {name: Addresses(part)}), now, items, change.new)
        elif len(items):
            raise _refuse_clause(now, change.new)


def _check_exact(factor: Rule, unit: Unit, items: Items, chain: Chain) -> None:
    """Check that items are disjoint, exactly a rule, and of the conjunction's priority."""
    own = items.copy()
    if len({*own["priority"].tolist(), unit.priority}) > 1:
        raise NotEquivalent(
            f"entries of rule '{unit.rule.id}' have not the priority of its conjunction", place=chain.place
        )
    own["rule"] = own["key"] = 0
    if index_of(own).conflict() is not None:
        raise NotEquivalent(f"two entries of one clause of rule '{unit.rule.id}' overlap", place=chain.place)
    if cover(own, expected_packets((factor,), chain.tables((factor,)), chain.groups))[0] != COVERED:
        raise _refuse_clause(unit, chain)


def _without_common(gone: Items, come: Items) -> tuple[Items, Items]:
    """Return removed and added items without common ones: entries that name others besides."""
    keys = [content(item) for item in gone], [content(item) for item in come]
    common = set(keys[0]) & set(keys[1])
    if any(len(set(mine)) != len(mine) for mine in keys):
        return gone, come
    left, new = (np.array([key not in common for key in mine], np.bool_) for mine in keys)
    return gone[left], come[new]


def _refuse_clause(unit: Unit, chain: Chain) -> NotEquivalent:
    return NotEquivalent(f"a clause of rule '{unit.rule.id}' is not what the rule says", place=chain.place)


# ----------------------------------------------------------------------------------------------------- their hulls


def _hulls_after(
    known: Conjunctions, units: Mapping[int, Unit], touched: set[int], change: Change, sides: Sides
) -> dict[str, tuple[Rule, Rule]]:
    """Return the hulls of rules with conjunctions; changed ones are proven to hold their rules."""
    rules: dict[str, Rule] = {unit.rule.id: unit.rule for unit in units.values()}
    again = {units[number].rule.id for number in touched if number in units}
    found: dict[str, tuple[Rule, Rule]] = {}
    for name, rule in rules.items():
        before = known.hulls.get(name)
        if name not in again and before is not None:
            found[name] = before
            continue
        around = hull(rule, sides)
        if before is not None and before[1] == around:
            around = before[1]
        if before is None or before[1] is not around or before[0] is not rule or not _still_holds(rule, around, change):
            check_hull(change.new, rule, around)
        found[name] = rule, around
    return found


def _still_holds(rule: Rule, around: Rule, change: Change) -> bool:
    """Whether a hull that held its rule holds the members that came, too."""
    for name in SIDES:
        outer = getattr(around, name)
        for place in change.groups.other_places(getattr(rule, name)):
            for part in change.groups.after.within(getattr(rule, name), place):
                if not outer.is_any and not any(each.contains(part) for each in outer.prefixes):
                    return False
    return True
