"""A tenant's list with its conjunctive rules: the plain ones as `lists` compiles them, the others as conjunctions.

list    ── plain rules, and hulls for the others ──> CompiledList ──> rows of plain rules, priorities of hulls
        ── conjunctive rules, their priorities ────> clauses and deciding entries, made anew when one of them moves
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from orchestrator.compile.conjunctive import Hull, Placed, Sides, conjunctive_flows, hull, is_conjunctive
from orchestrator.compile.edits import Hunk, hunks
from orchestrator.compile.exchange import RowChange
from orchestrator.compile.lists import ROW_STAGES, CompiledList
from orchestrator.policy.model import ReturnTraffic, Rule, RuleId, Tenant, trusted_acl
from orchestrator.program.delta import difference
from orchestrator.program.flows import FlowTable


class _StoodFor(NamedTuple):
    """A conjunctive rule: its position in the list, and the hull that stands there for it."""

    position: int
    rule: Rule
    hull: Hull


@dataclass(frozen=True, slots=True, eq=False)
class TenantList:
    """A tenant's rules in both directions, compiled. For `rows` and `change` see `CompiledList`."""

    tenant: Tenant
    plain: CompiledList
    sides: Sides
    stood_for: tuple[_StoodFor, ...]
    placed: tuple[Placed, ...]
    conjunctions: FlowTable
    change: RowChange | None = None

    @property
    def rows(self) -> tuple[FlowTable, ...]:
        """The flow entries in pieces."""
        return (*self.plain.rows, self.conjunctions) if self.placed else self.plain.rows

    @classmethod
    def of(cls, tenant: Tenant, returns: ReturnTraffic) -> TenantList:
        """Compile from scratch. Raises as `CompiledList.of` does."""
        sides = Sides(tenant.acl.groups)
        stood_for = tuple(_conjunctive(tenant, sides, enumerate(tenant.acl.rules), {}))
        plain = CompiledList.of(_with_hulls(tenant, stood_for), returns)
        placed = _placed(plain, stood_for, tenant)
        return cls(tenant, plain, sides, stood_for, placed, _conjunctions(placed, sides, tenant.number))

    def updated(self, tenant: Tenant, returns: ReturnTraffic) -> TenantList:
        """What `of` gives, by way of what this list has in common with the new one. Raises as `of` does."""
        same = tenant.acl.groups is self.tenant.acl.groups or tenant.acl.groups == self.tenant.acl.groups
        sides = self.sides if same else Sides(tenant.acl.groups)
        edit = hunks(self.tenant.acl.rules, tenant.acl.rules)
        stood_for = self._following(tenant, sides, edit, regrouped=not same)
        if not stood_for and not self.stood_for:
            plain = self.plain.updated(tenant, returns)
            return replace(self, tenant=tenant, plain=plain, sides=sides, change=plain.change)
        plain = self.plain.updated(_with_hulls(tenant, stood_for), returns)
        placed = _placed(plain, stood_for, tenant)
        if same and placed == self.placed:
            return TenantList(tenant, plain, sides, stood_for, placed, self.conjunctions, plain.change)
        conjunctions = _conjunctions(placed, sides, tenant.number)
        change = plain.change and _both(plain.change, difference(self.conjunctions, conjunctions))
        return TenantList(tenant, plain, sides, stood_for, placed, conjunctions, change)

    def _following(
        self, tenant: Tenant, sides: Sides, edit: Sequence[Hunk], *, regrouped: bool
    ) -> tuple[_StoodFor, ...]:
        """The conjunctive rules after an edit. Where groups changed, rules that name groups are looked at again; hulls
        that stay the same are the same objects."""
        rules = tenant.acl.rules
        places = {place for hunk in edit for place in range(hunk.place, hunk.place + hunk.come)}
        kept = _moved(self.stood_for, edit)
        if regrouped:
            places.update([place for place, rule in enumerate(rules) if rule.source.groups or rule.destination.groups])
            kept = [each for each in kept if each.position not in places]
        known = {each.rule.id: each.hull for each in self.stood_for}
        come = _conjunctive(tenant, sides, [(place, rules[place]) for place in places], known)
        return tuple(sorted([*kept, *come], key=lambda each: each.position))


_NOTHING = FlowTable.of(())


def _conjunctive(
    tenant: Tenant, sides: Sides, rules: Iterable[tuple[int, Rule]], known: Mapping[RuleId, Hull]
) -> list[_StoodFor]:
    """The conjunctive ones of some rules with their positions; hulls that are `known` already are used again."""
    found = []
    for position, rule in rules:
        if is_conjunctive(rule, sides, tenant.rule_numbers.get(rule.id, 0)):
            fresh, before = hull(rule, sides), known.get(rule.id)
            found.append(_StoodFor(position, rule, before if before is not None and before == fresh else fresh))
    return found


def _moved(stood_for: Sequence[_StoodFor], edit: Sequence[Hunk]) -> list[_StoodFor]:
    """Those that stay after an edit, where they are then."""
    kept, hunk, by = [], 0, 0
    for each in stood_for:
        while hunk < len(edit) and edit[hunk].first + edit[hunk].gone <= each.position:
            by += edit[hunk].come - edit[hunk].gone
            hunk += 1
        if hunk == len(edit) or each.position < edit[hunk].first:
            kept.append(each._replace(position=each.position + by))
    return kept


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


def _placed(plain: CompiledList, stood_for: Sequence[_StoodFor], tenant: Tenant) -> tuple[Placed, ...]:
    """The conjunctive rules with the priorities of their hulls."""
    priorities = plain.priorities_of([each.position for each in stood_for])
    return tuple(
        Placed(each.rule, tenant.rule_numbers[each.rule.id], priority)
        for each, priority in zip(stood_for, priorities, strict=True)
        if priority is not None
    )


def _conjunctions(placed: Sequence[Placed], sides: Sides, tenant: int) -> FlowTable:
    if not placed:
        return _NOTHING
    return FlowTable.joined(
        [
            conjunctive_flows([each for each in placed if each.rule.direction is direction], sides, stage, tenant)
            for direction, stage in ROW_STAGES.items()
        ]
    )


def _both(change: RowChange, other: tuple[FlowTable, FlowTable]) -> RowChange:
    return RowChange(FlowTable.joined([change.removed, other[0]]), FlowTable.joined([change.added, other[1]]))
