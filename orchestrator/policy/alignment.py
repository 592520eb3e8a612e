"""Align two sequences: a long common subsequence in the order of both."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def common(old: Sequence[object], new: Sequence[object]) -> list[tuple[int, int]]:
    """Return ascending index pairs of a common subsequence.

    It has equal heads and tails, and between them the longest one made of items that each list has once (patience:
    longest increasing subsequence).
    """
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    where_new = _once(new[head : len(new) - tail])
    where_old = _once(old[head : len(old) - tail])
    middle = [(place + head, where_new[key] + head) for key, place in where_old.items() if key in where_new]
    ends = [(len(old) - step, len(new) - step) for step in range(tail, 0, -1)]
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
    """Return a longest choice of pairs that also ascends in the second number.

    The pairs ascend in the first.
    """
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
