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

import orjson
from sqlalchemy import Row, bindparam, insert, select, update

from orchestrator.errors import BadInput
from orchestrator.policy.formats.native import group_to_json
from orchestrator.policy.model import Acl, Rule
from orchestrator.store import aclrows
from orchestrator.store.keys import keys_between, longest_increasing
from orchestrator.store.schema import acl_groups, acl_rules
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """Names of groups whose rows end, and rows that begin: (name, body)."""

    ended: tuple[str, ...]
    begun: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a replacement comes to. `kept` gives the order keys of the rules, by index, whose rows stay."""

    before: Sequence[Row[Any]]
    rules: tuple[Rule, ...]
    bodies: tuple[str, ...]
    kept: Mapping[int, int]
    groups: GroupChanges

    @property
    def nothing(self) -> bool:
        """Whether the rules and groups are those that are there."""
        same_rules = len(self.kept) == len(self.before) == len(self.rules)
        return same_rules and not self.groups.ended and not self.groups.begun


def compare(tx: Transaction, tenant: int, acl: Acl) -> Replacement:
    """Read a tenant's current rows and see what `acl` changes. Raises BadInput."""
    bodies = tuple([aclrows.body_of(rule, f"rules[{index}]") for index, rule in enumerate(acl.rules)])
    before = tx.read(aclrows.current_rows(tenant).order_by(acl_rules.c.order_key)).all()
    by_id = {row.rule_id: row for row in before}
    same = []
    for index, rule in enumerate(acl.rules):
        row = by_id.get(rule.id)
        if row is not None and row.body == bodies[index]:
            same.append((index, row.order_key))
    run = longest_increasing([key for _, key in same])
    kept = dict([same[place] for place in run])
    return Replacement(before, acl.rules, bodies, kept, _group_changes(tx, tenant, acl))


def carry_out(tx: Transaction, tenant: int, version: int, plan: Replacement) -> tuple[array[int], dict[str, int]]:
    """End and begin rows; returns the order keys of the rules and the numbers of their ids."""
    kept = plan.kept
    keys = _spread(kept, len(plan.rules))
    if keys is None:
        kept = {}
        keys = _spread(kept, len(plan.rules))
        assert keys is not None
    if kept:
        staying = set(kept.values())
        aclrows.end_rows(tx, tenant, version, [row for row in plan.before if row.order_key not in staying])
    else:
        aclrows.end_all(tx, tenant, version)
    numbers = _numbers(tx, plan)
    begun = (
        aclrows.new_row(rule, keys[index], numbers[rule.id], plan.bodies[index])
        for index, rule in enumerate(plan.rules)
        if index not in kept
    )
    aclrows.begin_rows(tx, tenant, version, begun)
    _write_groups(tx, tenant, version, plan.groups)
    return keys, numbers


def _spread(kept: Mapping[int, int], count: int) -> array[int] | None:
    """Order keys for `count` rules of which some have theirs; None where a gap has no room."""
    keys = array("q")
    fixed = [*sorted(kept), count]
    for index in fixed:
        missing = index - len(keys)
        if missing:
            found = keys_between(keys[-1] if keys else None, kept.get(index), missing)
            if found is None:
                return None
            keys.extend(found)
        if index < count:
            keys.append(kept[index])
    return keys


def _numbers(tx: Transaction, plan: Replacement) -> dict[str, int]:
    old = {row.rule_id: row.number for row in plan.before}
    unknown = [rule.id for rule in plan.rules if rule.id not in old]
    fresh = tx.draw("rule", len(unknown)) if unknown else 0
    old.update((rule_id, fresh + offset) for offset, rule_id in enumerate(unknown))
    return {rule.id: old[rule.id] for rule in plan.rules}


def _group_changes(tx: Transaction, tenant: int, acl: Acl) -> GroupChanges:
    columns = acl_groups.c
    old = {
        row.name: row.body
        for row in tx.read(
            select(columns.name, columns.body).where(columns.tenant == tenant, columns.until_version.is_(None))
        )
    }
    new = {}
    for name, group in acl.groups.items():
        if name != group.name:
            raise BadInput(f"the group is called '{group.name}' in itself", place=f"groups.{name}")
        new[name] = orjson.dumps(group_to_json(group)).decode()
    return GroupChanges(
        ended=tuple(name for name, body in old.items() if new.get(name) != body),
        begun=tuple((name, body) for name, body in new.items() if old.get(name) != body),
    )


def _write_groups(tx: Transaction, tenant: int, version: int, changes: GroupChanges) -> None:
    columns = acl_groups.c
    if changes.ended:
        end = (
            update(acl_groups)
            .where(columns.tenant == tenant, columns.until_version.is_(None), columns.name == bindparam("of_name"))
            .values(until_version=version)
        )
        tx.write(end, [{"of_name": name} for name in changes.ended])
    if changes.begun:
        begun = [
            {"tenant": tenant, "since_version": version, "name": name, "body": body} for name, body in changes.begun
        ]
        tx.write(insert(acl_groups), begun)
