"""Order rows that are sorted into classes, in as few turns as their order allows.

Rows of one class can be asked together (by one map, or one tree). Of two rows that share a packet the earlier must be
asked first, or together with the later: that is all the order there is. Classes take turns, 0 1 .. k-1, 0 1 .. k-1, and
each row goes into the earliest turn of its class that is not before any earlier row it meets:

    rows 0a 1b 2a, where 2 meets 1:     a first  turn 0: 0     turn 1: 1     turn 2: 2
                                        b first  turn 0: 1     turn 1: 0 2

Turns that nobody takes are left out. Law: of two rows that share a packet, the later is never in an earlier turn.

"The latest turn among the earlier rows that it meets" is the search that levels are found with (`levels.py`), in C.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from orchestrator.compile.lists.levels import turns
from orchestrator.compile.nftables.space import Axis, Rows, Space


class Wave(NamedTuple):
    """Rows that are asked together, in list order, and their class."""

    kind: int
    rows: Rows


def waves(space: Space, rows: Rows, kinds: Rows) -> list[Wave]:
    """Return the turns of some rows of a list; `kinds` are their classes.

    The first turn is the first class's or the last one's, whichever makes fewer turns.
    """
    classes = int(kinds.max()) + 1
    first, last = (row_turns(space, rows, (kinds + shift) % classes, classes) for shift in (0, 1))
    shift, turn = (1, last) if len(np.unique(last)) < len(np.unique(first)) else (0, first)
    return [Wave((int(number) - shift) % classes, rows[turn == number]) for number in np.unique(turn)]


def row_turns(space: Space, rows: Rows, kinds: Rows, classes: int) -> Rows:
    """Return every row's turn.

    Class i has the turns i, i + classes, i + 2 classes, and so on.
    """
    boxes = np.zeros((len(rows), 2, 8), np.int32)
    boxes[:, 0, : len(Axis)], boxes[:, 1, : len(Axis)] = space.low[:, rows].T, space.high[:, rows].T
    source, destination = (space.low[axis, rows] for axis in (Axis.SOURCE, Axis.DESTINATION))
    wide = [space.unbounded[axis, rows] for axis in (Axis.SOURCE, Axis.DESTINATION)]
    order = np.lexsort((source, destination, *wide))  # neighbours in space, those open to every address apart
    return turns(boxes, space.flags[rows], order, kinds, classes).astype(np.int64)
