"""A tenant's list: plain rules compiled by `lists`, the others as conjunctions.

list    ── plain rules, and hulls for the others ──> CompiledList ──> rows of plain rules, priorities of hulls
        ── conjunctive rules, their priorities ────> clauses and deciding entries (`clauses.py`)

After a change only rules that came, and those that name a group that changed, are asked again whether they are
conjunctive; and of the entries of conjunctions only those that may be others are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.conjunctions.clauses import Placed, conjunctive_change, conjunctive_flows
from orchestrator.compile.conjunctions.conjunctive import Hull, hull, is_conjunctive, may_be_conjunctive
from orchestrator.compile.conjunctions.sides import Sides, names_groups
from orchestrator.compile.lists.edits import Hunk
from orchestrator.compile.lists.exchange import RowChange
from orchestrator.compile.lists.lists import ROW_STAGES, CompiledList
from orchestrator.compile.lists.steps import Difference
from orchestrator.policy.model import Direction, ReturnTraffic, Rule, RuleId, Tenant, trusted_acl
from orchestrator.program.flows import FlowTable

_Places = npt.NDArray[np.int64]


class _StoodFor(NamedTuple):
    """A conjunctive rule: its position in the list, and the hull in its place."""

    position: int
    rule: Rule
    hull: Hull


@dataclass(frozen=True, slots=True, eq=False)
class TenantList:
    """A tenant's rules in both directions, compiled. For `change` see `CompiledList`.

    `naming` are the positions of the rules that name groups, `logging` is how many rules log.
    """

    tenant: Tenant
    plain: CompiledList
    naming: _Places
    stood_for: tuple[_StoodFor, ...]
    placed: tuple[Placed, ...]
    logging: int
    change: RowChange | None = None

    @property
    def sides(self) -> Sides:
        """The prefixes of the rules' sides."""
        return self.plain.sides

    @property
    def rows(self) -> tuple[FlowTable, ...]:
        """The flow entries in pieces; those of conjunctions are made now."""
        return (*self.plain.rows, *self._make_conjunctions()) if self.placed else self.plain.rows

    def _make_conjunctions(self) -> list[FlowTable]:
        return [
            conjunctive_flows(_select_direction(self.placed, direction), self.sides, stage, self.tenant.number)
            for direction, stage in ROW_STAGES.items()
        ]

    @classmethod
    def of(cls, tenant: Tenant, returns: ReturnTraffic, sides: Sides | None = None) -> TenantList:
        """Compile from scratch; for `sides`, and what it raises, see `CompiledList.of`."""
        sides = Sides(tenant.acl.groups) if sides is None else sides
        rules = tenant.acl.rules
        several = [(place, rule) for place, rule in enumerate(rules) if may_be_conjunctive(rule)]
        stood_for = tuple(_conjunctive(tenant, sides, several, {}))
        plain = CompiledList.of(_with_hulls(tenant, stood_for), returns, sides)
        naming = np.array([place for place, rule in several if names_groups(rule)], np.int64)
        return cls(tenant, plain, naming, stood_for, _place_rules(plain, stood_for, tenant), _count_logging(rules))

    def update_list(self, tenant: Tenant, returns: ReturnTraffic) -> TenantList:
        """Return the result of `of`, computed from the difference to this list.

        Raises as `of` does.
        """
        difference = Difference.between(self.tenant.acl, tenant.acl, self.sides)
        if difference.groups.is_large or difference.come > self.plain.most_come:
            return TenantList.of(tenant, returns, difference.groups.after)
        rules, edit = tenant.acl.listed, difference.rules
        stay = _move_positions(self.naming, edit)
        regrouped = [] if difference.groups.nothing else _concerned_rules(stay, rules, difference)
        fresh = [place for hunk in edit for place in range(hunk.place, hunk.place + hunk.come)]
        stood_for = self._following(tenant, difference.groups.after, edit, [*fresh, *regrouped])
        named = [place for place in fresh if names_groups(rules[place])]
        naming = np.sort(np.concatenate((stay, np.array(named, np.int64))))
        if stood_for or self.stood_for:
            difference = replace(difference, rules=_with_other_hulls(edit, self.stood_for, stood_for))
        plain = self.plain.update_list(_with_hulls(tenant, stood_for), returns, difference)
        placed = _place_rules(plain, stood_for, tenant)
        logging = self.logging + _count_logging(rules[place] for place in fresh)
        logging -= _count_logging(self.tenant.acl.listed[place] for place in _list_removed_positions(edit))
        found = TenantList(tenant, plain, naming, stood_for, placed, logging, plain.change)
        if (not placed and not self.placed) or plain.change is None:
            return found
        return replace(found, change=self._add_conjunctions(plain.change, placed, difference, tenant.number))

    def _following(
        self, tenant: Tenant, sides: Sides, edit: Sequence[Hunk], places: Sequence[int]
    ) -> tuple[_StoodFor, ...]:
        """Return the conjunctive rules after an edit; rules at `places` are examined again.

        Unchanged hulls stay the same objects.
        """
        again = set(places)
        there, now = _stay(_list_positions(self.stood_for), edit)
        old = [
            each._replace(position=place)
            for each, stays, place in zip(self.stood_for, there, now, strict=True)
            if stays and place not in again
        ]
        if not again:
            return tuple(old)
        known = {each.rule.id: each.hull for each in self.stood_for}
        rules = tenant.acl.listed
        come = _conjunctive(tenant, sides, [(place, rules[place]) for place in again], known)
        return tuple(sorted([*old, *come], key=lambda each: each.position))

    def _add_conjunctions(
        self, plain: RowChange, placed: Sequence[Placed], difference: Difference, number: int
    ) -> RowChange:
        removed, added = [plain.removed], [plain.added]
        for direction, stage in ROW_STAGES.items():
            old, new = _select_direction(self.placed, direction), _select_direction(placed, direction)
            gone, come = conjunctive_change(old, new, difference.groups, stage, number)
            removed.append(gone)
            added.append(come)
        return RowChange(FlowTable.join_tables(removed), FlowTable.join_tables(added))


def _count_logging(rules: Iterable[Rule]) -> int:
    return sum(map(attrgetter("log"), rules))


def _list_removed_positions(edit: Sequence[Hunk]) -> Iterable[int]:
    return (place for hunk in edit for place in range(hunk.first, hunk.first + hunk.gone))


def _select_direction(placed: Sequence[Placed], direction: Direction) -> list[Placed]:
    return [each for each in placed if each.rule.direction is direction]


def _conjunctive(
    tenant: Tenant, sides: Sides, rules: Iterable[tuple[int, Rule]], known: Mapping[RuleId, Hull]
) -> list[_StoodFor]:
    """Return the conjunctive ones of some rules with their positions.

    Hulls in `known` are reused.
    """
    found = []
    for position, rule in rules:
        if is_conjunctive(rule, sides, tenant.rule_numbers.get(rule.id, 0)):
            fresh, before = hull(rule, sides), known.get(rule.id)
            found.append(_StoodFor(position, rule, before if before is not None and before == fresh else fresh))
    return found


def _concerned_rules(naming: _Places, rules: Sequence[Rule], difference: Difference) -> list[int]:
    """Return the rules that name a changed group, and make their sides known."""
    groups = difference.groups
    found = [place for place in naming.tolist() if groups.concerns(rules[place])]
    for place in found:
        groups.change(rules[place].source)
        groups.change(rules[place].destination)
    return found


def _stay(positions: _Places, edit: Sequence[Hunk]) -> tuple[npt.NDArray[np.bool_], list[int]]:
    """Return which positions stay after an edit, and their new values.

    Values of positions that do not stay are arbitrary.
    """
    if not len(positions):
        return np.empty(0, np.bool_), []
    first = np.array([hunk.first for hunk in edit], np.int64)
    gone = np.array([hunk.gone for hunk in edit], np.int64)
    by = np.concatenate(([0], np.cumsum([hunk.come - hunk.gone for hunk in edit]))).astype(np.int64)
    behind = np.searchsorted(first + gone, positions, "right")
    border = np.append(first, np.iinfo(np.int64).max)
    return positions < border[behind], (positions + by[behind]).tolist()


def _move_positions(positions: _Places, edit: Sequence[Hunk]) -> _Places:
    """Where those are after an edit that stay."""
    stays, now = _stay(positions, edit)
    return np.array(now, np.int64)[stays]


def _with_other_hulls(edit: Sequence[Hunk], old: Sequence[_StoodFor], new: Sequence[_StoodFor]) -> tuple[Hunk, ...]:
    """Add to an edit the rules that stayed but whose hull changed."""
    back = [Hunk(hunk.place, hunk.come, hunk.first, hunk.gone) for hunk in edit]
    pairs: dict[tuple[int, int], list[Hull]] = {}
    for each, stays, now in zip(old, *_stay(_list_positions(old), edit), strict=True):
        if stays:
            pairs.setdefault((each.position, now), []).append(each.hull)
    for each, stayed, before in zip(new, *_stay(_list_positions(new), back), strict=True):
        if stayed:
            pairs.setdefault((before, each.position), []).append(each.hull)
    others = [Hunk(was, 1, now, 1) for (was, now), hulls in pairs.items() if _hulls_differ(hulls)]
    return tuple(sorted([*edit, *others], key=lambda hunk: (hunk.first, hunk.gone)))


def _list_positions(stood_for: Sequence[_StoodFor]) -> _Places:
    return np.array([each.position for each in stood_for], np.int64)


def _hulls_differ(hulls: Sequence[Hull]) -> bool:
    return len(hulls) == 1 or hulls[0] is not hulls[1]


def _with_hulls(tenant: Tenant, stood_for: Sequence[_StoodFor]) -> Tenant:
    """The tenant with hulls where its conjunctive rules are; itself if it has none."""
    if not stood_for:
        return tenant
    rules, parts, done = tenant.acl.rules, list[Rule](), 0
    for each in stood_for:
        parts += rules[done : each.position]
        parts.append(each.hull)
        done = each.position + 1
    parts += rules[done:]
    acl = tenant.acl
    return replace(tenant, acl=trusted_acl(tuple(parts), acl.groups, acl.ingress_default, acl.egress_default))


def _place_rules(plain: CompiledList, stood_for: Sequence[_StoodFor], tenant: Tenant) -> tuple[Placed, ...]:
    """The conjunctive rules with the priorities of their hulls."""
    priorities = plain.priorities_of([each.position for each in stood_for])
    return tuple(
        Placed(each.rule, tenant.rule_numbers[each.rule.id], priority)
        for each, priority in zip(stood_for, priorities, strict=True)
        if priority is not None
    )
