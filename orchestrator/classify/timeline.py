"""Count packets by interval and fate: permitted, denied, newly permitted, newly denied.

Intervals of a replay are as long as they must be for `MOST_BINS` of them to reach from the first packet to the last.
Each width of `WIDTHS` is a multiple of the one before, so pieces of a capture that were counted at different widths add
up exactly, in any order.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.classify import _frames
from orchestrator.classify.frames import NO_TIME
from orchestrator.classify.grouping import I32, I64

MOST_BINS = 240

_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND
WIDTHS = (
    *(_SECOND // 1000 * each for each in (1, 10, 100)),
    *(_SECOND * each for each in (1, 10, 60, 600, 3600)),
    *(_DAY * each for each in (1, 10, 100, 1000)),
)
"""Nanoseconds of an interval."""


class Fate(enum.IntEnum):
    """The fate of a packet; the number is its column."""

    UNDECIDED = 0
    PERMITTED = 1
    DENIED = 2
    NEWLY_PERMITTED = 3
    NEWLY_DENIED = 4


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval that has packets."""

    begin: int
    """Nanoseconds since 1970."""
    permitted: int
    denied: int
    newly_permitted: int
    """Among those permitted, the ones that the other list denies."""
    newly_denied: int
    undecided: int


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Packets by interval and fate; only intervals that have some."""

    level: int
    """Of `WIDTHS`."""
    bins: I64
    """Numbers of intervals since 1970, ascending."""
    counts: I64
    """A row for each, a column for each fate."""

    @classmethod
    def none(cls) -> Timeline:
        """Return the timeline of no packets."""
        return cls(0, np.zeros(0, np.int64), np.zeros((0, len(Fate)), np.int64))

    @classmethod
    def of(cls, times: I64, group: I32, fates: npt.NDArray[np.uint8], count: I64 | None = None) -> Timeline:
        """Count frames by time and by the fate of their kind.

        `count` is how often each counts.

        Frames without a time are left out.
        """
        timed = times[times != NO_TIME]
        if not len(timed):
            return cls.none()
        first, last = int(timed.min()), int(timed.max())
        level = _level(first, last)
        width = WIDTHS[level]
        begin = first // width
        counts = np.zeros((last // width - begin + 1, len(Fate)), np.int64)
        _frames.spread(times, group, fates, count, begin, width, len(Fate), counts)
        met = np.flatnonzero(counts.any(axis=1))
        return cls(level, met + begin, counts[met])

    def __add__(self, other: Timeline) -> Timeline:
        """The packets of both."""
        if not len(self.bins) or not len(other.bins):
            return self if len(self.bins) else other
        bins = [each.bins * WIDTHS[each.level] for each in (self, other)]
        first, last = (int(each) for each in (min(map(np.min, bins)), max(map(np.max, bins))))
        level = max(self.level, other.level, _level(first, last))
        numbers, where = np.unique(np.concatenate(bins) // WIDTHS[level], return_inverse=True)
        counts = np.zeros((len(numbers), len(Fate)), np.int64)
        np.add.at(counts, where, np.concatenate((self.counts, other.counts)))
        return Timeline(level, numbers, counts)

    @property
    def width(self) -> int:
        """How many nanoseconds an interval lasts."""
        return WIDTHS[self.level]

    def intervals(self) -> Iterator[Interval]:
        """Yield the intervals in their order.

        Packets that two lists decide otherwise count for both columns.
        """
        for number, row in zip(self.bins.tolist(), self.counts.tolist(), strict=True):
            yield Interval(
                number * self.width,
                permitted=row[Fate.PERMITTED] + row[Fate.NEWLY_PERMITTED],
                denied=row[Fate.DENIED] + row[Fate.NEWLY_DENIED],
                newly_permitted=row[Fate.NEWLY_PERMITTED],
                newly_denied=row[Fate.NEWLY_DENIED],
                undecided=row[Fate.UNDECIDED],
            )


def _level(first: int, last: int) -> int:
    """The finest width that needs no more than `MOST_BINS` intervals; the widest where none does."""
    fitting = (level for level, width in enumerate(WIDTHS) if last // width - first // width < MOST_BINS)
    return next(fitting, len(WIDTHS) - 1)
