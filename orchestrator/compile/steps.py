"""From one version of a tenant's list to the next: which rules go and come, and which gain or lose atoms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.compile.edits import Hunk, hunks
from orchestrator.compile.labels import Labels
from orchestrator.compile.members import Members, RuleChange
from orchestrator.policy.model import Rule, Tenant
from orchestrator.policy.numbers import RuleNumbers


class Labelled(NamedTuple):
    """A rule, or one that stands for some atoms of a rule, and the rule's label."""

    label: int
    rule: Rule


@dataclass(frozen=True, slots=True)
class Step:
    """What a change comes to, by ascending label.

    `gone` are ranges of labels (from, up to and with) whose rules go with all their atoms; the atoms of `lost` go too;
    those of `come` are new. A rule may be in several of them.
    """

    labels: Labels
    members: Members | None
    gone: tuple[tuple[int, int], ...]
    lost: tuple[Labelled, ...]
    come: tuple[Labelled, ...]

    @classmethod
    def between(cls, old: Tenant, new: Tenant, labels: Labels, members: Members | None) -> Step | None:
        """From the list of `old`, whose rules have `labels`; None where starting from scratch is called for.

        `members` is what the step before left, if there was one.
        """
        edit = hunks(old.acl.rules, new.acl.rules)
        if old.number != new.number or not _same_numbers(old, new, edit):
            return None
        followed, edit, fresh = labels.edited(edit)
        going = [labels.between(hunk.first, hunk.first + hunk.gone).tolist() for hunk in edit]
        rules = [rule for hunk in edit for rule in new.acl.rules[hunk.place : hunk.place + hunk.come]]
        coming = [label for part in fresh for label in part.tolist()]
        groups = _Regrouped.of(old, new, labels, members, [label for part in going for label in part])
        if groups is None:
            return None
        come = [Labelled(*both) for both in zip(coming, rules, strict=True)]
        return cls(
            followed,
            groups.members and groups.members.joined_by(coming, rules),
            (*((part[0], part[-1]) for part in going if part), *((label, label) for label in groups.anew)),
            tuple(Labelled(change.label, change.lost) for change in groups.changes if change.lost is not None),
            tuple(sorted((*come, *groups.come()), key=lambda each: each.label)),
        )


@dataclass(frozen=True, slots=True)
class _Regrouped:
    """The rules that stay, after the change of groups."""

    members: Members | None
    changes: Sequence[RuleChange]

    @classmethod
    def of(
        cls, old: Tenant, new: Tenant, labels: Labels, members: Members | None, gone: Sequence[int]
    ) -> _Regrouped | None:
        before, after = old.acl.groups, new.acl.groups
        if before is after or all(before.get(name) is group for name, group in after.items()):
            return cls(members and members.without(gone), ())
        known = members or Members.of(labels.between(0, len(labels)).tolist(), old.acl.rules)
        found = known.without(gone).regrouped(before, after)
        return None if found is None else cls(*found)

    @property
    def anew(self) -> list[int]:
        """The labels of the rules whose atoms are all made anew."""
        return [change.label for change in self.changes if change.anew]

    def come(self) -> list[Labelled]:
        """What stands for the atoms that rules gain."""
        some = ((change.label, change.rule if change.anew else change.found) for change in self.changes)
        return [Labelled(label, rule) for label, rule in some if rule is not None]


def _same_numbers(old: Tenant, new: Tenant, edit: Sequence[Hunk]) -> bool:
    """Whether the rules that stay keep their numbers."""
    before, after = old.rule_numbers, new.rule_numbers
    if before is after:
        return True
    gone = {rule.id for hunk in edit for rule in old.acl.rules[hunk.first : hunk.first + hunk.gone]}
    changed = after.differing(before) if isinstance(after, RuleNumbers) and isinstance(before, RuleNumbers) else None
    if changed is not None:
        come = {rule.id for hunk in edit for rule in new.acl.rules[hunk.place : hunk.place + hunk.come]}
        return changed <= gone | come
    stay = [rule.id for rule in old.acl.rules if rule.id not in gone]
    return list(map(_plain(before).get, stay)) == list(map(_plain(after).get, stay))


def _plain(numbers: Mapping[str, int]) -> Mapping[str, int]:
    return numbers.as_dict() if isinstance(numbers, RuleNumbers) else numbers
