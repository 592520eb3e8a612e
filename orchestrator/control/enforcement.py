"""What enforcement points read back, and who waits until a generation is enforced everywhere."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from orchestrator.control.metrics import Metrics
from orchestrator.control.signals import Signal
from orchestrator.errors import NotFound
from orchestrator.store import Store
from orchestrator.store.records import EnforcedState, HostCounters, PointReport


@dataclass(frozen=True, slots=True)
class HostHits:
    """The counters of one host's switch."""

    host: str
    counters: HostCounters


@dataclass(frozen=True, slots=True)
class Report:
    """What an enforcer says: what it read back, and what its devices counted.

    `sequence` grows from report to report of one enforcer, None when it does not number them.
    """

    points: tuple[PointReport, ...]
    hits: tuple[HostHits, ...]
    sequence: int | None = None


class Enforcement:
    """Takes reports and answers waits. `recheck_s`: how often to look for reports that another process took."""

    def __init__(self, store: Store, metrics: Metrics, *, recheck_s: float | None = None) -> None:
        self._store = store
        self._metrics = metrics
        self._recheck_s = recheck_s
        self._reported = Signal()
        self._closed = False

    def report(self, domain: str, enforcer: int, report: Report) -> None:
        """Keep a report and wake who waits. One that comes late or twice changes nothing. Raises NotFound.

        Hosts that the domain does not have (any more) are passed over.
        """
        with self._store.write() as unit:
            fresh = unit.enforcers.report(enforcer, report.points, sequence=report.sequence)
            hosts = {host.name for host in unit.domains.hosts(domain)} if report.hits else frozenset()
            for each in report.hits:
                if fresh and each.host in hosts:
                    unit.hits.record(domain, each.host, each.counters)
        self._reported.fire()
        for point in report.points:
            self._metrics.reported(point.state.value)

    def enforced(self, domain: str, generation: int) -> EnforcedState:
        """How far a generation has got. Raises NotFound, also for a generation that is still to come."""
        with self._store.read() as unit:
            latest = unit.domains.get(domain).generation
            if generation > latest:
                raise NotFound(f"the domain is at generation {latest}: there is no {generation} yet")
            return unit.enforcers.enforced(domain, generation)

    async def wait(self, domain: str, generation: int, wait_s: float) -> EnforcedState:
        """Wait until every host enforces a generation; after `wait_s` the state says who lags. Raises NotFound."""
        state = await asyncio.to_thread(self.enforced, domain, generation)

        async def done() -> bool | None:
            nonlocal state
            state = await asyncio.to_thread(self.enforced, domain, generation)
            return state.done or self._closed or None

        if not state.done and wait_s > 0:
            await self._reported.until(done, wait_s, recheck_s=self._recheck_s)
        return state

    def hosts_changed(self) -> None:
        """A host was taken out: who waited for it waits no more."""
        self._reported.fire()

    def close(self) -> None:
        """Answer all who wait with the state as it is: the service stops."""
        self._closed = True
        self._reported.fire()
