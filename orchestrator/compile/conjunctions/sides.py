"""The prefixes of rules' sides, and which rules change when address groups change.

A side stands for the shortest list of prefixes that covers its own and its groups' (`covers.py`). Each distinct side is
worked out once, when first asked about, and followed from then on: a member more or less of a group of ten thousand
costs the member, not the group.

A rule that names groups loses the atoms of the prefixes that its side lost, and gets those of the prefixes that it
found; the rest of its atoms stay (`Members`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from orchestrator.compile.conjunctions.covers import Cover, PrefixChange
from orchestrator.compile.lists.edits import hunks
from orchestrator.policy.addresses import Addresses, Family, Prefix, everything
from orchestrator.policy.model import AddressGroup, Rule, with_sides
from orchestrator.policy.protocols import only_family

Groups = Mapping[str, AddressGroup]

MOST_CHANGED = 1024
"""If more members of a group went and came, starting from scratch is the faster way."""

_MOST_KNOWN = 1 << 16
"""So many sides are remembered."""

_FAMILY = attrgetter("family")


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """The prefixes of sides under some groups, disjoint.

    Only its cache changes.
    """

    groups: Groups
    _known: dict[Addresses, Cover] = field(default_factory=dict)

    def cover(self, side: Addresses) -> Cover:
        """The prefixes of a side that is not `any`, and what they cover."""
        found = self._known.get(side)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[side] = Cover.of(_list_members(side, self.groups))
        return found

    def of(self, side: Addresses, family: Family) -> Sequence[Prefix]:
        """The prefixes of a side in one IP version, sorted."""
        if side.is_any:
            return (everything(family),)
        prefixes = self.cover(side).prefixes
        border = bisect_left(prefixes, Family.IPV6, key=_FAMILY)
        return prefixes[:border] if family is Family.IPV4 else prefixes[border:]

    def count(self, side: Addresses, family: Family) -> int:
        """How many prefixes a side has in one IP version."""
        if side.is_any:
            return 1
        prefixes = self.cover(side).prefixes
        border = bisect_left(prefixes, Family.IPV6, key=_FAMILY)
        return border if family is Family.IPV4 else len(prefixes) - border

    def size(self, side: Addresses) -> int:
        """Return an upper bound of a side's prefixes, without computing them."""
        return len(side.prefixes) + sum(len(self.groups[name].prefixes) for name in side.groups)

    def families(self, rule: Rule) -> tuple[Family, ...]:
        """The IP versions in which a rule matches at all."""
        only = only_family(rule.protocol)
        return tuple(
            each
            for each in Family
            if only in (None, each) and self.count(rule.source, each) and self.count(rule.destination, each)
        )

    def follow_groups(self, groups: Groups) -> Regrouping:
        """Return the prefixes of sides under other groups, and the differences."""
        if groups is self.groups:
            return Regrouping(self, self, {})
        changes = {
            name: _prefix_change(self.groups[name], group) for name, group in groups.items() if name in self.groups
        }
        touched = {name: change for name, change in changes.items() if not change.nothing}
        same = {side: cover for side, cover in self._known.items() if touched.keys().isdisjoint(side.groups)}
        return Regrouping(self, Sides(groups, same), touched)


class Regrouping:
    """The change from the groups of `before` to those of `after`, by side."""

    def __init__(self, before: Sides, after: Sides, groups: Mapping[str, PrefixChange]) -> None:
        self.before = before
        self.after = after
        self._groups = groups
        self._sides: dict[Addresses, PrefixChange] = {}

    @property
    def is_large(self) -> bool:
        """Whether so many members changed that starting from scratch is the faster way."""
        return any(len(change.gone) + len(change.come) > MOST_CHANGED for change in self._groups.values())

    @property
    def nothing(self) -> bool:
        """Whether every group that stays is the same."""
        return not self._groups

    def concerns(self, rule: Rule) -> bool:
        """Whether a rule names a group that changed."""
        groups = self._groups
        return not (groups.keys().isdisjoint(rule.source.groups) and groups.keys().isdisjoint(rule.destination.groups))

    def change(self, side: Addresses) -> PrefixChange:
        """Return the prefixes that a side lost and gained; `after` then knows the side."""
        mine = [self._groups[name] for name in side.groups if name in self._groups]
        if not mine:
            return PrefixChange()
        found = self._sides.get(side)
        if found is None:
            members = PrefixChange(*(tuple(each for change in mine for each in change[part]) for part in (0, 1)))
            self.after._known[side], found = self.before.cover(side).change_members(members)
            self._sides[side] = found
        return found


def names_groups(rule: Rule) -> bool:
    """Whether one of a rule's sides names address groups."""
    return bool(rule.source.groups or rule.destination.groups)


def _list_members(side: Addresses, groups: Groups) -> Iterable[Prefix]:
    yield from side.prefixes
    for name in side.groups:
        yield from groups[name].prefixes


def _prefix_change(old: AddressGroup, new: AddressGroup) -> PrefixChange:
    if old is new:
        return PrefixChange()
    edit = hunks(old.prefixes, new.prefixes)
    return PrefixChange(
        tuple(each for hunk in edit for each in old.prefixes[hunk.first : hunk.first + hunk.gone]),
        tuple(each for hunk in edit for each in new.prefixes[hunk.place : hunk.place + hunk.come]),
    )


class RuleChange(NamedTuple):
    """A rule whose cover changed, as rules for its lost and gained atoms.

    Where both of its sides changed, all its atoms are to be made anew.
    """

    label: int
    rule: Rule
    lost: Rule | None = None
    found: Rule | None = None
    anew: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The rules of a list that name groups, by their labels."""

    users: Mapping[int, Rule]

    @classmethod
    def of(cls, labels: Iterable[int], rules: Iterable[Rule]) -> Members:
        """Find the rules that name groups."""
        return cls(_find_users(labels, rules))

    def without(self, gone: Iterable[int]) -> Members:
        """Return the members after some rules went."""
        going = self.users.keys() & gone
        return Members({label: self.users[label] for label in self.users.keys() - going}) if going else self

    def joined_by(self, labels: Iterable[int], rules: Iterable[Rule]) -> Members:
        """Return the members after some rules came."""
        coming = _find_users(labels, rules)
        return Members({**self.users, **coming}) if coming else self

    def concerned_rules(self, groups: Regrouping) -> tuple[RuleChange, ...]:
        """Which rules a change of groups concerns, by ascending label."""
        concerned = sorted(label for label, rule in self.users.items() if groups.concerns(rule))
        found = [_rule_change(label, self.users[label], groups) for label in concerned]
        return tuple(each for each in found if each is not None)


def _find_users(labels: Iterable[int], rules: Iterable[Rule]) -> dict[int, Rule]:
    return {label: rule for label, rule in zip(labels, rules, strict=True) if names_groups(rule)}


def _rule_change(label: int, rule: Rule, groups: Regrouping) -> RuleChange | None:
    source, destination = groups.change(rule.source), groups.change(rule.destination)
    if source.nothing and destination.nothing:
        return None
    if not source.nothing and not destination.nothing:
        return RuleChange(label, rule, anew=True)
    side, change = ("source", source) if destination.nothing else ("destination", destination)
    return RuleChange(label, rule, _narrow_side(rule, side, change.gone), _narrow_side(rule, side, change.come))


def _narrow_side(rule: Rule, side: str, prefixes: tuple[Prefix, ...]) -> Rule | None:
    """Return a rule with some prefixes for a side.

    None without any, for that would mean every address.
    """
    return with_sides(rule, {side: Addresses(prefixes)}) if prefixes else None
