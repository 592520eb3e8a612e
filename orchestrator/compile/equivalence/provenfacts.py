"""Proven facts of a list: its rules with keys and items, and groups' users."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.equivalence.order import Index
from orchestrator.compile.equivalence.rowdecoder import ITEM, Items
from orchestrator.errors import NotEquivalent
from orchestrator.policy.model import Rule
from orchestrator.program.flows import U64

NO_ITEMS: Items = np.zeros(0, ITEM)


class Place(NamedTuple):
    """A rule and its key. `rule` None: it is no more."""

    rule: Rule | None
    key: int


class Known(NamedTuple):
    """The proven facts of one rule.

    `rule` None: it is no more.
    """

    rule: Rule | None
    key: int
    items: Items


@dataclass(frozen=True, slots=True, eq=False)
class Base:
    """A list as proven from scratch: link i has `items[first[i] : first[i + 1]]`.

    `ordered` are the cookies in ascending order, `order` their links.
    """

    links: tuple[Rule, ...]
    keys: npt.NDArray[np.int64]
    cookies: U64
    order: npt.NDArray[np.intp]
    ordered: U64
    items: Items
    first: npt.NDArray[np.intp]
    index: Index

    def place(self, cookie: int) -> int | None:
        """Which link bears a cookie."""
        at = int(self.ordered.searchsorted(np.uint64(cookie)))
        return int(self.order[at]) if at < len(self.order) and int(self.ordered[at]) == cookie else None


@dataclass(frozen=True, slots=True, eq=False)
class Users:
    """The cookies of the rules that name groups, by group."""

    by_group: Mapping[str, frozenset[int]]

    @classmethod
    def of(cls, rules: Iterable[tuple[int, Rule]]) -> Users:
        """Find the rules that name each group, by their cookies."""
        found: defaultdict[str, set[int]] = defaultdict(set)
        for cookie, rule in rules:
            if _names_groups(rule):
                for name in (*rule.source.groups, *rule.destination.groups):
                    found[name].add(cookie)
        return cls({name: frozenset(cookies) for name, cookies in found.items()})

    def of_groups(self, names: Iterable[str]) -> set[int]:
        """Return the rules that name one of some groups."""
        return {cookie for name in names for cookie in self.by_group.get(name, ())}

    def after(self, rules: Mapping[int, Known]) -> Users:
        """Return the users with other rules, or none, for some cookies."""
        gone = rules.keys()
        naming = [(cookie, rule) for cookie, (rule, _, _) in rules.items() if rule is not None and _names_groups(rule)]
        if not naming and all(cookies.isdisjoint(gone) for cookies in self.by_group.values()):
            return self
        fresh = Users.of(naming).by_group
        names = self.by_group.keys() | fresh.keys()
        none: frozenset[int] = frozenset()
        return Users({name: self.by_group.get(name, none) - gone | fresh.get(name, none) for name in names})


def _names_groups(rule: Rule) -> bool:
    return bool(rule.source.groups or rule.destination.groups)


def join_items(parts: Sequence[Items]) -> Items:
    """Concatenate items; a copy.

    As bytes: NumPy compares the fields of two arrays anew each time.
    """
    return np.frombuffer(bytearray().join(parts), ITEM)  # type: ignore[arg-type]  # arrays are buffers


def replace_items(items: Items, going: Items, coming: Items, place: str) -> Items:
    """Return a rule's items after a change; a copy.

    Raises NotEquivalent if one to remove is not there.
    """
    if not len(going):
        return join_items((items, coming))
    gone = {content(each) for each in going}
    stays = np.array([content(each) not in gone for each in items], np.bool_)
    if len(items) - int(stays.sum()) != len(going):
        raise NotEquivalent("flow entries are to be removed that were never there", place=place)
    return join_items((items[stays], coming))


def alike(items: Items, item: np.void) -> npt.NDArray[np.intp]:
    """Where among some items those are that match what one matches, at its priority."""
    near = np.flatnonzero((items["low"] == item["low"]).all(axis=(1, 2)))
    return near[[content(items[place]) == content(item) for place in near.tolist()]] if len(near) else near


def content(item: np.void) -> bytes:
    """Return an item's match and priority as bytes."""
    return item.tobytes()[: ITEM.fields["rule"][1]]  # type: ignore[index]  # it has fields
