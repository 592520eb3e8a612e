"""The proven items of a list by cookie: those from scratch, and later changes.

    base ──── the items of the whole list when it was last proven from scratch, indexed; which of them are `gone` since
    since ─── the rules that were looked at since then, as a whole or in part, and all items that came

The base is never copied: whatever changes is as large as what came and went, and a byte for each item of the base.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.compile.equivalence.checks import check_order
from orchestrator.compile.equivalence.order import clash, clash_among, overlapping
from orchestrator.compile.equivalence.provenfacts import NO_ITEMS, Base, Known, Place, alike, join_items
from orchestrator.compile.equivalence.rowdecoder import Items
from orchestrator.errors import NotEquivalent
from orchestrator.policy.model import Rule
from orchestrator.program.flows import U64


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """The rules of a list with their keys and items. It never changes."""

    base: Base
    gone: npt.NDArray[np.bool_]
    since: Mapping[int, Place]
    since_cookies: U64
    since_items: Items

    @classmethod
    def of(cls, base: Base) -> Ledger:
        """Make the ledger of a list that was just proven from scratch."""
        return cls(base, np.zeros(len(base.items), np.bool_), {}, np.zeros(0, np.uint64), NO_ITEMS)

    def place(self, cookie: int) -> Place | None:
        """The rule with a cookie, and its key."""
        if cookie in self.since:
            return self.since[cookie]
        place = self.base.place(cookie)
        return None if place is None else Place(self.base.links[place], int(self.base.keys[place]))

    def items(self, cookie: int) -> Items:
        """Return the proven items of a cookie's rule; a copy."""
        place = self.base.place(cookie)
        since = self.since_items[self.since_cookies == np.uint64(cookie)] if cookie in self.since else NO_ITEMS
        if place is None:
            return since
        mine = slice(self.base.first[place], self.base.first[place + 1])
        base: Items = self.base.items[mine][~self.gone[mine]]
        return join_items((base, since)) if len(since) else base

    def met_by(self, items: Items) -> list[tuple[int, Rule]]:
        """Return the rules whose rows share packets with items, in order, with cookies."""
        met = np.zeros(len(self.base.items), np.bool_)
        self.base.index.mark_met(items, met)
        since = np.zeros(len(self.since_items), np.bool_)
        for item in items if len(since) else ():
            since |= overlapping(item, self.since_items)
        marked = np.flatnonzero(met)
        links = np.unique(self.base.items["rule"][marked[~self.gone[marked]]])
        cookies = {*self.base.cookies[links].tolist(), *self.since_cookies[since].tolist()}
        found = [(cookie, place) for cookie in cookies if (place := self.place(cookie)) is not None]
        found.sort(key=lambda each: each[1].key)
        return [(cookie, place.rule) for cookie, place in found if place.rule is not None]

    def after(
        self, changed: Mapping[int, Known], partly: Mapping[int, Known], going: Mapping[int, Items], place: str
    ) -> Ledger:
        """Return the ledger after a change.

        The rules `changed` have these items and no others; of those changed `partly`, these came and `going` went.

        Raises NotEquivalent if what is new does not stand right against all others; `place` says which list it is.
        """
        fresh = {**changed, **partly}
        since = dict(self.since)
        for cookie, each in fresh.items():
            if each.rule is None and self.base.place(cookie) is None:
                since.pop(cookie, None)  # came and went again: nobody can ask for it, and of such there is no end
            else:
                since[cookie] = Place(each.rule, each.key)
        gone, others_cookies, others = self._without(changed, going, place)
        items = join_items([NO_ITEMS, *[each.items for each in fresh.values()]])
        check_order(clash_among(items), items, items, place)
        check_order(clash(items, others), items, others, place)
        check_order(self.base.index.conflict_of(items, gone), items, self.base.items, place)
        cookies = [cookie for cookie, each in fresh.items() for _ in range(len(each.items))]
        return Ledger(
            self.base,
            gone,
            since,
            np.concatenate((others_cookies, np.array(cookies, np.uint64))),
            join_items((others, items)),
        )

    def _without(
        self, changed: Collection[int], going: Mapping[int, Items], place: str
    ) -> tuple[npt.NDArray[np.bool_], U64, Items]:
        """Return the base's removed items, and the remaining later ones.

        Without the rules `changed` and what is `going` of others.
        """
        links = [link for cookie in changed if (link := self.base.place(cookie)) is not None]
        if not links and not going and self.since.keys().isdisjoint(changed):
            return self.gone, self.since_cookies, self.since_items
        gone, stays = self.gone.copy(), _not_among(self.since_cookies, changed)
        for link in links:
            gone[self.base.first[link] : self.base.first[link + 1]] = True
        for cookie, items in going.items():
            self._take_out(cookie, items, gone, stays, place)
        return gone, self.since_cookies[stays], self.since_items[stays]

    def _take_out(
        self, cookie: int, items: Items, gone: npt.NDArray[np.bool_], stays: npt.NDArray[np.bool_], place: str
    ) -> None:
        """Mark some of a rule's items as gone. Raises NotEquivalent if one is not there."""
        link = self.base.place(cookie)
        first, end = (0, 0) if link is None else (int(self.base.first[link]), int(self.base.first[link + 1]))
        mine = self.since_cookies == np.uint64(cookie)
        for item in items:
            old = first + alike(self.base.items[first:end], item)
            new = alike(self.since_items, item)
            old, new = old[~gone[old]], new[mine[new] & stays[new]]
            if len(old) + len(new) != 1:
                raise NotEquivalent("flow entries are to be removed that were never there", place=place)
            gone[old], stays[new] = True, False


def _not_among(cookies: U64, some: Collection[int]) -> npt.NDArray[np.bool_]:
    """Return which cookies are not in `some`.

    `np.isin` takes four times as long for the few of a change.
    """
    if not some:
        return np.ones(len(cookies), np.bool_)
    ordered = np.fromiter(some, np.uint64, len(some))
    ordered.sort()
    found: npt.NDArray[np.bool_] = ordered[np.searchsorted(ordered[:-1], cookies)] != cookies
    return found
