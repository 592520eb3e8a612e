"""What enforcement points read back, and who waits until a generation is enforced everywhere.

    report ──▶ one transaction: points, events ──▶ Standing of the domain ──▶ whoever waits looks at that

A domain's standing after a report is in memory, read in the report's own transaction: who waits is let go by it. That
a generation is not enforced yet is believed only where this process takes all reports (`recheck_s` is None); else, and
before the first report, the database is asked.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator import stages
from orchestrator.control.metrics import Metrics
from orchestrator.control.signals import Signal
from orchestrator.errors import NotFound
from orchestrator.store import Store
from orchestrator.store.points.records import EnforcedState, PointReport, Standing
from orchestrator.store.records import Committed

Seconds = Mapping[str, float]
"""How long each stage of something took."""


@dataclass(frozen=True, slots=True)
class Report:
    """What an enforcer says: what it read back, and what its devices counted.

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


@dataclass(frozen=True, slots=True)
class _Reported:
    """A domain after a report: `order` grows with the transactions that took them."""

    order: int
    standing: Standing
    took: Seconds


class Enforcement:
    """Takes reports and answers waits. `recheck_s`: how often to look for reports that another process took.

    `told` is called after every report with a domain, a host of it, and the generation that this was read back at.
    `vouched`: what is known of other hosts of a domain without their saying so, to be kept with a report.
    """

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        *,
        recheck_s: float | None = None,
        told: Callable[[str, str, int], None] = lambda domain, host, generation: None,  # noqa: ARG005
        vouched: Callable[[str], Sequence[PointReport]] = lambda domain: (),  # noqa: ARG005
    ) -> None:
        self._told = told
        self._vouched = vouched
        self._store = store
        self._metrics = metrics
        self._recheck_s = recheck_s
        self._reported = Signal()
        self._lock = threading.Lock()
        self._latest: dict[str, _Reported] = {}
        self._order = itertools.count()
        self._hosts_changed_at = -1
        self._closed = False
        self._unsubscribe = store.subscribe(self._heard)

    def report(self, domain: str, enforcer: int, report: Report) -> None:
        """Keep a report and wake who waits. One that comes late or twice changes nothing. Raises NotFound, Conflict.

        Hosts that the domain does not have (any more) are passed over. Who waits is woken as soon as the report can be
        read: what it says is so, and is said again, whatever becomes of our disk.
        """
        reported: _Reported | None = None

        def wake() -> None:
            if reported is not None:
                self._keep(domain, reported)
            self._reported.fire()

        with self._store.write(shown=wake) as unit:
            vouched = self._vouched(domain) if report.points else ()
            unit.enforcers.report(
                enforcer, report.points, sequence=report.sequence, epoch=report.epoch, vouched=vouched
            )
            if report.points:
                reported = _Reported(next(self._order), unit.enforcers.standing(domain), report.slowest)
        for point in report.points:
            self._told(domain, point.host, point.generation)
            self._metrics.reported(point.state)
        for took in report.took.values():
            self._metrics.took("enforce", took)

    def enforced(self, domain: str, generation: int) -> EnforcedState:
        """How far a generation has got. Raises NotFound, also for a generation that is still to come."""
        with self._store.read() as unit:
            latest = unit.domains.get(domain).generation
            if generation > latest:
                raise NotFound(f"the domain is at generation {latest}: there is no {generation} yet")
            return unit.enforcers.enforced(domain, generation)

    async def wait(self, domain: str, generation: int, wait_s: float, *, is_fresh: bool = False) -> EnforcedState:
        """Wait until every host enforces a generation; after `wait_s` the state says who lags. Raises NotFound.

        `is_fresh`: the caller has just committed it, so it is known that there is such a generation.
        What the last host's stages took is told to the clock of the work under way (`orchestrator.stages`).
        """
        state: EnforcedState | None = None

        async def look() -> bool | None:
            nonlocal state
            known = self._latest.get(domain) if is_fresh or state is not None else None
            state = known.standing.at(generation) if known is not None else None
            if known is not None and state is not None and state.done:
                stages.add_parts("enforce", known.took)
            elif state is None or self._recheck_s is not None:
                state = await asyncio.to_thread(self.enforced, domain, generation)
            return state.done or self._closed or None

        await self._reported.until(look, wait_s, recheck_s=self._recheck_s)
        assert state is not None
        return state

    def _heard(self, committed: Committed) -> None:
        """Where a host came or was taken out, who waits looks at the database again."""
        if not committed.hosts:
            return
        with self._lock:
            self._hosts_changed_at = next(self._order)
            self._latest.clear()
        self._reported.fire()

    def close(self) -> None:
        """Answer all who wait with the state as it is: the service stops."""
        self._closed = True
        self._unsubscribe()
        self._reported.fire()

    def _keep(self, domain: str, reported: _Reported) -> None:
        with self._lock:
            before = self._latest[domain].order if domain in self._latest else self._hosts_changed_at
            if max(before, self._hosts_changed_at) < reported.order:
                self._latest[domain] = reported
