"""Address groups whose members change: which atoms of which rules go and come.

A side of a rule stands for the shortest list of prefixes that covers its own and its groups' (its *cover*). One member
more or less changes the cover only around it:

    members   10.0.0.0/32  10.0.0.1/32  10.0.0.4/32              10.0.0.1 goes:  /31 gives way to 10.0.0.0/32
    cover     [   10.0.0.0/31        ]  10.0.0.4/32              10.0.0.5 comes: 10.0.0.4/32 gives way to 10.0.0.4/31

so a rule loses the atoms of the prefixes that its cover lost, and gets those of the prefixes that it found; the rest of
its atoms stay. Covers are kept from change to change, and first made when a group changes for the first time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from orchestrator.compile.edits import hunks
from orchestrator.policy.addresses import Addresses, Prefix, aggregate
from orchestrator.policy.model import AddressGroup, Rule

Groups = Mapping[str, AddressGroup]

MOST_CHANGED = 1024
"""If more members of a group went and came, starting from scratch is the faster way."""


class PrefixChange(NamedTuple):
    """Prefixes that went and came."""

    gone: tuple[Prefix, ...] = ()
    come: tuple[Prefix, ...] = ()

    @property
    def nothing(self) -> bool:
        return not self.gone and not self.come


@dataclass(frozen=True, slots=True, eq=False)
class Cover:
    """A set of prefixes, at times with repetitions, and the shortest list of prefixes that covers it; both sorted."""

    members: Sequence[Prefix]
    prefixes: Sequence[Prefix]

    @classmethod
    def of(cls, members: Iterable[Prefix]) -> Cover:
        found = sorted(members, key=attrgetter("family", "network", "length"))
        return cls(found, aggregate(tuple(found)))

    def changed(self, change: PrefixChange) -> tuple[Cover, PrefixChange]:
        """The cover after members went and came, and what became of its prefixes."""
        members, prefixes = list(self.members), list(self.prefixes)
        for prefix in change.gone:
            del members[bisect_left(members, prefix)]
        for prefix in change.come:
            insort(members, prefix)
        met: set[Prefix] = set()
        for prefix in change.gone:
            met |= _let_go(prefixes, prefix, members)
        for prefix in change.come:
            met |= _let_in(prefixes, prefix)
        in_order = sorted(met)
        lost = tuple(each for each in in_order if _has(self.prefixes, each) and not _has(prefixes, each))
        found = tuple(each for each in in_order if _has(prefixes, each) and not _has(self.prefixes, each))
        return Cover(members, prefixes), PrefixChange(lost, found)


def _let_go(prefixes: list[Prefix], gone: Prefix, members: list[Prefix]) -> set[Prefix]:
    """Put what is left of the prefix that covered a lost member in its place. The prefixes that went or came."""
    place = _holder(prefixes, gone)
    if place is None:  # another lost member was under the same prefix
        return set()
    whole = prefixes[place]
    left = aggregate(tuple(members[_within(members, whole)]))
    prefixes[place : place + 1] = left
    return {whole, *left}


def _let_in(prefixes: list[Prefix], come: Prefix) -> set[Prefix]:
    """Cover a new member. The prefixes that went or came."""
    if _holder(prefixes, come) is not None:
        return set()
    inside = _within(prefixes, come)
    met = {come, *prefixes[inside]}
    prefixes[inside] = [come]
    while come.length and _has(prefixes, buddy := _buddy(come)):
        come = min(come, buddy)
        come = Prefix(come.family, come.network, come.length - 1)
        inside = _within(prefixes, come)
        met |= {come, *prefixes[inside]}
        prefixes[inside] = [come]
    return met


def _buddy(prefix: Prefix) -> Prefix:
    """The other half of the next larger prefix."""
    return Prefix(prefix.family, prefix.network ^ 1 << (prefix.family.bits - prefix.length), prefix.length)


def _has(prefixes: Sequence[Prefix], wanted: Prefix) -> bool:
    place = bisect_left(prefixes, wanted)
    return place < len(prefixes) and prefixes[place] == wanted


def _holder(prefixes: Sequence[Prefix], wanted: Prefix) -> int | None:
    """The place of the one of some disjoint prefixes that contains another."""
    place = bisect_right(prefixes, Prefix(wanted.family, wanted.last, wanted.family.bits)) - 1
    return place if place >= 0 and prefixes[place].contains(wanted) else None


def _within(prefixes: Sequence[Prefix], whole: Prefix) -> slice:
    """Where the prefixes inside another are. A wider one that begins with it is left out."""
    start = bisect_left(prefixes, whole)
    return slice(start, bisect_right(prefixes, Prefix(whole.family, whole.last, whole.family.bits)))


class RuleChange(NamedTuple):
    """A rule whose cover changed: rules that stand for the atoms that it lost and for those that it found, if any.

    Where both of its sides changed, all its atoms are to be made anew.
    """

    label: int
    rule: Rule
    lost: Rule | None = None
    found: Rule | None = None
    anew: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The rules of a list that name groups, by their labels, and the covers of their sides as far as they are known."""

    users: Mapping[int, Rule]
    covers: Mapping[Addresses, Cover]

    @classmethod
    def of(cls, labels: Iterable[int], rules: Iterable[Rule]) -> Members:
        return cls(_users(labels, rules), {})

    def without(self, gone: Iterable[int]) -> Members:
        """After rules went."""
        going = self.users.keys() & gone
        return (
            Members({label: self.users[label] for label in self.users.keys() - going}, self.covers) if going else self
        )

    def joined_by(self, labels: Iterable[int], rules: Iterable[Rule]) -> Members:
        """After rules came."""
        coming = _users(labels, rules)
        return Members({**self.users, **coming}, self.covers) if coming else self

    def regrouped(self, old: Groups, new: Groups) -> tuple[Members, tuple[RuleChange, ...]] | None:
        """After groups changed, and which rules that concerns, by ascending label. None if too much changed."""
        groups = {name: _prefix_change(old[name], group) for name, group in new.items() if name in old}
        groups = {name: change for name, change in groups.items() if not change.nothing}
        if any(len(change.gone) + len(change.come) > MOST_CHANGED for change in groups.values()):
            return None
        covers: dict[Addresses, Cover] = {}
        changes: dict[Addresses, PrefixChange] = {}
        for side in {side for rule in self.users.values() for side in (rule.source, rule.destination) if side.groups}:
            cover = self.covers.get(side)
            mine = [groups[name] for name in side.groups if name in groups]
            if mine:
                whole = PrefixChange(*(tuple(each for change in mine for each in change[part]) for part in (0, 1)))
                cover, changes[side] = (cover or Cover.of(_members(side, old))).changed(whole)
            if cover is not None:
                covers[side] = cover
        found = [_rule_change(label, self.users[label], changes) for label in sorted(self.users)]
        return Members(self.users, covers), tuple(each for each in found if each is not None)


def _users(labels: Iterable[int], rules: Iterable[Rule]) -> dict[int, Rule]:
    both = zip(labels, rules, strict=True)
    return {label: rule for label, rule in both if rule.source.groups or rule.destination.groups}


def _members(side: Addresses, groups: Groups) -> Iterable[Prefix]:
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


def _rule_change(label: int, rule: Rule, changes: Mapping[Addresses, PrefixChange]) -> RuleChange | None:
    source, destination = changes.get(rule.source, PrefixChange()), changes.get(rule.destination, PrefixChange())
    if source.nothing and destination.nothing:
        return None
    if not source.nothing and not destination.nothing:
        return RuleChange(label, rule, anew=True)
    side, change = ("source", source) if destination.nothing else ("destination", destination)
    return RuleChange(label, rule, _narrowed(rule, side, change.gone), _narrowed(rule, side, change.come))


def _narrowed(rule: Rule, side: str, prefixes: tuple[Prefix, ...]) -> Rule | None:
    """The rule with some prefixes for a side; None without any, for that would mean every address."""
    return replace(rule, **{side: Addresses(prefixes)}) if prefixes else None  # type: ignore[arg-type]
