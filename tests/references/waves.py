"""Turns of rows straight from their definition, to hold the compiled search against."""

from __future__ import annotations

import numpy as np

from orchestrator.compile.nftables.space import Rows, Space


def reference_turns(space: Space, rows: Rows, kinds: Rows, classes: int) -> Rows:
    """Find the turn of every row by comparing it with all rows before it."""
    turn = np.zeros(len(space.lines), np.int64)
    for place, (row, kind) in enumerate(zip(rows.tolist(), kinds.tolist(), strict=True)):
        before = rows[:place]
        met = space.meeting(row, before[turn[before] > kind])
        after = int(turn[met].max(initial=kind))
        turn[row] = after + (kind - after) % classes
    return turn[rows]
