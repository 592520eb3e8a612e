"""From access lists to the rows of the rule tables: atoms, levels, priorities, cookies, flow entries.

A `CompiledList` keeps what was found on the way, so that when a few rules of a tenant's list change, the rest is taken
over: `updated` gives the same as starting from scratch, at the cost of the rules that changed, those whose level moves
with them, and copying columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.compile.atoms import MOST_ATOMS, atoms
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.instructions import DROP, instructions, set_field
from orchestrator.compile.levels import Levels, Splice, levels, packed, updated_levels
from orchestrator.compile.openflow import MOST_FLOWS, RuleStage, flow_counts, rule_flows
from orchestrator.compile.pipeline import (
    DESTINATION_TENANT,
    HIGHEST_RULE_PRIORITY,
    LOWEST_RULE_PRIORITY,
    OPERATOR_PERMIT,
    SOURCE_TENANT,
    STATIC_PRIORITY,
    Table,
)
from orchestrator.errors import AclflowError, TooLarge
from orchestrator.policy.model import Policy, ReturnTraffic, Rule, Tenant
from orchestrator.policy.oracle import RETURN_RULES
from orchestrator.program.flows import U16, FlowTable
from orchestrator.program.program import Tier
from orchestrator.program.rules import EGRESS, INGRESS, RuleTable

INGRESS_STAGE = RuleStage(Table.INGRESS, DESTINATION_TENANT.field, instructions(goto=Table.OUTPUT), DROP)
EGRESS_STAGE = RuleStage(Table.EGRESS, SOURCE_TENANT.field, instructions(goto=Table.LOCAL), DROP)
OPERATOR_STAGE = RuleStage(
    Table.OPERATOR, None, instructions([set_field(OPERATOR_PERMIT.field, 1)], goto=Table.LOCAL), DROP
)

RETURN_PRIORITY = LOWEST_RULE_PRIORITY
"""Where return traffic is admitted, its rule is the last of every list and keeps the lowest priority for itself."""

_STAGES = (
    (INGRESS, INGRESS_STAGE, Kind.INGRESS_RETURN),
    (EGRESS, EGRESS_STAGE, Kind.EGRESS_RETURN),
)


@dataclass(frozen=True, slots=True)
class _Range:
    """The priorities that the levels of a list take, from the highest downwards."""

    highest: int
    lowest: int

    def priorities(self, level: Levels, position: npt.NDArray[np.uint32], rules: Sequence[Rule]) -> U16:
        """The priority of every level; `position` says whose it is. Raises TooLarge for the first that is too low."""
        beyond = np.flatnonzero(level > self.highest - self.lowest)
        if len(beyond):
            first = int(position[beyond[0]])
            raise TooLarge(
                f"rule '{rules[first].id}' is the last of {int(level[beyond[0]]) + 1} rules that each overlap the "
                f"next; there are priorities for {self.highest - self.lowest + 1}",
                place=f"rules[{first}]",
            )
        return (self.highest - level).astype(np.uint16)


def priorities(level: Levels, table: RuleTable, rules: Sequence[Rule], *, highest: int, lowest: int) -> U16:
    """The priority of every atom of a list: level 0 has the highest. Raises TooLarge with the rule's place."""
    return _Range(highest, lowest).priorities(level, table.order, rules)


_RANGES = {
    ReturnTraffic.ESTABLISHED: _Range(HIGHEST_RULE_PRIORITY, RETURN_PRIORITY + 1),
    ReturnTraffic.EXPLICIT: _Range(HIGHEST_RULE_PRIORITY, LOWEST_RULE_PRIORITY),
}
_RULE_COOKIE = np.uint64(Cookie(Tier.HOST, Kind.RULE).pack())
_OPERATOR_COOKIE = np.uint64(Cookie(Tier.HOST, Kind.OPERATOR_RULE).pack())


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One direction of a compiled list: a row an atom in list order, and the flow entries they became.

    `position` is the atom's rule in the whole list, `count` how many flow entries the atom is.
    """

    stage: RuleStage
    atoms: npt.NDArray[Any]
    position: npt.NDArray[np.uint32]
    level: Levels
    count: npt.NDArray[np.intp]
    flows: FlowTable

    @classmethod
    def of(cls, table: RuleTable, stage: RuleStage, level: Levels) -> _Side:
        """Compile from scratch, priorities left out."""
        flows = rule_flows(table, stage, np.zeros(len(table), np.uint16), table.number | _RULE_COOKIE)
        return cls(stage, packed(table), table.order, level, flow_counts(table), flows)

    def spliced(self, change: _Change, fresh: RuleTable) -> _Side | None:
        """The direction with the atoms `fresh` where the changed rules were; None if that moves too many others.

        Priorities are left out unless nothing changed here.
        """
        first, after = np.searchsorted(self.position, (change.first, change.first + change.gone)).tolist()
        position = np.concatenate((self.position[:first], fresh.order, self.position[after:]))
        position[first + len(fresh) :] += np.uint32((change.added - change.gone) % (1 << 32))
        if first == after and not len(fresh):
            return replace(self, position=position)
        new = _Side.of(fresh, self.stage, np.zeros(len(fresh), np.int32))
        level = np.concatenate((self.level[:first], new.level, self.level[after:]))
        splice = Splice(first, len(fresh), self.atoms[first:after], self.level[first:after])
        atoms = np.concatenate((self.atoms[:first], new.atoms, self.atoms[after:]))
        followed = updated_levels(atoms, position, level, splice)
        if followed is None:
            return None
        row, row_after = int(self.count[:first].sum()), int(self.count[:after].sum())
        flows = FlowTable.joined((self.flows.part(0, row), new.flows, self.flows.part(row_after, len(self.flows))))
        if len(flows) > MOST_FLOWS:
            return None  # which from scratch is refused
        count = np.concatenate((self.count[:first], new.count, self.count[after:]))
        return _Side(self.stage, atoms, position, followed, count, flows)

    def prioritised(self, among: _Range, rules: Sequence[Rule]) -> _Side:
        """The same with the priorities that the levels give."""
        priority = np.repeat(among.priorities(self.level, self.position, rules), self.count)
        if np.array_equal(priority, self.flows.priority):
            return self
        return replace(self, flows=replace(self.flows, priority=priority))


@dataclass(frozen=True, slots=True)
class _Change:
    """From rule `first`, `gone` rules of the old list gave way to `added` of the new one."""

    first: int
    gone: int
    added: int

    @classmethod
    def between(cls, old: tuple[Rule, ...], new: tuple[Rule, ...]) -> _Change:
        first = _equal_at_start(old, new)
        last = _equal_at_start(old[: first - 1 if first else None : -1], new[: first - 1 if first else None : -1])
        return cls(first, len(old) - first - last, len(new) - first - last)


def _equal_at_start(old: tuple[Rule, ...], new: tuple[Rule, ...]) -> int:
    """How many rules two lists have in common at the start. Equal rules are mostly the same object, so slices compare
    fast, and halving finds the place for twice the cost of one comparison."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True, eq=False)
class CompiledList:
    """A tenant's rules in both directions."""

    tenant: Tenant
    returns: ReturnTraffic
    sides: tuple[_Side, ...]
    return_rows: tuple[FlowTable, ...]

    @property
    def rows(self) -> tuple[FlowTable, ...]:
        """The flow entries: one direction's, the other's, and return traffic's if the domain has that."""
        return (*(side.flows for side in self.sides), *self.return_rows)

    @classmethod
    def of(cls, tenant: Tenant, returns: ReturnTraffic) -> CompiledList:
        """Compile from scratch.

        Raises TooLarge with the rule's place if the list needs more levels than there are priorities, or more rows than
        a table can hold; BadPolicy if a rule has no number.
        """
        acl = tenant.acl
        table = atoms(acl.rules, acl.groups, tenant=tenant.number, numbers=tenant.rule_numbers)
        level = levels(table)
        sides = []
        for direction, stage, _ in _STAGES:
            mine = table.direction == direction
            side = _Side.of(table.take(mine), stage, level[mine])
            sides.append(side.prioritised(_RANGES[returns], acl.rules))
        established = returns is ReturnTraffic.ESTABLISHED
        return cls(tenant, returns, tuple(sides), tuple(_return_rows(tenant.number)) if established else ())

    def updated(self, tenant: Tenant, returns: ReturnTraffic) -> CompiledList:
        """What `of` gives, by way of what this list has in common with the new one. Raises as `of` does."""
        change = _Change.between(self.tenant.acl.rules, tenant.acl.rules)
        if returns is not self.returns or not self._serves(tenant, change):
            return CompiledList.of(tenant, returns)
        changed = tenant.acl.rules[change.first : change.first + change.added]
        try:
            fresh = atoms(changed, tenant.acl.groups, tenant=tenant.number, numbers=tenant.rule_numbers)
        except AclflowError:
            return CompiledList.of(tenant, returns)  # which names the right place
        fresh = replace(fresh, order=fresh.order + np.uint32(change.first))
        sides = []
        for side, (direction, _, _) in zip(self.sides, _STAGES, strict=True):
            spliced = side.spliced(change, fresh.take(fresh.direction == direction))
            if spliced is None:
                return CompiledList.of(tenant, returns)
            sides.append(spliced.prioritised(_RANGES[returns], tenant.acl.rules))
        if sum(len(side.atoms) for side in sides) > MOST_ATOMS:
            return CompiledList.of(tenant, returns)  # which is refused
        return CompiledList(tenant, returns, tuple(sides), self.return_rows)

    def _serves(self, tenant: Tenant, change: _Change) -> bool:
        """Whether what stays of the list means the same: same tenant, groups and numbers."""
        old, new = self.tenant, tenant
        if old.number != new.number or old.acl.groups != new.acl.groups:
            return False
        if old.rule_numbers is new.rule_numbers:
            return True
        rules = old.acl.rules
        kept = [rule.id for rule in rules[: change.first] + rules[change.first + change.gone :]]
        return list(map(old.rule_numbers.get, kept)) == list(map(new.rule_numbers.get, kept))


def operator_rows(policy: Policy) -> FlowTable:
    """The operator's rules. Their directions do not count: each is asked once, whichever way the packet goes."""
    rules = policy.operator
    table = atoms(rules, {}, numbers=policy.operator_numbers).in_one_list()
    priority = priorities(levels(table), table, rules, highest=STATIC_PRIORITY, lowest=LOWEST_RULE_PRIORITY)
    return rule_flows(table, OPERATOR_STAGE, priority, table.number | _OPERATOR_COOKIE)


def return_atoms(tenant: int) -> RuleTable:
    """The return-traffic rules of both directions, as rows of a tenant's lists."""
    return atoms(RETURN_RULES, {}, tenant=tenant)


def _return_rows(tenant: int) -> list[FlowTable]:
    table = return_atoms(tenant)
    rows = []
    for direction, stage, kind in _STAGES:
        mine = table.take(table.direction == direction)
        priority = np.full(len(mine), RETURN_PRIORITY, np.uint16)
        cookie = np.full(len(mine), Cookie(Tier.HOST, kind, tenant).pack(), np.uint64)
        rows.append(rule_flows(mine, stage, priority, cookie))
    return rows
