"""Reports of enforcement points, and the queue of those that are not stored yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field

from orchestrator.control.writequeue import NotCommitted
from orchestrator.errors import Busy
from orchestrator.store.points.pointrecords import PointReport

_MOST_TOGETHER = 256
"""So many reports are one transaction: a rule that is to be written waits for it."""
_PAUSE_S = 0.05
"""The pause after the store was busy: it may say so at once."""

Seconds = Mapping[str, float]
"""How long each stage of something took."""


@dataclass(frozen=True, slots=True)
class Report:
    """An enforcer's report: what it read back, and its devices' counts.

    `sequence` grows from report to report of one enforcer, None when it does not number them; `epoch` is the enforcer's
    own, None when it does not say. `took` is how long the stages of enforcing took, by host, where it says so.
    """

    points: tuple[PointReport, ...]
    sequence: int | None = None
    epoch: int | None = None
    took: Mapping[str, Seconds] = field(default_factory=dict)

    @property
    def slowest(self) -> Seconds:
        """The stages of the host that took longest; nothing where none says."""
        return max(self.took.values(), key=lambda took: sum(took.values()), default={})


@dataclass(frozen=True, slots=True, eq=False)
class TakenReport:
    """A report to be stored, with its deadline and the future of its sender."""

    domain: str
    enforcer: int
    report: Report
    until_s: float
    done: Future[float] = field(default_factory=Future)
    """Ends with the seconds of a processor that it took to keep it."""


class ReportQueue:
    """The reports of a domain that wait for their transaction.

    `carry` keeps some of them in one, and returns what each took; it raises NotCommitted if nothing was kept. The first
    to come is carried out by the thread that brought it, and what came meanwhile by a thread of `beside`: nobody waits
    for others' reports.
    """

    def __init__(self, carry: Callable[[Sequence[TakenReport]], Sequence[float]], beside: ThreadPoolExecutor) -> None:
        self._carry = carry
        self._beside = beside
        self._lock = threading.Lock()
        self._waiting: list[TakenReport] = []
        self._under_way: list[TakenReport] = []
        self._is_busy = False

    def put(self, taken: TakenReport) -> Future[float]:
        """Store a report, at once if no other is being stored; return its future."""
        taken.done.set_running_or_notify_cancel()  # it is kept even if nobody waits for it any more
        with self._lock:
            self._waiting.append(taken)
            if self._is_busy:
                return taken.done
            self._is_busy = True
        self._take_batch()
        return taken.done

    def _take_batch(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting[:_MOST_TOGETHER], self._waiting[_MOST_TOGETHER:]
            self._under_way = batch
        left = self._keep_reports(batch)
        with self._lock:
            self._waiting, self._under_way = [*left, *self._waiting], []
            self._is_busy = bool(self._waiting)
            if not self._is_busy:
                return
            try:
                self._beside.submit(self._take_batch)
            except RuntimeError:  # it was shut down
                for taken in self._waiting:
                    taken.done.set_exception(Busy("the service is stopping: report again"))
                self._waiting, self._is_busy = [], False

    @property
    def enforcers(self) -> frozenset[int]:
        """Those whose reports are not kept yet."""
        with self._lock:
            return frozenset(taken.enforcer for taken in (*self._under_way, *self._waiting))

    def _keep_reports(self, batch: Sequence[TakenReport]) -> Sequence[TakenReport]:
        """Store reports together, or one by one after a failure; return those that wait on."""
        try:
            took = self._carry(batch)
        except Busy as error:
            return _waiting_on(batch, error)
        except NotCommitted as failed:
            if len(batch) > 1:
                return [each for taken in batch for each in self._keep_reports([taken])]
            if isinstance(failed.cause, Busy):
                return _waiting_on(batch, failed.cause)
            batch[0].done.set_exception(failed.cause)
        except BaseException as error:  # noqa: BLE001 - whoever waits would wait for ever
            for taken in batch:
                taken.done.set_exception(copy(error))
        else:
            for taken, seconds in zip(batch, took, strict=True):
                taken.done.set_result(seconds)
        return ()


def _waiting_on(batch: Sequence[TakenReport], error: Busy) -> Sequence[TakenReport]:
    """Pause, and return the reports that may wait on for the store; fail the others."""
    now = time.monotonic()
    for taken in batch:
        if taken.until_s <= now:
            taken.done.set_exception(copy(error))
    time.sleep(_PAUSE_S)
    return [taken for taken in batch if taken.until_s > now]
