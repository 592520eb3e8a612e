"""The shortest list of prefixes that covers a set, updated as members come and go.

One member more or less changes the cover only around it:

    members   10.0.0.0/32  10.0.0.1/32  10.0.0.4/32              10.0.0.1 goes:  /31 gives way to 10.0.0.0/32
    cover     [   10.0.0.0/31        ]  10.0.0.4/32              10.0.0.5 comes: 10.0.0.4/32 gives way to 10.0.0.4/31
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from orchestrator.policy.addresses import Family, Prefix, aggregate

_PLACE = attrgetter("family", "network", "length")
"""The order of prefixes as a key: many times faster than comparing them as dataclasses do."""


class PrefixChange(NamedTuple):
    """Prefixes that went and came."""

    gone: tuple[Prefix, ...] = ()
    come: tuple[Prefix, ...] = ()

    @property
    def nothing(self) -> bool:
        return not self.gone and not self.come


@dataclass(frozen=True, slots=True, eq=False)
class Cover:
    """A multiset of prefixes and the shortest list of prefixes that covers it; both sorted."""

    members: Sequence[Prefix]
    prefixes: Sequence[Prefix]

    @classmethod
    def of(cls, members: Iterable[Prefix]) -> Cover:
        """Return prefixes, sorted, and the shortest list that covers them."""
        found = sorted(members, key=_PLACE)
        return cls(found, aggregate(tuple(found)))

    def change_members(self, change: PrefixChange) -> tuple[Cover, PrefixChange]:
        """The cover after members went and came, and what became of its prefixes."""
        members, prefixes = list(self.members), list(self.prefixes)
        for prefix in change.gone:
            del members[bisect_left(members, _PLACE(prefix), key=_PLACE)]
        for prefix in change.come:
            insort(members, prefix, key=_PLACE)
        met: set[Prefix] = set()
        for prefix in change.gone:
            met |= _let_go(prefixes, prefix, members)
        for prefix in change.come:
            met |= _let_in(prefixes, prefix)
        in_order = sorted(met)
        lost = tuple(each for each in in_order if has(self.prefixes, each) and not has(prefixes, each))
        found = tuple(each for each in in_order if has(prefixes, each) and not has(self.prefixes, each))
        return Cover(members, prefixes), PrefixChange(lost, found)


def _let_go(prefixes: list[Prefix], gone: Prefix, members: list[Prefix]) -> set[Prefix]:
    """Replace the prefix that covered a lost member by the rest.

    Returns the prefixes that were removed or added.
    """
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
    while come.length and has(prefixes, buddy := _buddy(come)):
        come = min(come, buddy)
        come = Prefix(come.family, come.network, come.length - 1)
        inside = _within(prefixes, come)
        met |= {come, *prefixes[inside]}
        prefixes[inside] = [come]
    return met


def _buddy(prefix: Prefix) -> Prefix:
    """The other half of the next larger prefix."""
    return Prefix(prefix.family, prefix.network ^ 1 << (prefix.family.bits - prefix.length), prefix.length)


def has(prefixes: Sequence[Prefix], wanted: Prefix) -> bool:
    """Whether a prefix is among some sorted ones."""
    place = bisect_left(prefixes, _PLACE(wanted), key=_PLACE)
    return place < len(prefixes) and prefixes[place] == wanted


def _holder(prefixes: Sequence[Prefix], wanted: Prefix) -> int | None:
    """The place of the one of some disjoint prefixes that contains another."""
    place = bisect_right(prefixes, _end(wanted), key=_PLACE) - 1
    return place if place >= 0 and prefixes[place].contains(wanted) else None


def _within(prefixes: Sequence[Prefix], whole: Prefix) -> slice:
    """Return the slice of prefixes inside another.

    A wider one with the same start is left out.
    """
    start = bisect_left(prefixes, _PLACE(whole), key=_PLACE)
    return slice(start, bisect_right(prefixes, _end(whole), key=_PLACE))


def _end(prefix: Prefix) -> tuple[Family, int, int]:
    """The place of the last address of a prefix."""
    return prefix.family, prefix.last, prefix.family.bits
