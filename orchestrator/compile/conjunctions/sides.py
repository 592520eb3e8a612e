"""The prefixes of rules' sides, and their changes when address groups change.

A side stands for the shortest list of prefixes that covers its own and its groups' (`covers.py`). Each distinct side is
worked out once, when first asked about, and followed from then on: a member more or less of a group of ten thousand
costs the member, not the group.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from orchestrator.compile.conjunctions.covers import Cover, PrefixChange
from orchestrator.compile.lists.edits import hunks
from orchestrator.policy.addresses import Addresses, Family, Prefix, everything
from orchestrator.policy.model import AddressGroup, Rule
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
