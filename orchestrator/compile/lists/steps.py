"""The change between two versions of a list: rules and atoms removed and added.

The difference is computed once, by whoever has both lists (`Difference`), and handed down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.compile.conjunctions.sides import Members, Regrouping, RuleChange, Sides
from orchestrator.compile.lists.edits import Hunk, hunks_of
from orchestrator.compile.lists.labels import Labels
from orchestrator.policy.model import Acl, Rule, Tenant
from orchestrator.policy.numbers import RuleNumbers


class Labelled(NamedTuple):
    """A rule, or one for some atoms of a rule, and the rule's label."""

    label: int
    rule: Rule


@dataclass(frozen=True, slots=True)
class Step:
    """The effect of a change, by ascending label.

    `gone` are ranges of labels (from, up to and with) whose rules go with all their atoms; the atoms of `lost` go too;
    those of `come` are new. A rule may be in several of them.
    """

    labels: Labels
    members: Members | None
    gone: tuple[tuple[int, int], ...]
    lost: tuple[Labelled, ...]
    come: tuple[Labelled, ...]

    @classmethod
    def between(
        cls, old: Tenant, new: Tenant, labels: Labels, members: Members | None, difference: Difference
    ) -> Step | None:
        """Compute the step from `old`, whose rules have `labels`.

        None where starting from scratch is better.

        `members` is what the step before left, if there was one.
        """
        edit, groups = difference.rules, difference.groups
        if old.number != new.number or groups.is_large or not same_numbers(old, new, edit):
            return None
        followed, edit, fresh = labels.edit_labels(edit)
        going = [labels.between(hunk.first, hunk.first + hunk.gone).tolist() for hunk in edit]
        rules = [rule for hunk in edit for rule in new.acl.listed[hunk.place : hunk.place + hunk.come]]
        coming = [label for part in fresh for label in part.tolist()]
        if members is None and not groups.nothing:
            members = Members.of(labels.between(0, len(labels)).tolist(), old.acl.rules)
        stay = members and members.without([label for part in going for label in part])
        changes = stay.concerned_rules(groups) if stay else ()
        come = [Labelled(*both) for both in zip(coming, rules, strict=True)]
        anew = [each.label for each in changes if each.anew]
        return cls(
            followed,
            stay and stay.joined_by(coming, rules),
            (*((part[0], part[-1]) for part in going if part), *((label, label) for label in anew)),
            tuple(Labelled(change.label, change.lost) for change in changes if change.lost is not None),
            tuple(sorted((*come, *_gained_rules(changes)), key=lambda each: each.label)),
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two lists: rules removed and added, and changed sides of others."""

    rules: tuple[Hunk, ...]
    groups: Regrouping

    @classmethod
    def between(cls, old: Acl, new: Acl, sides: Sides) -> Difference:
        """Return the difference from the list of `old`, whose sides are known."""
        return cls(hunks_of(old.listed, new.listed), sides.follow_groups(new.groups))

    @property
    def come(self) -> int:
        """How many rules came."""
        return sum(hunk.come for hunk in self.rules)


def _gained_rules(changes: Sequence[RuleChange]) -> list[Labelled]:
    """Return rules for the atoms that rules gain."""
    some = ((change.label, change.rule if change.anew else change.found) for change in changes)
    return [Labelled(label, rule) for label, rule in some if rule is not None]


def same_numbers(old: Tenant, new: Tenant, edit: Sequence[Hunk]) -> bool:
    """Whether the rules that stay keep their numbers."""
    before, after = old.rule_numbers, new.rule_numbers
    if before is after:
        return True
    gone = {rule.id for hunk in edit for rule in old.acl.listed[hunk.first : hunk.first + hunk.gone]}
    changed = after.differing(before) if isinstance(after, RuleNumbers) and isinstance(before, RuleNumbers) else None
    if changed is not None:
        come = {rule.id for hunk in edit for rule in new.acl.listed[hunk.place : hunk.place + hunk.come]}
        return changed <= gone | come
    stay = [rule.id for rule in old.acl.rules if rule.id not in gone]
    return list(map(_make_plain(before).get, stay)) == list(map(_make_plain(after).get, stay))


def _make_plain(numbers: Mapping[str, int]) -> Mapping[str, int]:
    return numbers.as_dict() if isinstance(numbers, RuleNumbers) else numbers
