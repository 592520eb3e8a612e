"""What a change of an access list opens and what it closes: exactly, as a short list of disjoint boxes.

    before, after ──▶ rows that changed ──▶ what each decides and the other list answers otherwise ──▶ merge

Two lists are first laid side by side: a common subsequence of rows with the same packets and the same answer is *kept*,
all other rows are *changed*. If a packet is decided by kept rows in both lists, they are the same row (each comes
before the other in a list where both match), so its fate is the same. What remains are the packets that a changed row
decides in its own list and that get the other answer in the other one; a small change to a long list costs what it
touches. Any common subsequence is right; a longer one is faster.

For one changed row the search starts with its box and cuts: where the other list's rows disagree among themselves,
along the first of them; where they all give the other answer, along the rows before it in its own list; and where they
all agree with it, it stops. Kept rows that come before the changed row are not asked in the other list: what they hold
is not decided by the changed row. Pieces that differ on one axis only are merged in the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Acl, Direction, ReturnTraffic, RuleId
from orchestrator.policy.rulelist import RowNumbers, RuleList, rule_lists
from orchestrator.policy.space import Box, merged

MOST_WORK = 20_000_000
"""Spans compared in all, over all cuts. A difference that takes more (some ten seconds) is no short list of boxes."""


class _Budget:
    """Work that may still be done."""

    def __init__(self) -> None:
        self._left = MOST_WORK

    def cut(self, box: Box, rows: int) -> None:
        """One more cut, of a box that so many rows were compared with. Raises TooLarge when it is enough."""
        self._left -= 100 + rows * (len(box.source) + len(box.destination))
        if self._left < 0:
            raise TooLarge("the two lists differ in too many separate regions of packet space: compare smaller changes")


@dataclass(frozen=True, slots=True)
class Change:
    """A box of packets whose fate changes, and the rules that decide them before and after, in list order.

    The ids may be `_return` (the domain's return-traffic rule) and `_default`.
    """

    direction: Direction
    box: Box
    before: tuple[RuleId, ...]
    after: tuple[RuleId, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """All packets that the change permits, and all that it denies. Within each tuple the boxes are disjoint."""

    permitted: tuple[Change, ...]
    denied: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.permitted or self.denied)


def difference(
    before: Acl,
    after: Acl,
    *,
    own: Sequence[Prefix] = (),
    returns: ReturnTraffic = ReturnTraffic.EXPLICIT,
) -> Difference:
    """Compare what two lists decide. `own` and `returns` as in `rulelist.rule_lists`.

    Raises TooLarge where the lists have next to nothing in common and the answer would be a book.
    """
    permitted: list[Change] = []
    denied: list[Change] = []
    for direction in Direction:
        olds = rule_lists(before, direction, own=own, returns=returns)
        news = rule_lists(after, direction, own=own, returns=returns)
        for family in Family:
            if family in olds and family in news:
                opened, closed = _compare(olds[family], news[family])
                permitted += _explained(opened, direction, olds[family], news[family])
                denied += _explained(closed, direction, olds[family], news[family])
    return Difference(tuple(permitted), tuple(denied))


@dataclass(frozen=True, slots=True)
class _Side:
    """One of two lists laid side by side: for each row the number of its partner, or -1 if the row changed."""

    rows: RuleList
    partner: RowNumbers

    @property
    def changed(self) -> list[int]:
        return [number for number, partner in enumerate(self.partner) if partner < 0]


def _side_by_side(old: RuleList, new: RuleList) -> tuple[_Side, _Side]:
    pairs = _common([(row.box, row.permit) for row in old.rows], [(row.box, row.permit) for row in new.rows])
    sides = _Side(old, np.full(len(old), -1)), _Side(new, np.full(len(new), -1))
    for in_old, in_new in pairs:
        sides[0].partner[in_old], sides[1].partner[in_new] = in_new, in_old
    return sides


def _compare(old: RuleList, new: RuleList) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """The packets that become permitted, and those that become denied, each as disjoint boxes."""
    budget = _Budget()
    before, after = _side_by_side(old, new)
    opened: list[Box] = []
    closed: list[Box] = []
    for number in before.changed:
        (closed if old.rows[number].permit else opened).extend(_decided_otherwise(before, number, after, budget))
    for number in after.changed:
        found = opened if new.rows[number].permit else closed
        for box in _decided_otherwise(after, number, before, budget):
            found += _rest(box, found)
    return merged(opened), merged(closed)


def _decided_otherwise(mine: _Side, number: int, other: _Side, budget: _Budget) -> Iterator[Box]:
    """Disjoint boxes of the packets that row `number` decides in `mine` and that get the other answer in `other`."""
    row = mine.rows.rows[number]
    rows, asked = other.rows, (other.partner < 0) | (other.partner > number)
    work = [row.box]
    while work:
        box = work.pop()
        answering = rows.answering(box, asked)
        budget.cut(box, len(answering))
        answers = {rows.rows[each].permit for each in answering}
        if answers <= {row.permit}:  # no answer: every row that holds such packets is kept and before the changed row
            continue
        if len(answers) > 1:
            cut = rows.rows[answering[0]].box
            inside = box.intersect(cut)
            work += box.minus(cut) if inside is None else (*box.minus(cut), inside)
            continue
        before = mine.rows.overlapping(box, stop=number)
        budget.cut(box, len(before))
        if before:
            work += box.minus(mine.rows.rows[before[0]].box)
        else:
            yield box


def _rest(box: Box, taken: Sequence[Box]) -> list[Box]:
    """The packets of a box that are not in any of the others."""
    pieces = [box]
    for other in taken:
        if other.overlaps(box):
            pieces = [part for piece in pieces for part in piece.minus(other)]
    return pieces


def _explained(boxes: Iterable[Box], direction: Direction, old: RuleList, new: RuleList) -> Iterator[Change]:
    for box in boxes:
        before = tuple(old.rows[row].id for row in old.deciders(box))
        after = tuple(new.rows[row].id for row in new.deciders(box))
        yield Change(direction, box, before, after)


def _common(old: Sequence[object], new: Sequence[object]) -> list[tuple[int, int]]:
    """Index pairs of a common subsequence: equal heads and tails, and between them the longest one made of items that
    each list has once (patience: longest increasing subsequence)."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    where_new = _once(new[head : len(new) - tail])
    where_old = _once(old[head : len(old) - tail])
    middle = [(place + head, where_new[key] + head) for key, place in where_old.items() if key in where_new]
    ends = [(len(old) - 1 - step, len(new) - 1 - step) for step in range(tail)]
    return [(index, index) for index in range(head)] + _longest_increasing(middle) + ends


def _once(items: Sequence[object]) -> dict[object, int]:
    """The index of every item that occurs exactly once, in order."""
    found: dict[object, int] = {}
    again: set[object] = set()
    for index, item in enumerate(items):
        if item in found:
            again.add(item)
        found[item] = index
    return {item: index for item, index in found.items() if item not in again}


def _longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of pairs ascending in the first number, a longest choice that ascends in the second as well."""
    tops: list[int] = []
    piles: list[int] = []
    previous: list[int] = []
    for index, (_, value) in enumerate(pairs):
        pile = bisect_left(tops, value)
        if pile == len(tops):
            tops.append(value)
            piles.append(index)
        else:
            tops[pile], piles[pile] = value, index
        previous.append(piles[pile - 1] if pile else -1)
    chosen = []
    index = piles[-1] if piles else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = previous[index]
    return chosen[::-1]
