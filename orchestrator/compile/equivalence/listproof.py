"""The proof of one list: proven facts of every rule, and the proof of changes.

A list is proven from scratch once (`ListProof.of`). After a change, only the rules that came, went or moved and those
whose rows changed are looked at again (`after`): their rows must still be exactly theirs, and stand right against all
others'. All other pairs were proven before, and nothing about them has changed. `ledger.py` keeps what was proven.

Of a rule that names a group whose members changed, only what came and went is looked at (`memberproof.py`).

Rules keep a *key* that grows along the list; one that comes between two others gets a key between theirs.
`after` gives None where it is no small change, or where there is no key left: then the list is proven from scratch.
Keys are ascending numbers with room for insertions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from orchestrator.compile.equivalence.chain import Chain
from orchestrator.compile.equivalence.checks import check_actions, check_changed, check_cover, check_order
from orchestrator.compile.equivalence.ledger import Ledger
from orchestrator.compile.equivalence.memberproof import Regrouped, check_members, sides_of
from orchestrator.compile.equivalence.order import index_of
from orchestrator.compile.equivalence.provenfacts import NO_ITEMS, Base, Known, Users, replace_items
from orchestrator.compile.equivalence.rowdecoder import Items
from orchestrator.compile.equivalence.shortestedit import edits_of
from orchestrator.compile.equivalence.sortedrows import (
    check_ends,
    check_verdicts,
    checked_rows,
    is_a_rules,
    is_of_rules,
    items_by_cookie,
    places_of,
    verdicts,
)
from orchestrator.errors import NotEquivalent
from orchestrator.policy.model import Action, Rule
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.program.flows import FlowTable

_GAP = 1 << 32
_LAST = 1 << 62
"""A list's rules have multiples of the gap at first, return traffic stands behind all."""
_NEAR = 1 << 16
"""How far from one that came lately the key of the next to it is."""


def first_keys(rules: int, returns: int) -> npt.NDArray[np.int64]:
    """Return keys for rules and, behind them, for return traffic, from scratch."""
    return np.concatenate((np.arange(rules, dtype=np.int64) * _GAP, _LAST + np.arange(returns, dtype=np.int64)))


def keys_between(low: int | None, high: int | None, count: int, came_lately: Sequence[bool]) -> list[int] | None:
    """Return keys between two others, where these exist; None without room.

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


_MOST_STEPS = 64
_FEW_ROWS, _SHARE = 1024, 64
"""At most 1,024 items or a 64th of the list may have been looked at since the list was proven from scratch."""

_MANY_ROWS = 4096
"""From so many items on, coverage and order are looked at side by side."""


@dataclass(frozen=True, slots=True, eq=False)
class ListProof:
    """A proven list. It never changes."""

    chain: Chain
    ledger: Ledger
    users: Users

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
        keys = first_keys(len(chain.rules), len(chain.returns))
        items["rule"], items["key"] = at, keys[at]
        items = items[np.argsort(at, kind="stable")]
        index = index_of(items)
        if len(items) < _MANY_ROWS:
            check_cover(chain, links, items)
            check_order(index.conflict(), items, items, chain.place)
        else:
            with ThreadPoolExecutor(1) as beside:  # the search leaves the interpreter to others
                conflict = beside.submit(index.conflict)
                check_cover(chain, links, items)
                check_order(conflict.result(), items, items, chain.place)
        first = np.searchsorted(items["rule"], np.arange(len(links) + 1))
        order = np.argsort(cookies, kind="stable")
        base = Base(links, keys, cookies, order, cookies[order], items, first, index)
        users = Users.of(zip(cookies.tolist(), chain.rules))  # noqa: B905 -- return traffic's come behind and name none
        return cls(chain, Ledger.of(base), users)

    def after(self, chain: Chain, removed: FlowTable, added: FlowTable, groups: Regrouped) -> ListProof | None:
        """Return the proof for `chain` after rows changed; None: prove it from scratch.

        `groups` says what became of the members of groups. Raises NotEquivalent.
        """
        cookies = {*removed.cookie.tolist(), *added.cookie.tolist()}
        if chain.differs_besides_rules(self.chain) or not all(map(is_a_rules, cookies)):
            return None
        most, since = max(_FEW_ROWS, len(self.ledger.base.items) // _SHARE), len(self.ledger.since_items)
        if max(len(removed), since + len(added)) > most:
            return None
        placed = self._place_changes(chain)
        if placed is None:
            return None
        going, coming = items_by_cookie(removed, self.chain), items_by_cookie(added, chain)
        partly = self._partly(chain, groups, placed, going, coming)
        changed = self._facts_to_prove(chain, placed, groups, _leave_out(going, partly), _leave_out(coming, partly))
        check_actions(chain, added, changed, partly)
        rows = sum(len(each.items) for each in (*changed.values(), *partly.values()))
        if since + rows > most:
            return None
        check_changed(chain, changed)
        users = self.users.after(placed)
        went = {cookie: going.get(cookie, NO_ITEMS) for cookie in partly}
        return ListProof(chain, self.ledger.after(changed, partly, went, chain.place), users)

    # ------------------------------------------------------------------------------------------------ steps

    def _place_changes(self, chain: Chain) -> dict[int, Known] | None:
        """Return removed and added rules with keys and old items; None if too many."""
        old, new = self.chain, chain
        steps = [] if old.rules is new.rules else edits_of(old.rules, new.rules, _MOST_STEPS)
        if steps is None:
            return None
        went = [old.rules[step.old] for step in steps if not step.is_insert]
        came = [step.new for step in steps if step.is_insert]
        if not _same_numbers(old, new, {rule.id for rule in went}):
            return None
        placed = {cookie: Known(None, 0, self.ledger.items(cookie)) for cookie in old.cookies(went)}
        for start, end in _runs(came):
            keys = self._between(new, start, end, placed)
            if keys is None:
                return None
            rules = [new.rules[place] for place in range(start, end)]
            for rule, cookie, key in zip(rules, new.cookies(rules), keys, strict=True):
                placed[cookie] = Known(rule, key, self.ledger.items(cookie))
        return placed

    def _between(self, chain: Chain, start: int, end: int, placed: Mapping[int, Known]) -> list[int] | None:
        """Keys for the rules `start` up to `end`, between those of their neighbours, which stayed."""
        keys: list[int | None] = []
        came_lately = []
        for place in (start - 1, end):
            if not 0 <= place < len(chain.rules):
                keys.append(None)
                came_lately.append(False)
                continue
            (cookie,) = chain.cookies([chain.rules[place]])
            known = self.ledger.place(cookie)
            if known is None or cookie in placed:
                raise NotEquivalent("a neighbour of a changed rule was never proven", place=chain.place)
            keys.append(known.key)
            came_lately.append(cookie in self.ledger.since)
        return keys_between(keys[0], keys[1], end - start, came_lately)

    def _partly(
        self,
        chain: Chain,
        groups: Regrouped,
        placed: Mapping[int, Known],
        going: Mapping[int, Items],
        coming: Mapping[int, Items],
    ) -> dict[int, Known]:
        """Return the rules that stayed except members of one side, with new items."""
        found = {}
        for cookie in self.users.of_groups(groups.members) - placed.keys():
            place = self.ledger.place(cookie)
            if place is None or place.rule is None:
                continue
            items = coming.get(cookie, NO_ITEMS).copy()
            if check_members(place.rule, chain, groups, going.get(cookie, NO_ITEMS), items):
                items["key"] = place.key
                found[cookie] = Known(place.rule, place.key, items)
        return found

    def _facts_to_prove(
        self,
        chain: Chain,
        placed: Mapping[int, Known],
        groups: Regrouped,
        going: Mapping[int, Items],
        coming: Mapping[int, Items],
    ) -> dict[int, Known]:
        """Return the facts to prove as a whole.

        Rules that came, went or whose rows changed, with their items as of now.
        """
        both_sides = {
            cookie
            for cookie in self.users.of_groups(groups.members)
            if (place := self.ledger.place(cookie)) is not None and place.rule is not None
            if all(groups.names(side) for side in sides_of(place.rule).values())
        }
        found: dict[int, Known] = {}
        for cookie in placed.keys() | going.keys() | coming.keys() | both_sides:
            now = placed.get(cookie) or self._as_before(cookie, chain)
            gone = going.get(cookie, NO_ITEMS)
            items = replace_items(now.items, gone, coming.get(cookie, NO_ITEMS), chain.place)
            if len(now.items) > len(gone):
                self._check_still_does(cookie, now.rule, chain)
            items["key"] = now.key
            found[cookie] = Known(now.rule, now.key, items)
        return found

    def _as_before(self, cookie: int, chain: Chain) -> Known:
        """A rule that neither came nor went. Raises NotEquivalent if there is none."""
        place = self.ledger.place(cookie)
        if place is None:
            raise NotEquivalent(f"flow entries bear the cookie {cookie:#x}, which is no rule's", place=chain.place)
        return Known(place.rule, place.key, self.ledger.items(cookie))

    def _check_still_does(self, cookie: int, rule: Rule | None, chain: Chain) -> None:
        """Hold rows that stayed to what their rule says now. Raises NotEquivalent."""
        before = self.ledger.place(cookie)
        if rule and before and before.rule and _decide_rule(rule) != _decide_rule(before.rule):
            raise NotEquivalent(f"flow entries of rule '{rule.id}' still do what it said before", place=chain.place)


def _decide_rule(rule: Rule) -> tuple[Action, bool]:
    return rule.action, rule.log


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


def _leave_out(items: Mapping[int, Items], cookies: Mapping[int, Known]) -> dict[int, Items]:
    return {cookie: mine for cookie, mine in items.items() if cookie not in cookies}
