"""Take enforcement points' reports, and answer waits for enforced generations.

    report ──▶ one transaction: points, events ──▶ Standing of the domain ──▶ whoever waits looks at that

Reports of a domain that come while one is being written wait together, without a thread each, and are one transaction.
While the store is held by something else (on SQLite by a large list) they go on waiting: no report is answered Busy
before it has waited for `PATIENCE_S`. On PostgreSQL reports wait for neither other domains nor, but for the one that
completes a generation, for their own domain's lists.

A domain's standing after a report is in memory, counted in the report's own transaction: who waits is let go by it.
That a generation is not enforced yet is believed only where this process takes all reports (`recheck_s` is None); else,
and before the first report, the database is asked, which counts. Which hosts lag is asked of it in the end.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from weakref import WeakValueDictionary

from orchestrator import stages
from orchestrator.control.metrics import Metrics
from orchestrator.control.reports import Report, ReportQueue, Seconds, TakenReport
from orchestrator.control.signals import Signal
from orchestrator.control.writequeue import NotCommitted
from orchestrator.errors import Busy, NotFound
from orchestrator.store import Store
from orchestrator.store.points.pointrecords import EnforcedState, PointReport, Standing
from orchestrator.store.records import Committed
from orchestrator.store.transaction import Elsewhere
from orchestrator.store.unit import Unit

PATIENCE_S = 25.0
"""So long a report waits for the store: a little less than enforcement points wait for an answer."""
_THREADS = 4
"""So many domains' reports are written at once, besides those that are written by who brings them."""
MOST_SAID = 4096
"""So many enforcers' last reports are remembered; another one's is written although it says nothing new."""
_NOTED_EVERY = dt.timedelta(seconds=1)
"""How often it is written down which enforcers were heard that had nothing new to say."""


@dataclass(frozen=True, slots=True)
class _Reported:
    """A domain after a report.

    `order` grows with the transactions that took them, `hosts` with changes of hosts.
    """

    order: int
    standing: Standing
    took: Seconds
    hosts: int


@dataclass(slots=True)
class _Sight:
    """The latest state of a domain that a waiting caller has seen.

    That is the newest report here, in whose transaction all hosts were counted, or the database itself. Where others
    take reports too (`recheck_s`), either is old after that time; else what was counted here never is.
    """

    recheck_s: float | None
    order: int = -1
    at_s: float = 0.0

    def is_old(self, known: _Reported | None) -> bool:
        """Return whether to ask the database, and take note of it.

        `known` is the domain after the newest report.
        """
        now = time.monotonic()
        is_news = known is not None and known.order != self.order
        is_old = known is None or (self.recheck_s is not None and not is_news and now - self.at_s >= self.recheck_s)
        if known is not None:
            self.order = known.order
        if is_news or is_old:
            self.at_s = now
        return is_old


class Enforcement:
    """Takes reports and answers waits.

    `recheck_s`: how often to look for reports that another process took. `patience_s`: how long a report may wait.

    `told` is called after every report with a domain, a host of it, and the generation that this was read back at.
    `vouched`: what is known of other hosts of a domain without their saying so, to be kept with a report.
    """

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        *,
        recheck_s: float | None = None,
        patience_s: float = PATIENCE_S,
        told: Callable[[str, str, int], None] = lambda domain, host, generation: None,  # noqa: ARG005
        vouched: Callable[[str], Sequence[PointReport]] = lambda domain: (),  # noqa: ARG005
    ) -> None:
        self._told = told
        self._vouched = vouched
        self._patience_s = patience_s
        self._beside = ThreadPoolExecutor(_THREADS, thread_name_prefix="reports")
        self._queues: dict[str, ReportQueue] = {}
        self._said: dict[int, Report] = {}
        self._heard_at: dict[int, dt.datetime] = {}
        self._noted_at = dt.datetime.min.replace(tzinfo=dt.UTC)
        self._store = store
        self._metrics = metrics
        self._recheck_s = recheck_s
        self._signals: WeakValueDictionary[str, Signal] = WeakValueDictionary()
        """Of each domain that somebody waits for: a report wakes nobody who waits for another domain."""
        self._lock = threading.Lock()
        self._latest: dict[str, _Reported] = {}
        self._order = itertools.count()
        self._hosts_changed_at = -1
        self._closed = False
        self._unsubscribe = store.subscribe(self._heard)

    def report(self, domain: str, enforcer: int, report: Report) -> None:
        """Take a report and wait until it is kept; see `begin`."""
        self.begin(domain, enforcer, report).result()

    def begin(self, domain: str, enforcer: int, report: Report) -> Future[float]:
        """Store a report and wake waits; return a future that ends with that.

        It ends with the seconds of a processor that the report took. It may raise NotFound, Conflict, Forbidden.

        Late and repeated reports change nothing. Hosts that the domain does not have (any more) are passed over. Waits
        are woken as soon as the report can be read: it is true, and is said again, whatever becomes of our disk. A
        report that says the same as before writes nothing but, once a second, who was heard.
        """
        started = time.thread_time()
        if self._is_nothing_new(domain, enforcer, report):
            self._note_report(domain, report)
            done = Future[float]()
            done.set_result(time.thread_time() - started)
            return done
        together = self._store.part(domain) or ""
        with self._lock:
            if together not in self._queues:
                self._queues[together] = ReportQueue(self._carry, self._beside)
            queue = self._queues[together]
        return queue.put(TakenReport(domain, enforcer, report, time.monotonic() + self._patience_s))

    def _note_report(self, domain: str, report: Report) -> None:
        for point in report.points:
            self._told(domain, point.host, point.generation)
            self._metrics.count_report(point.state)
        for took in report.took.values():
            self._metrics.took("enforce", took)

    def _is_nothing_new(self, domain: str, enforcer: int, report: Report) -> bool:
        """Return whether an enforcer repeats its last report, still in the store.

        Then it is noted as heard.
        """
        said = self._said.get(enforcer)
        if said is None or (said.points, said.epoch) != (report.points, report.epoch):
            return False
        vouched = self._vouched(domain) if report.points else ()
        with self._store.read() as unit:
            if not unit.enforcers.is_nothing_new(enforcer, report.points, epoch=report.epoch, vouched=vouched):
                return False
            now = unit.now
        with self._lock:
            self._heard_at[enforcer] = now
            if now - self._noted_at < _NOTED_EVERY:
                return True
            heard, self._heard_at, self._noted_at = self._heard_at, {}, now
        try:
            with self._store.write(part="heard") as unit:
                unit.enforcers.heard_again(heard)
        except Busy:  # they were heard all the same, and that is noted with the next
            with self._lock:
                self._heard_at = {**heard, **self._heard_at}
        return True

    def note_heard(self, unit: Unit) -> None:
        """Note when enforcers were heard whose reports wait, or had nothing new.

        To be done before any of them is called silent.
        """
        with self._lock:
            heard, self._heard_at = self._heard_at, {}
            waiting = [each for queue in self._queues.values() for each in queue.enforcers]
        unit.enforcers.heard_again({**heard, **dict.fromkeys(waiting, unit.now)})

    def _carry(self, batch: Sequence[TakenReport]) -> Sequence[float]:
        """Keep some reports in one transaction; return the seconds that each took.

        On PostgreSQL they are of one domain. Raises NotCommitted, and what the store raises.
        """
        try:
            took = self._write_batch(batch, f"reports {batch[0].domain}")
        except NotCommitted as failed:
            if not isinstance(failed.cause, Elsewhere) or len(batch) > 1:
                raise
            took = self._write_batch(batch, None)  # it raises the domain's generation
        for taken in batch:
            self._remember_report(taken)
            self._note_report(taken.domain, taken.report)
        return took

    def _remember_report(self, taken: TakenReport) -> None:
        """Remember what an enforcer said last, and forget who has said something new least lately."""
        with self._lock:
            self._said.pop(taken.enforcer, None)
            self._said[taken.enforcer] = taken.report
            while len(self._said) > MOST_SAID:
                del self._said[next(iter(self._said))]

    def _write_batch(self, batch: Sequence[TakenReport], part: str | None) -> Sequence[float]:
        kept: dict[str, _Reported] = {}

        def publish_reports() -> None:
            for domain, reported in kept.items():
                self._keep_latest(domain, reported)
            self._wake(kept)

        with self._store.write(part=part, shown=publish_reports) as unit:
            try:
                return [self._take(unit, taken, kept) for taken in batch]
            except BaseException as error:
                raise NotCommitted(error) from error

    def _take(self, unit: Unit, taken: TakenReport, kept: dict[str, _Reported]) -> float:
        """Keep a report and its domain's new standing; return the seconds that took."""
        started = time.thread_time()
        domain, report = taken.domain, taken.report
        before, hosts = kept.get(domain), self._store.host_changes
        latest = self._latest.get(domain) if self._recheck_s is None else None
        if before is None and latest is not None and latest.hosts == hosts:
            before = latest
        standing = unit.enforcers.report(
            taken.enforcer,
            report.points,
            sequence=report.sequence,
            epoch=report.epoch,
            vouched=self._vouched(domain) if report.points else (),
            standing=None if before is None else before.standing,
        )
        if standing is not None:
            kept[domain] = _Reported(next(self._order), standing, report.slowest, hosts)
        return time.thread_time() - started

    def enforced_state(self, domain: str, generation: int) -> EnforcedState:
        """Return how far a generation has got.

        Raises NotFound, also for a generation that is still to come.
        """
        with self._store.read() as unit:
            latest = unit.domains.get(domain).generation
            if generation > latest:
                raise NotFound(f"the domain is at generation {latest}: there is no {generation} yet")
            return unit.enforcers.enforced_state(domain, generation)

    async def wait(self, domain: str, generation: int, wait_s: float, *, is_fresh: bool = False) -> EnforcedState:
        """Wait until every host enforces a generation; then return the state.

        After `wait_s` the state says which hosts lag. Raises NotFound.

        `is_fresh`: the caller has just committed it, so it is known that there is such a generation. The times of the
        last host's stages are added to the clock of the work under way (`orchestrator.stages`).
        """
        state: EnforcedState | None = None
        standing: Standing | None = None
        sight, has_looked = _Sight(self._recheck_s), is_fresh

        async def look_for_generation() -> bool | None:
            nonlocal state, standing, has_looked
            if not has_looked:  # there may be no such generation
                has_looked = True
                state = await asyncio.to_thread(self.enforced_state, domain, generation)
                return state.done or self._closed or None
            known = self._latest.get(domain)
            state, standing = None, None if known is None else known.standing
            if known is not None and known.standing.is_done(generation):
                stages.add_parts("enforce", known.took)
                return True
            if sight.is_old(known):
                standing = await asyncio.to_thread(self._read_standing, domain)
            return (standing is not None and standing.is_done(generation)) or self._closed or None

        await self._signal_of(domain).until(look_for_generation, wait_s, recheck_s=self._recheck_s)
        if state is None and standing is not None and standing.is_done(generation):
            return EnforcedState(generation, standing.hosts, ())
        if state is None:  # only the number of hosts that are behind was looked at, not which
            state = await asyncio.to_thread(self.enforced_state, domain, generation)
        return state

    def _heard(self, committed: Committed) -> None:
        """Where a host came or was taken out, who waits looks at the database again."""
        if not committed.hosts:
            return
        with self._lock:
            self._hosts_changed_at = next(self._order)
            self._latest.clear()
        self._wake(None)

    def close(self) -> None:
        """Answer all who wait with the state as it is: the service stops."""
        self._closed = True
        self._beside.shutdown(wait=False)
        self._unsubscribe()
        self._wake(None)

    def _wake(self, domains: Iterable[str] | None) -> None:
        """Wake who waits for some domains, or for any (None)."""
        with self._lock:
            known = dict(self._signals)
        for domain in known if domains is None else domains:
            if domain in known:
                known[domain].fire()

    def _signal_of(self, domain: str) -> Signal:
        with self._lock:
            return self._signals.setdefault(domain, Signal())

    def _read_standing(self, domain: str) -> Standing:
        with self._store.read() as unit:
            return unit.enforcers.standing(domain)

    def _keep_latest(self, domain: str, reported: _Reported) -> None:
        with self._lock:
            before = self._latest[domain].order if domain in self._latest else self._hosts_changed_at
            if max(before, self._hosts_changed_at) < reported.order:
                self._latest[domain] = reported
