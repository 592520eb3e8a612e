"""A filter list's rows as boxes of ranks, for the planner to compare and cut.

Every axis is cut into the ranges of values that no row tells apart; a *rank* numbers them in ascending order. A row is
then an interval of ranks on each axis, whatever the axis is made of, plus the word (`fields.WORD`) it asks for:

    source address   0.0.0.0 ... 9.255.255.255 | 10.0.0.0 ... 10.255.255.255 | 11.0.0.0 ... 255.255.255.255
    rank                       0               |              1              |              2

ICMP types and codes stand where other protocols have ports.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile.filters.filterlists import Line
from orchestrator.policy.addresses import Family
from orchestrator.policy.ports import HIGHEST_PORT

Rows = npt.NDArray[np.int64]
Ranks = npt.NDArray[np.int32]
Bits = npt.NDArray[np.bool_]


class Axis(enum.IntEnum):
    """The matched parts of a packet, in the order of `Space.low` and `Space.high`."""

    PROTOCOL = 0
    SOURCE = 1
    DESTINATION = 2
    SOURCE_PORTS = 3
    DESTINATION_PORTS = 4

    __hash__ = int.__hash__  # axes are looked for in sets all the time; an enumeration's own takes ten times as long


AXES = tuple(Axis)


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """Boxes: `low` and `high` ranks (5, rows); `starts`: each rank's first value by axis.

    `unbounded`: (5, rows) whether the row takes every value; `words`: (rows, 2) value and mask.
    """

    lines: tuple[Line, ...]
    family: Family
    low: Ranks
    high: Ranks
    unbounded: Bits
    words: npt.NDArray[np.uint16]
    starts: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, lines: Sequence[Line], family: Family) -> Space:
        """The space of a list's rows of one IP version."""
        spans = [
            [(0, 255) if line.protocol < 0 else (line.protocol, line.protocol) for line in lines],
            [(line.source.network, line.source.last) for line in lines],
            [(line.destination.network, line.destination.last) for line in lines],
            *([line.slots[slot] for line in lines] for slot in (0, 1)),
        ]
        tops = (255, (1 << family.bits) - 1, (1 << family.bits) - 1, HIGHEST_PORT, HIGHEST_PORT)
        starts, low, high = [], [], []
        for pairs, top in zip(spans, tops, strict=True):
            first = sorted({0, *(a for a, _ in pairs), *(b + 1 for _, b in pairs if b < top)})
            rank = {value: number for number, value in enumerate(first)} | {top + 1: len(first)}
            starts.append((*first, top + 1))
            low.append([rank[a] for a, _ in pairs])
            high.append([rank[b + 1] - 1 for _, b in pairs])
        lows, highs = np.array(low, np.int32), np.array(high, np.int32)
        last = np.array([len(each) - 2 for each in starts], np.int32)
        words = np.array([(line.word_value, line.word_mask) for line in lines], np.uint16).reshape(-1, 2)
        unbounded = (lows == 0) & (highs == last[:, None])
        return cls(tuple(lines), family, lows, highs, unbounded, words, tuple(starts))

    def values(self, axis: Axis, first: int, last: int) -> tuple[int, int]:
        """The lowest and the highest value of an interval of ranks."""
        return self.starts[axis][first], self.starts[axis][last + 1] - 1

    def certain(self, cut: frozenset[Axis]) -> Bits:
        """Return which rows match every packet that is left once some axes were cut."""
        looked_at = [axis for axis in AXES if axis not in cut]
        return np.asarray(self.unbounded[looked_at].all(axis=0) & (self.words[:, 1] == 0))

    def meeting(self, row: int, others: Rows) -> Rows:
        """Return those of some rows that share a packet with a row."""
        value, mask = self.words[row]
        for axis in _MOST_TELLING_FIRST:
            low, high = self.low[axis], self.high[axis]
            others = others[(low[others] <= high[row]) & (high[others] >= low[row])]
        if mask and len(others):
            theirs = self.words[others]
            others = others[(theirs[:, 0] ^ value) & theirs[:, 1] & mask == 0]
        return others


_MOST_TELLING_FIRST = (Axis.SOURCE, Axis.DESTINATION, Axis.DESTINATION_PORTS, Axis.SOURCE_PORTS, Axis.PROTOCOL)
"""Two rows are mostly apart in their addresses."""


class Shape(NamedTuple):
    """The bits that a table matches: prefix lengths, ports or ICMP, TCP flags."""

    source: int
    destination: int
    source_port: bool
    destination_port: bool
    flags: int
