"""The reference of `_native/cover.c`: every row against every other, ranks as spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.policy import spans
from orchestrator.policy.spans import Span, Spans

_AXES = 5
_HELD, _FREE = 0, 1

Set = tuple[Spans, ...]
"""A product: one set of ranks for each axis."""

Point = tuple[int, ...]


class ReferenceCover:
    """Like `_cover.Cover`: the same methods on the same columns.

    Limits are accepted and not used.
    """

    def __init__(self, spans: npt.NDArray[np.uint32], starts: npt.NDArray[np.uint32], _plain: object) -> None:
        every = [Span(low, high) for low, high in spans.tolist()]
        axes = [tuple(every[start:stop]) for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]
        self._rows: list[Set] = [tuple(axes[row : row + _AXES]) for row in range(0, len(axes), _AXES)]

    def covered(self, state: Any, points: Any, start: int, stop: int, left: int, _question: int) -> int:
        for row in range(start, stop):
            if state[row] == _HELD:
                continue
            point = find_uncovered(self._rows[row], self._rows[:row])
            state[row] = _HELD if point is None else _FREE
            points[row] = point or (0,) * _AXES
        return left

    def crossings(
        self,
        permits: Any,
        counts: Any,
        alone: Any,
        matters: Any,
        start: int,
        stop: int,
        left: int,
        _question: int,
        told: bool = True,
    ) -> tuple[bytes, int]:
        found: list[tuple[int, ...]] = []
        for later in range(start, stop):
            for earlier in range(later):
                if not (counts[earlier] and counts[later]) or permits[earlier] == permits[later]:
                    continue
                point = self._free(earlier, later, [row for row in range(later) if counts[row] and row != earlier])
                if point is None:
                    continue
                matters[earlier] = _FREE
                inside = contains(self._rows[later], self._rows[earlier])
                around = contains(self._rows[earlier], self._rows[later])
                if told and not ((inside and alone[earlier]) or (around and alone[later])):
                    found.append((earlier, later, *point, 2 * inside + 4 * around))
        return np.array(found, np.uint32).tobytes(), left

    def deciders(self, counts: Any, row: int, left: int, _question: int) -> tuple[bytes | None, int]:
        before = [other for other in range(row) if counts[other]]
        return self._taking(row, before, before), left

    def heirs(self, permits: Any, counts: Any, row: int, left: int, _question: int) -> tuple[bytes | None, int]:
        others = [other for other in range(len(self._rows)) if counts[other] and other != row]
        later = [other for other in others if other > row and self.common(row, other)]
        for place, other in enumerate(later):
            if permits[other] != permits[row]:
                break
            if contains(self._rows[other], self._rows[row]):
                return np.array(later[place : place + 1], np.uint32).tobytes(), left
        return self._taking(row, later, others), left

    def changes(self, permits: Any, of: Any, row: int, left: int, _question: int) -> tuple[bytes, int]:
        found: list[tuple[int, ...]] = []
        for other in range(len(self._rows)):
            kept, elsewhere = of[other] & of[row], of[other] & ~of[row] & 3
            once = other > row if kept else of[row] == 1
            if other == row or permits[row] == permits[other] or not elsewhere or not once:
                continue
            point = self._free(row, other, self._asked_first(of, row, other))
            if point is not None:
                found.append((row, other, *point, 0))
        return np.array(found, np.uint32).tobytes(), left

    def before(self, of: Any, row: int, other: int) -> bytes:
        common = self.common(row, other)
        rows = [each for each in self._asked_first(of, row, other) if common and intersect(common, self._rows[each])]
        return np.array(rows, np.uint32).tobytes()

    def _asked_first(self, of: Any, row: int, other: int) -> list[int]:
        """The rows before `row` in its list, and before `other` in the other one."""
        mine, theirs = of[row], 3 & ~of[row]
        return [
            each
            for each in range(len(self._rows))
            if each not in (row, other) and ((each < row and of[each] & mine) or (each < other and of[each] & theirs))
        ]

    def _taking(self, row: int, those: Sequence[int], among: Sequence[int]) -> bytes:
        """Return which rows decide part of a row's set by first match among others."""
        found = [each for each in those if self._free(row, each, [other for other in among if other < each])]
        return np.array(found, np.uint32).tobytes()

    def _free(self, one: int, other: int, rows: Sequence[int]) -> Point | None:
        common = self.common(one, other)
        return None if common is None else find_uncovered(common, [self._rows[row] for row in rows])

    def common(self, one: int, other: int) -> Set | None:
        """Return the common set of two rows."""
        return intersect(self._rows[one], self._rows[other])

    def contains(self, outer: int, inner: int) -> bool:
        """Whether one row's set lies in another's."""
        return contains(self._rows[outer], self._rows[inner])


def intersect(one: Set, other: Set) -> Set | None:
    """Return the intersection; None if it is empty."""
    common = tuple(spans.intersect(a, b) for a, b in zip(one, other, strict=True))
    return common if all(common) else None


def contains(outer: Set, inner: Set) -> bool:
    """Whether all of `inner` is in `outer`."""
    return all(spans.covers(a, b) for a, b in zip(outer, inner, strict=True))


def find_uncovered(what: Set, rows: Sequence[Set]) -> Point | None:
    """Return a point of a set that no row holds; None if they cover it."""
    for place, row in enumerate(rows):
        common = intersect(what, row)
        if common is None:
            continue
        rest = what
        for axis in range(_AXES):  # the kinds of header first: only some have ports that could be cut
            outside = spans.minus(rest[axis], common[axis])
            if outside:
                point = find_uncovered((*rest[:axis], outside, *rest[axis + 1 :]), rows[place + 1 :])
                if point is not None:
                    return point
            rest = (*rest[:axis], common[axis], *rest[axis + 1 :])
        return None
    return tuple(axis[0].low for axis in what)
