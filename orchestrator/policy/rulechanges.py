"""The changes between two access lists by rule: added, removed, changed, moved.

`difference.py` says which packets fare otherwise; this module says which rules an author would say that were edited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from orchestrator.policy.alignment import common
from orchestrator.policy.model import Acl, Direction, Rule, RuleId

Kind = Literal["added", "removed", "changed", "moved"]


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One changed rule.

    `before` is None for an added rule, `after` for a removed one.
    """

    id: RuleId
    kind: Kind
    before: Rule | None
    after: Rule | None


@dataclass(frozen=True, slots=True)
class ListChanges:
    """All edits between two lists: rules, groups by name, and changed defaults."""

    rules: tuple[RuleChange, ...]
    groups: tuple[str, ...]
    defaults: tuple[Direction, ...]

    def __bool__(self) -> bool:
        return bool(self.rules or self.groups or self.defaults)


def list_changes(before: Acl, after: Acl) -> ListChanges:
    """Return the edits.

    Removed rules come first, in the order of `before`; the others in the order of `after`.
    """
    groups = sorted(
        name for name in {*before.groups, *after.groups} if before.groups.get(name) != after.groups.get(name)
    )
    defaults = tuple(way for way in Direction if before.default(way) is not after.default(way))
    return ListChanges(tuple(_list_changes(before, after)), tuple(groups), defaults)


def _list_changes(before: Acl, after: Acl) -> Iterator[RuleChange]:
    old = {rule.id: rule for rule in before.rules}
    new = {rule.id: rule for rule in after.rules}
    for name, rule in old.items():
        if name not in new:
            yield RuleChange(name, "removed", rule, None)
    old_order = [name for name in old if name in new]
    in_place = {old_order[index] for index, _ in common(old_order, [name for name in new if name in old])}
    for name, rule in new.items():
        if name not in old:
            yield RuleChange(name, "added", None, rule)
        elif old[name] != rule:
            yield RuleChange(name, "changed", old[name], rule)
        elif name not in in_place:
            yield RuleChange(name, "moved", old[name], rule)
