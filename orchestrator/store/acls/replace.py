"""Replacing a whole list while touching only the rows that differ.

A row stays if its rule is the same, byte for byte, and if the rows that stay are in the order they had: those on a
longest increasing run of order keys. All other rows of the old list end, and the rules that have no row begin between
those that stay. Where a gap has no room left, every row ends and begins anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from orchestrator.policy.model import Acl, Rule
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.store.acls import grouprows
from orchestrator.store.acls import rows as aclrows
from orchestrator.store.acls.grouprows import GroupPlan
from orchestrator.store.schema.acls import acl_rules
from orchestrator.store.sql.keys import longest_increasing, spread
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Replacement:
    """A planned replacement.

    `kept` gives the order keys of the rules, by index, whose rows stay.
    """

    before: Sequence[Row[Any]]
    rules: tuple[Rule, ...]
    bodies: tuple[str, ...]
    kept: Mapping[int, int]
    groups: GroupPlan

    @property
    def nothing(self) -> bool:
        """Whether the rules and groups are those that are there."""
        same_rules = len(self.kept) == len(self.before) == len(self.rules)
        return same_rules and not self.groups.changes


def compare(tx: Transaction, tenant: int, acl: Acl) -> Replacement:
    """Read a tenant's current rows and see what `acl` changes. Raises BadInput, TooLarge."""
    bodies = aclrows.bodies_of(acl.rules)
    before = tx.read(aclrows.current_rows(tenant).order_by(acl_rules.c.order_key)).all()
    by_id = {row.rule_id: row for row in before}
    same = []
    for index, rule in enumerate(acl.rules):
        row = by_id.get(rule.id)
        if row is not None and row.body == bodies[index]:
            same.append((index, row.order_key))
    run = longest_increasing([key for _, key in same])
    kept = dict([same[place] for place in run])
    return Replacement(before, acl.rules, bodies, kept, grouprows.plan_groups(tx, tenant, acl.groups))


def carry_out(tx: Transaction, tenant: int, version: int, plan: Replacement) -> tuple[array[int], RuleNumbers]:
    """End and begin rows; return the rules' order keys and their ids' numbers."""
    kept = plan.kept
    keys = spread(kept, len(plan.rules))
    if keys is None:
        kept = {}
        keys = spread(kept, len(plan.rules))
        assert keys is not None
    if kept:
        staying = set(kept.values())
        aclrows.end_rows(tx, tenant, version, [row for row in plan.before if row.order_key not in staying])
    else:
        aclrows.end_all(tx, tenant, version, plan.before)
    numbers = _number_rules(tx, tenant, plan)
    begun = (
        aclrows.new_row(rule, key, numbers[rule.id], body)
        for index, (rule, key, body) in enumerate(zip(plan.rules, keys, plan.bodies, strict=True))
        if index not in kept
    )
    aclrows.fill(tx, tenant, version, begun)
    grouprows.write(tx, tenant, version, plan.groups.changes)
    return keys, RuleNumbers(numbers)


def _number_rules(tx: Transaction, tenant: int, plan: Replacement) -> dict[str, int]:
    old = {row.rule_id: row.number for row in plan.before}
    ids = [rule.id for rule in plan.rules]
    old |= aclrows.past_numbers(tx, tenant, [rule_id for rule_id in ids if rule_id not in old])
    unknown = [rule_id for rule_id in ids if rule_id not in old]
    fresh = tx.draw("rule", len(unknown)) if unknown else 0
    old.update(zip(unknown, range(fresh, fresh + len(unknown)), strict=True))
    return dict(zip(ids, map(old.__getitem__, ids), strict=True))
