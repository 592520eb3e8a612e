"""Sets of integers as sorted, disjoint, non-adjacent spans.

Addresses and ports of a box of packet space.

Two equal sets have equal spans, so sets compare and hash as values. Nearly every set a rule makes is one span; the
functions take that road first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias


class Span(NamedTuple):
    """The integers `low`..`high`, both included."""

    low: int
    high: int


Spans: TypeAlias = tuple[Span, ...]


def union(spans: Iterable[Span]) -> Spans:
    """Return the union of spans, which may overlap and come in any order."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.low <= merged[-1].high + 1:
            if span.high > merged[-1].high:
                merged[-1] = Span(merged[-1].low, span.high)
        else:
            merged.append(span)
    return tuple(merged)


def intersect(left: Spans, right: Spans) -> Spans:
    """Return the intersection."""
    if left == right:
        return left
    if len(left) == 1 and len(right) == 1:
        low, high = max(left[0].low, right[0].low), min(left[0].high, right[0].high)
        return (Span(low, high),) if low <= high else ()
    for one, other in ((left, right), (right, left)):
        if len(one) == 1 and other and one[0].low <= other[0].low and other[-1].high <= one[0].high:
            return other
    common: list[Span] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low, high = max(left[i].low, right[j].low), min(left[i].high, right[j].high)
        if low <= high:
            common.append(Span(low, high))
        if left[i].high < right[j].high:
            i += 1
        else:
            j += 1
    return tuple(common)


def meet(left: Spans, right: Spans) -> bool:
    """Whether some integer is in both sets."""
    if len(left) == 1 and len(right) == 1:
        return left[0].low <= right[0].high and right[0].low <= left[0].high
    return bool(intersect(left, right))


def minus(left: Spans, right: Spans) -> Spans:
    """Return `left` without `right`."""
    rest: list[Span] = []
    j = 0
    for start, high in left:
        low = start
        while j < len(right) and right[j].high < low:
            j += 1
        k = j
        while k < len(right) and right[k].low <= high:
            if low < right[k].low:
                rest.append(Span(low, right[k].low - 1))
            low = right[k].high + 1
            k += 1
        if low <= high:
            rest.append(Span(low, high))
    return tuple(rest)


def covers(outer: Spans, inner: Spans) -> bool:
    """Whether every integer of `inner` is in `outer`."""
    return outer == inner or intersect(outer, inner) == inner


def holds(spans: Spans, value: int) -> bool:
    """Whether the integer is in the set."""
    return any(span.low <= value <= span.high for span in spans)


def size(spans: Spans) -> int:
    """How many integers the set holds."""
    return sum(span.high - span.low + 1 for span in spans)
