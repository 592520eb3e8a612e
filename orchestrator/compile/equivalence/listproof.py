"""The proof of one list: what was proven of every rule, and what a change leaves to be proven.

A list is proven from scratch once (`ListProof.of`). After a change, only the rules that came, went or moved and those
whose rows changed are looked at again (`after`): their rows must still be exactly theirs, and stand right against all
others'. All other pairs were proven before, and nothing about them has changed.

    base ──── the items of the whole list when it was last proven from scratch, indexed; which of them are `gone` since
    since ─── the items looked at since then, and the rules that were looked at as a whole

Of a rule that names a group whose members changed, only what came and went is looked at (`memberproof.py`).

Rules keep a *key* that grows along the list; one that comes between two others gets a key between theirs. `after` gives
None where it is no small change, or where there is no key left: then the list is proven from scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from orchestrator.compile.equivalence.chain import Chain
from orchestrator.compile.equivalence.cover import COVERED, OUTSIDE, cover
from orchestrator.compile.equivalence.edits import edits_of
from orchestrator.compile.equivalence.items import Items
from orchestrator.compile.equivalence.known import NO_ITEMS, Base, Known, Place, Users, alike, joined, replaced
from orchestrator.compile.equivalence.memberproof import check_members
from orchestrator.compile.equivalence.membersets import Regrouped, sides_of
from orchestrator.compile.equivalence.order import Pair, clash, clash_among, index_of, overlapping
from orchestrator.compile.equivalence.rows import (
    by_cookie,
    check_ends,
    check_verdicts,
    checked_rows,
    is_of_rules,
    places_of,
    verdicts,
)
from orchestrator.compile.equivalence.wanted import wanted
from orchestrator.errors import NotEquivalent
from orchestrator.policy.model import Action, Rule
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.program.flows import U64, FlowTable

_GAP = 1 << 32
_LAST = 1 << 62
"""Keys: a list's rules have multiples of the gap at first, return traffic stands behind all."""
_NEAR = 1 << 16
"""How far from one that came lately the key of the next to it is."""

_MOST_STEPS = 64
_FEW_ROWS, _SHARE = 1024, 64
"""At most 1,024 items or a 64th of the list may have been looked at since the list was proven from scratch."""

_MANY_ROWS = 4096
"""From so many items on, coverage and order are looked at side by side."""


@dataclass(frozen=True, slots=True, eq=False)
class ListProof:
    """A proven list. It never changes."""

    chain: Chain
    base: Base
    users: Users
    gone: npt.NDArray[np.bool_]
    since: Mapping[int, Place]
    since_cookies: U64
    since_items: Items

    @classmethod
    def of(cls, chain: Chain, flows: FlowTable) -> ListProof:
        """Prove a list from all its rows. Raises NotEquivalent."""
        of_rules = is_of_rules(flows)
        check_ends(flows.take(~of_rules), chain.defaults, chain.place)
        flows = flows.take(of_rules)
        links = chain.links
        cookies = np.array([*chain.cookies(chain.rules), *chain.return_cookies()], np.uint64)
        items = checked_rows(flows, chain)
        at = places_of(flows.cookie, cookies, flows, chain.place)
        check_verdicts(flows, verdicts(links)[at], chain)
        keys = _first_keys(chain)
        items["rule"], items["key"] = at, keys[at]
        items = items[np.argsort(at, kind="stable")]
        index = index_of(items)
        if len(items) < _MANY_ROWS:
            _check_cover(chain, links, items)
            _check_order(index.conflict(), items, items, chain.place)
        else:
            with ThreadPoolExecutor(1) as beside:  # the search leaves the interpreter to others
                conflict = beside.submit(index.conflict)
                _check_cover(chain, links, items)
                _check_order(conflict.result(), items, items, chain.place)
        first = np.searchsorted(items["rule"], np.arange(len(links) + 1))
        base = Base(links, keys, cookies, np.argsort(cookies, kind="stable"), items, first, index)
        users = Users.of(zip(cookies.tolist(), chain.rules))  # noqa: B905 -- return traffic's come behind and name none
        return cls(chain, base, users, np.zeros(len(items), np.bool_), {}, np.zeros(0, np.uint64), NO_ITEMS)

    def after(self, chain: Chain, removed: FlowTable, added: FlowTable, groups: Regrouped) -> ListProof | None:
        """The proof of the list as `chain` has it now, after rows were removed and added; None: prove it from scratch.

        `groups` says what became of the members of groups. Raises NotEquivalent.
        """
        if chain.differs_besides_rules(self.chain) or not (is_of_rules(removed).all() and is_of_rules(added).all()):
            return None
        most = max(_FEW_ROWS, len(self.base.items) // _SHARE)
        if max(len(removed), len(self.since_items) + len(added)) > most:
            return None
        placed = self._placed(chain)
        if placed is None:
            return None
        going = by_cookie(removed, checked_rows(removed, self.chain))
        coming = by_cookie(added, checked_rows(added, chain))
        partly = self._partly(chain, groups, placed, going, coming)
        changed = self._changed(chain, placed, groups, _without(going, partly), _without(coming, partly))
        _check_actions(chain, added, changed, partly)
        rows = sum(len(each.items) for each in (*changed.values(), *partly.values()))
        if len(self.since_items) + rows > most:
            return None
        _check_few(chain, changed)
        users = self.users.after((cookie, each.rule) for cookie, each in placed.items())
        return self._with(chain, users, changed, partly, {cookie: going.get(cookie, NO_ITEMS) for cookie in partly})

    # ------------------------------------------------------------------------------------------------ steps

    def place(self, cookie: int) -> Place | None:
        """The rule with a cookie, and its key."""
        if cookie in self.since:
            return self.since[cookie]
        place = self.base.place(cookie)
        return None if place is None else Place(self.base.links[place], int(self.base.keys[place]))

    def met_by(self, items: Items) -> list[tuple[int, Rule]]:
        """The rules, in order, of whose rows some share a packet with one of some items; each with its cookie."""
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

    def _items(self, cookie: int) -> Items:
        """What is proven of the rule with a cookie; a copy."""
        place = self.base.place(cookie)
        since: Items = self.since_items[self.since_cookies == np.uint64(cookie)]
        if place is None:
            return since
        mine = slice(self.base.first[place], self.base.first[place + 1])
        base: Items = self.base.items[mine][~self.gone[mine]]
        return joined((base, since)) if len(since) else base

    def _placed(self, chain: Chain) -> dict[int, Known] | None:
        """The rules that came or went, by cookie, with their keys and the items that they had; None if too many."""
        old, new = self.chain, chain
        steps = [] if old.rules is new.rules else edits_of(old.rules, new.rules, _MOST_STEPS)
        if steps is None:
            return None
        went = [old.rules[step.old] for step in steps if not step.is_insert]
        came = [step.new for step in steps if step.is_insert]
        if not _same_numbers(old, new, {rule.id for rule in went}):
            return None
        placed = {cookie: Known(None, 0, self._items(cookie)) for cookie in old.cookies(went)}
        for start, end in _runs(came):
            keys = self._between(new, start, end, placed)
            if keys is None:
                return None
            rules = new.rules[start:end]
            for rule, cookie, key in zip(rules, new.cookies(rules), keys, strict=True):
                placed[cookie] = Known(rule, key, self._items(cookie))
        return placed

    def _between(self, chain: Chain, start: int, end: int, placed: Mapping[int, Known]) -> list[int] | None:
        """Keys for the rules `start` up to `end`, between those of their neighbours, which stayed."""
        keys: list[int | None] = []
        came_lately = []
        for rules in (chain.rules[max(start - 1, 0) : start], chain.rules[end : end + 1]):
            cookies = chain.cookies(rules)
            known = self.place(cookies[0]) if cookies else None
            if cookies and (known is None or cookies[0] in placed):
                raise NotEquivalent("a neighbour of a changed rule was never proven", place=chain.place)
            keys.append(known.key if known is not None else None)
            came_lately.append(bool(cookies) and cookies[0] in self.since)
        return _keys_between(keys[0], keys[1], end - start, came_lately)

    def _partly(
        self,
        chain: Chain,
        groups: Regrouped,
        placed: Mapping[int, Known],
        going: Mapping[int, Items],
        coming: Mapping[int, Items],
    ) -> dict[int, Known]:
        """The rules that stayed where they are but for members of one side, with the items that came."""
        found = {}
        for cookie in self.users.of_groups(groups.members) - placed.keys():
            place = self.place(cookie)
            if place is None or place.rule is None:
                continue
            items = coming.get(cookie, NO_ITEMS).copy()
            if check_members(place.rule, chain, groups, going.get(cookie, NO_ITEMS), items):
                items["key"] = place.key
                found[cookie] = Known(place.rule, place.key, items)
        return found

    def _changed(
        self,
        chain: Chain,
        placed: Mapping[int, Known],
        groups: Regrouped,
        going: Mapping[int, Items],
        coming: Mapping[int, Items],
    ) -> dict[int, Known]:
        """What is to be proven as a whole: rules that came, went or whose rows changed, with their items as of now."""
        both_sides = {
            cookie
            for cookie in self.users.of_groups(groups.members)
            if (place := self.place(cookie)) is not None and place.rule is not None
            if all(groups.names(side) for side in sides_of(place.rule).values())
        }
        found: dict[int, Known] = {}
        for cookie in placed.keys() | going.keys() | coming.keys() | both_sides:
            before = self.place(cookie)
            now = placed.get(cookie)
            if now is None:
                if before is None:
                    raise NotEquivalent(
                        f"flow entries bear the cookie {cookie:#x}, which is no rule's", place=chain.place
                    )
                now = Known(before.rule, before.key, self._items(cookie))
            items = replaced(now.items, going.get(cookie, NO_ITEMS), coming.get(cookie, NO_ITEMS), chain.place)
            stayed = len(now.items) - len(going.get(cookie, NO_ITEMS))
            if stayed and now.rule and before and before.rule and _does(now.rule) != _does(before.rule):
                raise NotEquivalent(
                    f"flow entries of rule '{now.rule.id}' still do what it said before", place=chain.place
                )
            items["key"] = now.key
            found[cookie] = Known(now.rule, now.key, items)
        return found

    def _with(
        self,
        chain: Chain,
        users: Users,
        changed: Mapping[int, Known],
        partly: Mapping[int, Known],
        going: Mapping[int, Items],
    ) -> ListProof:
        """The proof with some rules' items replaced, and some of others', if what is new stands right against all
        others. Raises NotEquivalent."""
        gone = self.gone.copy()
        for cookie in changed:
            place = self.base.place(cookie)
            if place is not None:
                gone[self.base.first[place] : self.base.first[place + 1]] = True
        stays = ~np.isin(self.since_cookies, np.fromiter(changed, np.uint64, len(changed)))
        for cookie, items in going.items():
            self._take_out(cookie, items, gone, stays)
        others = self.since_items[stays]
        fresh = {**changed, **partly}
        items = joined([NO_ITEMS, *(each.items for each in fresh.values())])
        _check_order(clash_among(items), items, items, chain.place)
        _check_order(clash(items, others), items, others, chain.place)
        _check_order(self.base.index.conflict_of(items, gone), items, self.base.items, chain.place)
        cookies = [cookie for cookie, each in fresh.items() for _ in range(len(each.items))]
        return replace(
            self,
            chain=chain,
            users=users,
            gone=gone,
            since={**self.since, **{cookie: Place(each.rule, each.key) for cookie, each in changed.items()}},
            since_cookies=np.concatenate((self.since_cookies[stays], np.array(cookies, np.uint64))),
            since_items=joined((others, items)),
        )

    def _take_out(self, cookie: int, items: Items, gone: npt.NDArray[np.bool_], stays: npt.NDArray[np.bool_]) -> None:
        """Mark some of a rule's items as gone. Raises NotEquivalent if one is not there."""
        place = self.base.place(cookie)
        first, end = (0, 0) if place is None else (int(self.base.first[place]), int(self.base.first[place + 1]))
        mine = self.since_cookies == np.uint64(cookie)
        for item in items:
            old = first + alike(self.base.items[first:end], item)
            new = alike(self.since_items, item)
            old, new = old[~gone[old]], new[mine[new] & stays[new]]
            if len(old) + len(new) != 1:
                raise NotEquivalent("flow entries are to be removed that were never there", place=self.chain.place)
            gone[old], stays[new] = True, False


def _does(rule: Rule) -> tuple[Action, bool]:
    return rule.action, rule.log


def _first_keys(chain: Chain) -> npt.NDArray[np.int64]:
    """The keys of a chain's links when it is proven from scratch."""
    return np.concatenate(
        (np.arange(len(chain.rules), dtype=np.int64) * _GAP, _LAST + np.arange(len(chain.returns), dtype=np.int64))
    )


def _keys_between(low: int | None, high: int | None, count: int, came_lately: Sequence[bool]) -> list[int] | None:
    """So many keys between two others, where there are these; None where there is no room for them.

    Where one of the two came lately and the other did not, more is likely to come between them: rules that are put in
    one by one, each behind or before the last. The keys are then near to that one, for if they halved what is left each
    time, a few dozen would use it up.
    """
    apart = _GAP if low is None or high is None else (high - low) // (count + 1)
    if low is not None and high is not None and any(came_lately) and not all(came_lately):
        apart = min(apart, _NEAR)
    first = low if low is not None else (high or 0) - (count + 1) * apart
    if high is not None and not came_lately[0]:
        first = high - (count + 1) * apart
    return [first + apart * (place + 1) for place in range(count)] if apart else None


def _same_numbers(old: Chain, new: Chain, changed: set[str]) -> bool:
    """Whether the rules that stayed have the numbers that they had."""
    if old.numbers is new.numbers:
        return True
    if isinstance(old.numbers, RuleNumbers) and isinstance(new.numbers, RuleNumbers):
        differing = new.numbers.differing(old.numbers)
        if differing is not None:
            return not any(rule_id in old.numbers and rule_id not in changed for rule_id in differing)
    return all(new.numbers.get(rule.id) == old.numbers[rule.id] for rule in old.rules if rule.id not in changed)


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Ascending places as runs of consecutive ones: (start, end)."""
    runs = [list(run) for _, run in groupby(enumerate(places), lambda each: each[1] - each[0])]
    return [(run[0][1], run[-1][1] + 1) for run in runs]


def _without(items: Mapping[int, Items], cookies: Mapping[int, Known]) -> dict[int, Items]:
    return {cookie: mine for cookie, mine in items.items() if cookie not in cookies}


def _check_actions(chain: Chain, added: FlowTable, changed: Mapping[int, Known], partly: Mapping[int, Known]) -> None:
    """Hold rows that were added to what their rules do. Raises NotEquivalent."""
    rules = [(changed.get(cookie) or partly[cookie]).rule for cookie in added.cookie.tolist()]
    if any(rule is None for rule in rules):
        raise NotEquivalent("flow entries were added for a rule that is no more", place=chain.place)
    check_verdicts(added, verdicts(rule for rule in rules if rule is not None), chain)


def _check_few(chain: Chain, changed: Mapping[int, Known]) -> None:
    """Hold every rule's items to the rule. Raises NotEquivalent."""
    rules: list[Rule] = []
    items = [NO_ITEMS]
    for each in changed.values():
        if each.rule is None:
            if len(each.items):
                raise NotEquivalent("flow entries are left of a rule that is no more", place=chain.place)
            continue
        each.items["rule"] = len(rules)
        rules.append(each.rule)
        items.append(each.items)
    _check_cover(chain, tuple(rules), joined(items))


def _check_cover(chain: Chain, rules: tuple[Rule, ...], items: Items) -> None:
    wrong, at = cover(items, wanted(rules, chain.tables(rules), chain.groups))
    if wrong == OUTSIDE:
        rule = rules[int(items["rule"][at])]
        raise NotEquivalent(f"a flow entry of rule '{rule.id}' holds packets that the rule does not", place=chain.place)
    if wrong != COVERED:
        raise NotEquivalent(f"the flow entries of rule '{rules[at].id}' are not all of its packets", place=chain.place)


def _check_order(pair: Pair | None, items: Items, others: Items, place: str) -> None:
    if pair is None:
        return
    one, other = items[pair[0]], others[pair[1]]
    if one["key"] == other["key"]:
        raise NotEquivalent("two flow entries of one rule overlap", place=place)
    first, second = sorted((one, other), key=lambda each: int(each["key"]))
    raise NotEquivalent(
        f"two flow entries overlap, and the earlier rule's has priority {first['priority']}, the later one's "
        f"{second['priority']}",
        place=place,
    )
