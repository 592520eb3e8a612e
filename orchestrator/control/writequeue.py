"""Carry out waiting writes together: one transaction, one compilation, one generation.

    thread 1   write ── carries out its own ───────────────────────▶ answered
    thread 2        write ── waits ── carries out 2, 3 and 4 ─────────────────────────▶ answered
    thread 3           write ── waits ─────────────────────────────────────────────────▶ answered
    thread 4              write ── waits ──────────────────────────────────────────────▶ answered

A write that comes while no other is under way begins at once, so a lone write waits for nothing. What came meanwhile is
done by the first of those that wait. Together it is all or nothing: where anything fails before the commit, nothing of
it was done, and each is done again alone and gets its own result.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from orchestrator import stages
from orchestrator.errors import Busy
from orchestrator.stages import StageClock
from orchestrator.store.unit import Unit

T = TypeVar("T")

MOST = 64
"""So many are carried out together: as long as they take, nobody else can write, nor report."""


@dataclass(frozen=True, slots=True)
class Written(Generic[T]):
    """A committed piece of work: its answer, and the generations of domains it moved."""

    answer: T
    generations: Mapping[str, int]


@dataclass(slots=True, eq=False)
class Job(Generic[T]):
    """A piece of work with its thread's context, and its result once known."""

    work: Callable[[Unit], T]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    clock: StageClock | None = field(default_factory=stages.current)
    turn: threading.Event | None = None
    """Set when one that had to wait may go on."""
    came_to: Written[T] | BaseException | None = None

    def do(self, unit: Unit) -> Written[T]:
        """Do it, as part of a transaction; what it comes to if that is committed."""
        self.lap("turn")
        generations = unit.note_moves()
        answer = self.context.run(self.work, unit)
        self.lap("database")
        return Written(answer, generations)

    def lap(self, stage: str) -> None:
        """End a stage for whoever measures this piece of work."""
        if self.clock is not None:
            self.clock.lap(stage)

    def result(self) -> Written[T]:
        """Return its answer.

        Raises what it failed with.
        """
        assert self.came_to is not None
        if isinstance(self.came_to, BaseException):
            raise self.came_to
        return self.came_to


Jobs = Sequence[Job[Any]]


class NotCommitted(Exception):
    """Something failed before the commit: nothing was done."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class WriteQueue:
    """Carries jobs out.

    `carry` does some in one transaction; it returns what each came to, and raises NotCommitted if nothing was done.
    """

    def __init__(self, carry: Callable[[Jobs], Sequence[Written[Any]]], patience_s: float, most: int = MOST) -> None:
        self._carry = carry
        self._patience_s = patience_s
        self._most = most
        self._lock = threading.Lock()
        self._waiting: list[Job[Any]] = []
        self._someone_is_at_it = False

    def do(self, work: Callable[[Unit], T]) -> Written[T]:
        """Carry out a piece of work.

        It may be done more than once, after it was undone. Raises what it raises, and Busy if its turn does not come.
        """
        job = Job(work)
        turn = self._enqueue(job)
        if turn is not None and not turn.wait(self._patience_s) and self._give_up(job, turn):
            raise Busy("other writers hold the store: try again")
        if job.came_to is None:
            self._lead()
        return job.result()

    def _enqueue(self, job: Job[Any]) -> threading.Event | None:
        """Add a job to the queue; return what to wait for, None for nobody."""
        with self._lock:
            if self._someone_is_at_it:
                job.turn = threading.Event()
            self._waiting.append(job)
            self._someone_is_at_it = True
        return job.turn

    def _give_up(self, job: Job[Any], turn: threading.Event) -> bool:
        """Return whether a job was still waiting, and remove it.

        One that is being carried out is waited for.
        """
        with self._lock:
            if job in self._waiting and not turn.is_set():
                self._waiting.remove(job)
                return True
        turn.wait()
        return False

    def _lead(self) -> None:
        """Carry out the first waiting jobs, with the own job, and wake the next."""
        with self._lock:
            jobs, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        try:
            self._carry_out(jobs)
        finally:
            with self._lock:
                self._someone_is_at_it = bool(self._waiting)
                heirs = self._waiting[:1]
                for turn in (job.turn for job in (*jobs, *heirs) if job.turn is not None):
                    turn.set()

    def _carry_out(self, jobs: Jobs) -> None:
        """Together, and one by one where that does not succeed."""
        try:
            done = self._carry(jobs)
        except NotCommitted as failed:
            if len(jobs) == 1:
                jobs[0].came_to = failed.cause
                return
            for job in jobs:
                self._carry_out([job])
        except BaseException as error:
            for job in jobs:
                job.came_to = copy(error)
            if not isinstance(error, Exception):
                raise
        else:
            for job, written in zip(jobs, done, strict=True):
                job.came_to = written
