"""Decide which rows of a list cover others: the hard question behind every finding.

The question
    Given a box and some rows, is there a packet of the box that none of the rows holds? Whether a rule is shadowed,
    redundant or in conflict, which rules take its packets, which would take them over: each is this question about the
    right box and the right rows.

        shadowed    box r                      rows before r                      no packet
        takes       what r and k share         rows before k                      a packet: k decides some of r
        crossing    what i and j share         rows before j but i                a packet: j decides it if i goes

    A *crossing* is a pair i before j with different answers of which that holds. A row is redundant exactly if it is
    the earlier of no crossing: if it goes, a packet that it decided is decided by the next row that holds it, and
    changes its fate exactly if that row answers otherwise. And two rules are in conflict if they cross and neither
    lies in the other.

How it is answered
    Boxes become products of spans of small integers (`ranks`). Rows that meet a box are found with a packed R-tree.
    Then, in this order:

    1. Some packets of the box, its plainest and its corners, are looked up. One that nobody holds settles it, and
       shows it. For many boxes that are parts of one row, all rows that meet it are drawn as bits on its axes, and to
       look a packet up is an AND of five words for each 64 rows.
    2. Is there a row that contains the whole box? That settles it too, and is the usual end for a yes.
    3. The row that takes most of the box is cut away, which leaves at most five pieces; each is asked about again, with
       the rows that meet it.

              +-----------+                +-----+-----+
              | box  +----+----+           |  1  |     |
              |      | row|    |   ==>     |     +-----+      and then 1 and 2 against the other rows
              |      +----+----+           |     |  2  | ...
              +-----------+                +-----+-----+

    All three are exact. The third can take long: whether boxes cover a box is NP-hard in the number of axes, and though
    lists that people write end soon, one can be made that does not. So it works within a limit, counted in looks at a
    row and not in seconds, the same on every machine (`Limits`). Undecided questions are reported as undecided, never
    guessed.

    The search is in C (`_native/`). Law: it agrees with a reference in plain Python, without a tree, bits or limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.policy import _cover
from orchestrator.policy.model import Packet
from orchestrator.policy.ranks import AXES, rank_boxes
from orchestrator.policy.space import Box, StandIns

HELD, FREE, UNDECIDED = range(3)
"""Answers: rows hold all of it; a packet is free; the limit ended."""

UNKNOWN, EARLIER_INSIDE, LATER_INSIDE = 1, 2, 4
"""Flags of a crossing: not decided; which of the two rows lies in the other."""

MATTERS, MAY_MATTER = 1, 2

_STRIDE = 2048
"""Rows between two reports of progress."""

_AT_ONCE = 1 << 23
"""Crossings that are in hand at a time, at most: 256 MiB. For that the strides of long lists are shorter."""

Bytes = npt.NDArray[np.uint8]
Points = npt.NDArray[np.uint32]
Rows = npt.NDArray[np.uint32]
Told = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of work in row visits: per question (20 ms) and list (10 s).

    And the crossings after which no more are reported (some 100 bytes each).
    """

    question: int = 4_000_000
    total: int = 2_000_000_000
    crossings: int = 10_000_000


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Crossings:
    """Pairs of rows of different answers: the later decides `points` (uint32[n][5]) if the earlier goes.

    `flags`: UNKNOWN where it is not known whether it does; EARLIER_INSIDE, LATER_INSIDE. The later rows ascend.
    """

    earlier: Rows
    later: Rows
    points: Points
    flags: Rows


@dataclass(frozen=True, slots=True)
class Switch:
    """Rows of two lists that decide a packet differently; `row` is in one list only."""

    row: int
    other: int
    packet: Packet


class Cover:
    """The rows of one list, at least one, ready to be asked."""

    def __init__(self, boxes: Sequence[Box], limits: Limits = DEFAULT_LIMITS) -> None:
        found = rank_boxes(boxes)
        self.coordinates = found.coordinates
        self._rows = _cover.Cover(found.spans, found.starts, found.plain)
        self._count = len(boxes)
        standins, first = StandIns(), dict[object, int]()
        self._repeated = [row for row, box in enumerate(boxes) if first.setdefault(standins.of_box(box), row) != row]
        self._question, self._left, self._most = limits.question, limits.total, limits.crossings
        self.untold = range(0)

    def find_covered(self, told: Told = lambda _: None) -> tuple[Bytes, Points]:
        """Return for each row whether earlier ones cover it, and an uncovered point where not."""
        state, points = np.full(self._count, FREE, np.uint8), np.zeros((self._count, AXES), np.uint32)
        state[self._repeated] = HELD
        for start in range(0, self._count, _STRIDE):
            stop = min(start + _STRIDE, self._count)
            self._left = self._rows.covered(state, points, start, stop, self._left, self._question)
            told(stop)
        return state, points

    def crossings(
        self, permits: Bytes, counts: Bytes, alone: Bytes, matters: Bytes, told: Told = lambda _: None
    ) -> Iterator[Crossings]:
        """Yield all crossings among rows that count, some rows' at a time.

        There may be many. Except: of a pair one of which lies in the other, and is `alone` (has no row in another list
        that may lie outside), only `matters` tells.

        `matters`, of zeros, becomes MATTERS for each row that is the earlier of a crossing, or MAY_MATTER if that is
        not known, or both. `untold` are then the rows of which, as the later, no crossing is told: they were too many.
        """
        start = told_of = 0
        while start < self._count:
            stop = min(start + max(1, min(_STRIDE, _AT_ONCE // (start + _STRIDE))), self._count)
            if told_of >= self._most and not self.untold:
                self.untold = range(start, self._count)
            found, self._left = self._rows.crossings(
                permits, counts, alone, matters, start, stop, self._left, self._question, not self.untold
            )
            told(stop)
            start = stop
            if found:
                pairs = np.frombuffer(found, np.uint32).reshape(-1, AXES + 3)
                told_of += len(pairs)
                yield Crossings(pairs[:, 0], pairs[:, 1], pairs[:, 2 : 2 + AXES], pairs[:, -1])

    def changes(self, permits: Bytes, of: Bytes, row: int) -> list[Switch] | None:
        """Return the rows that decide otherwise for packets of a row of one list.

        Rows of two lists are in an order that both keep (`of`: 1 before, 2 after, 3 both). Of a pair of two such rows
        the one before is reported. None: undecided.
        """
        found, self._left = self._rows.changes(permits, of, row, self._left, self._question)
        pairs = np.frombuffer(found, np.uint32).reshape(-1, AXES + 3)
        if (pairs[:, -1] & UNKNOWN).any():
            return None
        return [Switch(row, other, self.coordinates.packet(point)) for _, other, *point, _ in pairs.tolist()]

    def before(self, of: Bytes, row: int, other: int) -> list[int]:
        """Return rows that take common packets of two rows before both, ascending."""
        found: list[int] = np.frombuffer(self._rows.before(of, row, other), np.uint32).tolist()
        return found

    def deciders(self, counts: Bytes, row: int) -> list[int] | None:
        """The earlier rows that count and decide part of a row's packets, ascending. None: undecided."""
        found, self._left = self._rows.deciders(counts, row, self._left, self._question)
        return None if found is None else np.frombuffer(found, np.uint32).tolist()

    def heirs(self, permits: Bytes, counts: Bytes, row: int) -> list[int] | None:
        """Return later rows that suffice when a row that crosses none goes, ascending.

        None: undecided.
        """
        found, self._left = self._rows.heirs(permits, counts, row, self._left, self._question)
        return None if found is None else np.frombuffer(found, np.uint32).tolist()
