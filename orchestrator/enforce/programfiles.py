"""Keeps the newest program on an enforcement point's disk, as deltas where that is less.

jot    before a small change is committed, and before anybody is told: what is new goes behind what the file holds, so
       that being killed at any moment loses nothing that was reported; costs as little as the change
keep   soon after, and now and then: what was jotted down is flushed to the disk, what was not is written whole
"""

from __future__ import annotations

import threading

from orchestrator.enforce import gap
from orchestrator.enforce.standing import Goal, same
from orchestrator.enforce.state import StateDir
from orchestrator.errors import Missing
from orchestrator.program.program import Program

KEEP_AGAIN_S = 60.0
"""When to try again to write a program to the disk that was full."""

KEEP_AFTER_S = 0.2
"""When to flush a new one: first it goes to the devices, and its report to the service."""


class Keeper:
    """Stores goals on disk.

    `goal` is what is to be stored; `kept` is what the disk holds, None: nothing. Safe to share between threads.
    """

    def __init__(self, state: StateDir, kept: Program | None) -> None:
        self.goal: Goal | None = None
        self._state = state
        self._kept = kept
        self._is_loose = False
        self._writing = threading.Lock()

    def jot(self, goal: Goal) -> None:
        """Set a goal; one that follows the stored one is written, though not flushed.

        Where nothing is kept it is on the disk.
        """
        with self._writing:
            self.goal = goal
            try:
                if self._kept is None:
                    self._write_program(goal)
                else:
                    self._is_loose = self._follows(goal, flush=False) or self._is_loose
            except Missing:  # the disk is full, say: `keep` finds out, and says so
                return

    def has(self, goal: Goal) -> bool:
        """Whether a start after being killed now would begin with it."""
        return self._kept is not None and same(self._kept, goal.program)

    def keep(self) -> None:
        """Write the goal to disk.

        Raises Missing when it cannot be written; the disk holds an older program then.
        """
        with self._writing:
            goal, was_loose, self._is_loose = self.goal, self._is_loose, False
            if goal is None:
                return
            if self._kept is None or not same(self._kept, goal.program):
                if not self._follows(goal, flush=True):
                    self._write_program(goal)
                return
        if was_loose:  # others may write meanwhile
            self._state.flush_deltas()

    def drop(self) -> None:
        """Remove the stored program, so that no later start uses an old one."""
        with self._writing:
            self._kept = None
            self._state.drop_program()

    def _write_program(self, goal: Goal) -> None:
        self._state.keep_program(goal.program)
        self._kept = goal.program

    def _follows(self, goal: Goal, *, flush: bool) -> bool:
        """Append the deltas to the goal; False where impossible, or nothing is new."""
        kept = self._kept
        if kept is None or same(kept, goal.program):
            return False
        deltas = gap.since(kept.digest, goal.program.digest, goal.trail)
        if not deltas or not self._state.keep_deltas(deltas, flush=flush):
            return False
        self._kept = goal.program
        return True
