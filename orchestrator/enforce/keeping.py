"""Keeps the newest program on an enforcement point's disk, as deltas where that is less."""

from __future__ import annotations

from orchestrator.enforce import gap
from orchestrator.enforce.standing import Goal, same
from orchestrator.enforce.state import StateDir
from orchestrator.program.program import Program

KEEP_AGAIN_S = 60.0
"""When to try again to write a program to the disk that was full."""

KEEP_AFTER_S = 0.2
"""When to write a new one: first it goes to the devices, and its report to the service."""


class Keeper:
    """`goal` is what is to be kept; `kept` is what the disk holds, None: nothing."""

    def __init__(self, state: StateDir, kept: Program | None) -> None:
        self.goal: Goal | None = None
        self._state = state
        self._kept = kept

    def keep(self) -> None:
        """Bring the disk to the goal. Raises Missing when it cannot be written; it holds an older program then."""
        goal, kept = self.goal, self._kept
        if goal is None or (kept is not None and same(kept, goal.program)):
            return
        deltas = gap.since(kept.digest, goal.program.digest, goal.trail) if kept is not None else ()
        if not deltas or not self._state.keep_deltas(deltas):
            self._state.keep_program(goal.program)
        self._kept = goal.program

    def drop(self) -> None:
        """Have the disk hold nothing, so that a later start does not begin with a program that is old."""
        self._kept = None
        self._state.drop_program()
