"""Prove a rule over an address group after some members changed.

The claim
    Let S be what a side of a rule stood for and S' what it stands for now, and T some prefixes outside which S and S'
    are the same addresses. The rule's items were the rule with S. If the items that go are exactly the rule with what
    of S is in T, and those that come are exactly the rule with what of S' is in T, then its items are the rule with S'.

    For: the items that stay were disjoint from those that go, so they are exactly the rule with S outside T, which is
    the rule with S' outside T; and those that come are the rest of it.

            S   [ a ][ b ][   c   ]  [ d ]            T = [ c ]: c goes, e and f (in c) come
            S'  [ a ][ b ][ e ] [f]  [ d ]            a, b, d are not looked at

T is made of the prefixes of the items themselves and of the members that came and went: it is as large as the change.

The prefixes of sides are computed here for the proof, and updated. A side is kept as its members, sorted, and asked
about by places: which of its addresses lie in a prefix? Prefixes lie inside each other or are apart, so that is the
prefix itself where a member contains it, else the members in it. A member that comes or goes costs a look-up, never a
walk over the group.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from orchestrator.compile.equivalence.chain import Chain
from orchestrator.compile.equivalence.checks import COVERED, cover
from orchestrator.compile.equivalence.rowdecoder import FAMILY, Items
from orchestrator.compile.equivalence.rulesets import expected_packets
from orchestrator.compile.equivalence.shortestedit import edits
from orchestrator.errors import NotEquivalent
from orchestrator.policy.addresses import EVERY_IPV4, EVERY_IPV6, Addresses, Family, Prefix, aggregate
from orchestrator.policy.model import AddressGroup, Rule, with_sides

_MOST_STEPS = 64
"""So many members of one group may come or go; after more, lists are proven from scratch."""

_MOST_KNOWN = 1 << 12

_Place = tuple[int, int, int]
"""IP version, network, length: prefixes sorted by it have those that one contains right behind it."""


@dataclass(frozen=True, slots=True, eq=False)
class MemberSets:
    """The prefixes of sides under some groups.

    Only its cache changes.
    """

    groups: Mapping[str, AddressGroup]
    _known: dict[Addresses, list[_Place]] = field(default_factory=dict)

    def within(self, side: Addresses, whole: Prefix) -> tuple[Prefix, ...]:
        """Return the prefixes of a side, which is not `any`, inside a prefix."""
        members = self._list_members(side)
        if any(
            _has_member(members, (whole.family, _start(whole, length), length)) for length in range(whole.length + 1)
        ):
            return (whole,)
        start = bisect_left(members, (whole.family, whole.network, whole.length))
        end = bisect_left(members, (whole.family, whole.last + 1, 0))
        return tuple(Prefix(Family(family), network, length) for family, network, length in members[start:end])

    def has_any(self, side: Addresses, family: Family) -> bool:
        """Whether a side holds addresses of an IP version."""
        if side.is_any:
            return True
        members = self._list_members(side)
        first = bisect_left(members, (family, 0, 0))
        return first < len(members) and members[first][0] == family

    def _list_members(self, side: Addresses) -> list[_Place]:
        found = self._known.get(side)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[side] = sorted(_sort_key(each) for each in _list_prefixes(side, self.groups))
        return found

    def follow_groups(self, groups: Mapping[str, AddressGroup]) -> Regrouped | None:
        """Move from these groups to others; None if too many members changed."""
        if groups is self.groups:
            return Regrouped(self, self, {})
        members: dict[str, MemberSteps] = {}
        for name, group in groups.items():
            old = self.groups.get(name)
            if old is None or old.prefixes is group.prefixes:
                continue
            steps = edits(old.prefixes, group.prefixes, _MOST_STEPS)
            if steps is None:
                return None
            if steps:
                members[name] = MemberSteps(
                    tuple(old.prefixes[step.old] for step in steps if not step.is_insert),
                    tuple(group.prefixes[step.new] for step in steps if step.is_insert),
                )
        after = MemberSets(groups)
        for side, known in self._known.items():
            if all(name in groups for name in side.groups):
                after._known[side] = _apply_steps(known, [members[name] for name in side.groups if name in members])
        return Regrouped(self, after, members)


@dataclass(frozen=True, slots=True)
class MemberSteps:
    """The members of a group that went and came."""

    gone: tuple[Prefix, ...]
    come: tuple[Prefix, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Regrouped:
    """Sets before and after groups changed, and the members that came and went, by group."""

    before: MemberSets
    after: MemberSets
    members: Mapping[str, MemberSteps]

    def names(self, side: Addresses) -> bool:
        """Whether a side names a group that changed."""
        return not self.members.keys().isdisjoint(side.groups)

    def places_apart(self, old: Addresses, new: Addresses) -> list[Prefix]:
        """Prefixes outside which one side before holds the same addresses as another after."""
        if old == new:
            return self.other_places(old)
        was, now = (
            set(aggregate(tuple(_list_prefixes(side, sets.groups)) if not side.is_any else (EVERY_IPV4, EVERY_IPV6)))
            for side, sets in ((old, self.before), (new, self.after))
        )
        return list(was ^ now)

    def other_places(self, side: Addresses) -> list[Prefix]:
        """Prefixes outside which a side holds the same addresses before and after."""
        steps = [self.members[name] for name in side.groups if name in self.members]
        changed = {prefix for each in steps for prefix in (*each.gone, *each.come)}
        return [each for each in changed if self.before.within(side, each) != self.after.within(side, each)]


def sides_of(rule: Rule) -> dict[str, Addresses]:
    """The sides of a rule by name."""
    return {"source": rule.source, "destination": rule.destination}


def outermost(prefixes: Iterable[Prefix]) -> list[Prefix]:
    """Return the prefixes that lie in no other: disjoint, with the same addresses."""
    found: list[Prefix] = []
    for prefix in sorted(prefixes, key=_sort_key):
        if not found or not found[-1].contains(prefix):
            found.append(prefix)
    return found


def _apply_steps(members: list[_Place], steps: Sequence[MemberSteps]) -> list[_Place]:
    if not steps:
        return members
    found = list(members)
    for step in steps:
        for prefix in step.gone:
            del found[bisect_left(found, _sort_key(prefix))]
        for prefix in step.come:
            insort(found, _sort_key(prefix))
    return found


def _list_prefixes(side: Addresses, groups: Mapping[str, AddressGroup]) -> Iterable[Prefix]:
    yield from side.prefixes
    for name in side.groups:
        yield from groups[name].prefixes


def _sort_key(prefix: Prefix) -> _Place:
    return prefix.family, prefix.network, prefix.length


def _start(prefix: Prefix, length: int) -> int:
    """Return the first address of the prefix of some length that contains another."""
    below = prefix.family.bits - length
    return prefix.network >> below << below


def _has_member(members: list[_Place], wanted: _Place) -> bool:
    at = bisect_left(members, wanted)
    return at < len(members) and members[at] == wanted


def check_members(rule: Rule, chain: Chain, groups: Regrouped, going: Items, coming: Items) -> bool:
    """Check that a rule equals its items after a change.

    False: it is to be examined as a whole.

    That those that go were there, and that those that come do not overlap, is for the caller to show. Raises
    NotEquivalent.
    """
    changed = [name for name, side in sides_of(rule).items() if groups.names(side)]
    if len(changed) != 1:
        return False
    (name,) = changed
    side = sides_of(rule)[name]
    touched = [*prefixes_of(going, name), *prefixes_of(coming, name)]
    if None in touched:
        return False
    places = outermost([*(each for each in touched if each is not None), *groups.other_places(side)])
    for sets, items in ((groups.before, going), (groups.after, coming)):
        part = [each for place in places for each in sets.within(side, place)]
        narrowed = with_sides(rule, {name: Addresses(tuple(part))}) if part else None
        _check_exact(narrowed, rule, items, chain)
    return True


def _check_exact(part: Rule | None, rule: Rule, items: Items, chain: Chain) -> None:
    """Hold items to be exactly a rule's part; None: there is none."""
    if part is None:
        wrong = bool(len(items))
    else:
        own = items.copy()
        own["rule"] = 0
        wrong = cover(own, expected_packets((part,), chain.tables((part,)), chain.groups))[0] != COVERED
    if wrong:
        raise NotEquivalent(
            f"the flow entries of rule '{rule.id}' do not follow the members of its groups", place=chain.place
        )


def prefixes_of(items: Items, name: str) -> Iterator[Prefix | None]:
    """Yield one side of items as prefixes; None for one of no single IP version."""
    side = 0 if name == "source" else 1
    for item in items:
        family = int(item["small_low"][FAMILY])
        if family != int(item["small_high"][FAMILY]) or family not in (Family.IPV4, Family.IPV6):
            yield None
            continue
        below = 128 - Family(family).bits
        low, high = (_join_halves(item[end][side]) >> below for end in ("low", "high"))
        yield Prefix(Family(family), low, Family(family).bits - (high - low).bit_length())


def _join_halves(halves: Sequence[np.uint64]) -> int:
    return int(halves[1]) << 64 | int(halves[0])
