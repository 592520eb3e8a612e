"""Time of a piece of work by stage: a clock with named laps.

    with measuring() as clock:          the work begins
        ...; lap("database")            what was done since the last lap counts as `database`
        ...; lap("compile")
    clock.seconds                       {"database": 0.0021, "compile": 0.0014}

The clock belongs to the work and goes with it from coroutine to thread and back (it travels in a context variable, as
threads of a pool are given). Code that calls `lap` need not know whether anybody measures; where nobody does, nothing
happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

LOOK, WAIT = "look", "wait"
"""Looking at a list, and waiting for a process that does."""
ENFORCING = frozenset({"copy", "plan", "observe", "wire", "readback"})
"""The stages of an enforcement point, from a program's arrival to its read-back."""


class StageClock:
    """Seconds by stage, in order of first ends.

    For one thread at a time.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._at = clock()
        self.seconds: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """End the stage that began at the last lap, or at the beginning."""
        now = self._clock()
        self.add(stage, now - self._at)
        self._at = now

    def add(self, stage: str, seconds: float) -> None:
        """Count time that somebody else measured."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def add_parts(self, whole: str, parts: Mapping[str, float]) -> None:
        """Count what a stage consisted of, as ``whole.part``."""
        for part, seconds in parts.items():
            self.add(f"{whole}.{part}", seconds)


_current: ContextVar[StageClock | None] = ContextVar("stages", default=None)


@contextmanager
def measuring() -> Iterator[StageClock]:
    """Measure the block, also on threads and coroutines with this context."""
    clock = StageClock()
    token = _current.set(clock)
    try:
        yield clock
    finally:
        _current.reset(token)


def current() -> StageClock | None:
    """The clock of the work under way, if somebody measures it."""
    return _current.get()


def lap(stage: str) -> None:
    """End a stage of the work under way, if somebody measures it."""
    clock = _current.get()
    if clock is not None:
        clock.lap(stage)


def add_parts(whole: str, parts: Mapping[str, float]) -> None:
    """Say what a stage of the work under way consisted of, if somebody measures it."""
    clock = _current.get()
    if clock is not None:
        clock.add_parts(whole, parts)
