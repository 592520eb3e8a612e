"""Carry out waiting writes together: one transaction, one compilation, one generation.

    thread 1   write ── carries out its own ───────────────────────▶ answered
    thread 2        write ── waits ── carries out 2, 3 and 4 ─────────────────────────▶ answered
    thread 3           write ── waits ─────────────────────────────────────────────────▶ answered
    thread 4              write ── waits ──────────────────────────────────────────────▶ answered

A write that comes while no other is under way begins at once, so a lone write waits for nothing. Writes that came
meanwhile are done by the first of them. Together it is all or nothing: where anything fails before the commit, nothing
of it was done, and each is done again alone and gets its own result.

Turns are fair among tenants. A write takes milliseconds, a list of some megabytes takes seconds; a tenant that sends
one after the other would be half of what all others wait for. So a write that belongs to a tenant (`payer`) and took
long leaves the tenant in debt: its next write lets `OTHERS` writes of others go first, and is then carried out alone.

    tenant a   PUT 2 s ─────────▶  PUT waits ................................... its turn ─────────▶
    others                       w  w  w  w  w  w  w  ...  256 of them, or nothing for 0.5 s, or 30 s

A turn follows from the writes of others, so of a hundred writes of others less than one meets a long one, if they come
four times a second or more; and a tenant that is alone waits for nothing.

Many tenants that send long lists together each have debts of their own, which end. So all long turns together take a
quarter of the time at the most until `OTHERS` short writes were done: of tenants whose turns took long, and of writes
that are known to be large (`is_large`), though their tenant has no debts yet.
"""

from __future__ import annotations

import contextvars
import math
import threading
import time
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

LONG_S = 0.1
"""From so long on a tenant's turn has to be made up for."""
OTHERS = 256
"""So many writes of others go first then: less than one write in a hundred meets a long one, and what follows it."""
IDLE_S = 0.5
"""Others that write seldomer are not waited for."""
SPACING, MOST_SPACED_S = 3.0, 10.0
"""After a long turn no other one begins for so many times what it took, so many seconds at the most, or `OTHERS` short
writes."""
TIMES, MOST_WAIT_S = 40.0, 30.0
"""A debt is settled after so many times what the turn took, and after so many seconds, whatever others do."""


@dataclass(frozen=True, slots=True)
class Written(Generic[T]):
    """A committed piece of work: its answer, and the generations of domains it moved."""

    answer: T
    generations: Mapping[str, int]


@dataclass(slots=True, eq=False)
class Job(Generic[T]):
    """A piece of work with its thread's context, and its result once known."""

    work: Callable[[Unit], T]
    payer: str | None = None
    """The tenant whose turn it takes."""
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    clock: StageClock | None = field(default_factory=stages.current)
    is_large: bool = False
    """Whether it is known to take long before it was ever done."""
    is_long: bool = False
    """Whether its turn is expected to take long, so that doing it twice is worth avoiding."""
    is_rehearsal: bool = False
    """Whether it is undone when it was made and proven."""
    wake: threading.Event = field(default_factory=threading.Event)
    """Set when one that waits is to look again: it was carried out, or it is its turn."""
    came_to: Written[T] | BaseException | None = None

    def do(self, unit: Unit) -> Written[T]:
        """Do the job in a transaction; return what it comes to once committed."""
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


@dataclass(slots=True)
class _Debt:
    """The debt of a tenant after a long turn.

    It is paid after `left` writes of others, or at `until_s`.
    """

    left: int
    until_s: float


class Debts:
    """The payers whose turns took long. Not to be shared between threads without a lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.now = clock
        self._debts: dict[str, _Debt] = {}
        self._latest: dict[str | None, float] = {}
        """The last two that wrote, and when; the turns of others since then do not count."""
        self._latest_short: dict[str | None, float] = {}
        """The same of those whose turns were short."""
        self._spacing = _Debt(0, -math.inf)
        """The time that is to be made up for before anybody's long turn."""

    def wait_s(self, payer: str | None, *, is_large: bool = False) -> float:
        """Return how many seconds a tenant has to wait now; 0 when it may go."""
        debt = self._debts.get(payer) if payer is not None else None
        waits = [0.0]
        if debt is not None and debt.left > 0:
            waits.append(min(debt.until_s, _last_of_others(self._latest, payer) + IDLE_S))
        if (debt is not None or is_large) and self._spacing.left > 0:
            waits.append(min(self._spacing.until_s, _last_of_others(self._latest_short, payer) + IDLE_S))
        return max(0.0, max(waits) - self.now())

    def is_alone(self, payer: str | None) -> bool:
        """Return whether a tenant's write is carried out without others."""
        return payer in self._debts

    def charge(self, payers: Sequence[str | None], seconds: float) -> None:
        """Take note of a turn that was over just now.

        Of several tenants nobody knows whose work was long: their next writes tell, each by itself.
        """
        now = self.now()
        for tenant, debt in self._debts.items():
            debt.left -= sum(payer != tenant for payer in payers)
        self._latest = _note_latest(self._latest, payers, now, seconds)
        self._latest_short = _note_latest(self._latest_short, payers if seconds < LONG_S else (), now, seconds)
        alone = len(payers) == 1
        if seconds < LONG_S:
            self._spacing.left -= len(payers)
        elif alone:
            self._spacing = _Debt(OTHERS, now + min(SPACING * seconds, MOST_SPACED_S))
        for tenant in {payer for payer in payers if payer is not None}:
            if seconds < LONG_S:
                self._debts.pop(tenant, None)
            else:
                wait_s = min(TIMES * seconds, MOST_WAIT_S)
                self._debts[tenant] = _Debt(OTHERS, now + wait_s) if alone else _Debt(0, now)


def _last_of_others(latest: Mapping[str | None, float], payer: str | None) -> float:
    """Return when another tenant than `payer` wrote last."""
    return max((at for other, at in latest.items() if other != payer), default=-math.inf)


def _note_latest(
    latest: Mapping[str | None, float], payers: Sequence[str | None], now: float, seconds: float
) -> dict[str | None, float]:
    """Return the last two tenants that wrote, after a turn of `payers`.

    The times of the others move on by the turn's `seconds`, because they had to wait for it.
    """
    others = {payer: at + seconds for payer, at in latest.items() if payer not in payers}
    return dict([*others.items(), *dict.fromkeys(payers, now).items()][-2:])


class WriteQueue:
    """Carries jobs out.

    `carry` does some in one transaction; it returns what each came to, and raises NotCommitted if nothing was done.
    """

    def __init__(
        self,
        carry: Callable[[Jobs], Sequence[Written[Any]]],
        patience_s: float,
        most: int = MOST,
        debts: Debts | None = None,
    ) -> None:
        self._carry = carry
        self._patience_s = patience_s
        self._most = most
        self._debts = debts or Debts()
        self._lock = threading.Lock()
        self._waiting: list[Job[Any]] = []
        self._leader: Job[Any] | None = None
        """The job whose thread carries out the next ones, or does so now."""

    @property
    def waiting(self) -> int:
        """How many writes wait for a turn."""
        return len(self._waiting)

    def do(
        self,
        work: Callable[[Unit], T],
        payer: str | None = None,
        *,
        is_large: bool = False,
        is_rehearsal: bool = False,
    ) -> Written[T]:
        """Carry out a piece of work in its tenant's turn, if it has one.

        A rehearsal is carried out alone. Work may be done more than once, after it was undone. Raises what it raises,
        and Busy if its turn does not come.
        """
        job = Job(work, payer, is_large=is_large, is_rehearsal=is_rehearsal)
        with self._lock:
            self._waiting.append(job)
        self._wait(job)
        if job.came_to is None:
            self._lead(job)
        return job.result()

    def _wait(self, job: Job[Any]) -> None:
        """Return when a job is done, or its own thread is to do it.

        Raises Busy if that takes too long, besides the time that its tenant owes to others.
        """
        patience_s = self._patience_s
        while True:
            with self._lock:
                owed_s = self._owes(job)
                if self._leader is None and job in self._waiting and not owed_s:
                    self._leader = job
                if self._leader is job or job.came_to is not None:
                    return
                if patience_s <= 0 and job in self._waiting:
                    self._waiting.remove(job)
                    raise Busy("other writers hold the store: try again")
            started = time.monotonic()
            job.wake.wait(owed_s or (patience_s if patience_s > 0 else None))
            job.wake.clear()
            if not owed_s:
                patience_s -= time.monotonic() - started

    def _lead(self, job: Job[Any]) -> None:
        """Carry out a job, with others that wait, and wake the next."""
        with self._lock:
            job.is_long = self._is_alone(job)
            jobs = [job] if job.is_long or job.is_rehearsal else self._together(job)
            self._waiting = [each for each in self._waiting if each not in jobs]
        started = self._debts.now()
        try:
            self._carry_out(jobs)
        finally:
            with self._lock:
                self._debts.charge([each.payer for each in jobs], self._debts.now() - started)
                self._leader = next((each for each in self._waiting if not self._owes(each)), None)
                for each in (*jobs, *((self._leader,) if self._leader else ())):
                    each.wake.set()

    def _owes(self, job: Job[Any]) -> float:
        """Return for how many seconds a job lets others go first."""
        return self._debts.wait_s(job.payer, is_large=job.is_large)

    def _is_alone(self, job: Job[Any]) -> bool:
        """Whether a job has its turn alone: it is large, or its payer's last was."""
        return job.is_large or self._debts.is_alone(job.payer)

    def _together(self, job: Job[Any]) -> Jobs:
        """Return a job and waiting jobs to do with it, in their order.

        Those whose turns take long, and rehearsals, are left out.
        """
        others = [
            each for each in self._waiting if each is not job and not each.is_rehearsal and not self._is_alone(each)
        ]
        chosen = {id(each) for each in others[: self._most - 1]}
        return [each for each in self._waiting if each is job or id(each) in chosen]

    def _carry_out(self, jobs: Jobs) -> None:
        """Carry jobs out together, and one by one where that fails."""
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
