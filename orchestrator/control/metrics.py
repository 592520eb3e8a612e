"""Prometheus metrics.

One registry a service, so that two services in one process do not mix.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from orchestrator.program.program import Program
from orchestrator.wire.points import PointState

_REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_COMPILE_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The counters of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Histogram(
            "aclflow_request_seconds",
            "Time from a request to its answer, waits included",
            ("method", "route", "status"),
            buckets=_REQUEST_S,
            registry=self.registry,
        )
        self._compilations = Histogram(
            "aclflow_compile_seconds",
            "Time of compiling a domain's program",
            buckets=_COMPILE_S,
            registry=self.registry,
        )
        self._stages = Histogram(
            "aclflow_stage_seconds",
            "Time of the stages of a write and of its enforcement",
            ("work", "stage"),
            buckets=_COMPILE_S,
            registry=self.registry,
        )
        self._proofs = Histogram(
            "aclflow_proof_seconds",
            "Time of proving that a program decides as its policy says",
            buckets=_COMPILE_S,
            registry=self.registry,
        )
        self._disproved = Counter(
            "aclflow_disproved",
            "Programs that were not published because they are not the policy",
            registry=self.registry,
        )
        self._refused = Counter(
            "aclflow_kept_programs_refused",
            "Kept programs that were damaged or not those of their lists, and were compiled",
            registry=self.registry,
        )
        self._impostors = Counter(
            "aclflow_impostors",
            "Connections as switches that they are not, as controllers report them, each again every minute",
            registry=self.registry,
        )
        reports = Counter("aclflow_reports", "Reports of enforcement points", ("state",), registry=self.registry)
        # from zero on, or Prometheus would not see the first of a kind as an increase
        self._reports = {state: reports.labels(state.value) for state in PointState}
        # Every request asks for some fifteen of these, and `labels` makes each of its words anew.
        self._requests_of = cache(self._requests.labels)
        self._stage_of = cache(self._stages.labels)
        self._turn = asyncio.Lock()
        self._begun, self._text = 0, (0, b"")
        """The number of the newest scrape that has begun; the last one that was made, with its number."""

    def count_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record an answered request.

        `route` is the path's pattern, never the path, which has no end of values.
        """
        self._requests_of(method, route, str(status)).observe(seconds)

    def observe_compilation(self, seconds: float) -> None:
        """Record how long compiling a program took."""
        self._compilations.observe(seconds)

    def took(self, work: str, stages: Mapping[str, float]) -> None:
        """A piece of work spent its time so: seconds by stage."""
        for stage, seconds in stages.items():
            self._stage_of(work, stage).observe(seconds)

    def proven(self, seconds: float) -> None:
        """Record how long proving a program took."""
        self._proofs.observe(seconds)

    def count_disproof(self) -> None:
        """Count a program that was not the policy, and was not published."""
        self._disproved.inc()

    def refused_kept(self) -> None:
        """A program that was kept for a start could not be used."""
        self._refused.inc()

    def count_report(self, state: PointState) -> None:
        """An enforcement point reported itself to be in a state."""
        self._reports[state].inc()

    def count_impostors(self, number: int) -> None:
        """A controller reported connections as switches that they are not."""
        self._impostors.inc(number)

    def watch(self, programs: Callable[[], Iterable[Program]], watching: Callable[[], int]) -> None:
        """Show what is published, and how many wait for something newer, whenever somebody looks."""
        self.registry.register(_Published(programs, watching))

    def watch_audit(self, unsent: Callable[[], int]) -> None:
        """Show how many anchors of the audit trail the sinks have not taken."""
        gauge = Gauge("aclflow_audit_unsent_anchors", "Anchors that a sink has not taken", registry=self.registry)
        gauge.set_function(unsent)

    def text(self) -> bytes:
        """Write all metrics in the text format."""
        return generate_latest(self.registry)

    async def shared_text(self) -> bytes:
        """Write the metrics that all services share in the text format.

        It is made once for all who ask meanwhile: anybody may ask, and it reads the store. For one event loop.
        """
        wanted = self._begun + 1
        async with self._turn:
            if self._text[0] < wanted:
                self._begun = wanted
                self._text = wanted, await asyncio.to_thread(self.text)
            return self._text[1]


class _Published(Collector):
    def __init__(self, programs: Callable[[], Iterable[Program]], watching: Callable[[], int]) -> None:
        self._programs = programs
        self._watching = watching

    def collect(self) -> Iterator[GaugeMetricFamily]:
        generation = GaugeMetricFamily("aclflow_generation", "Generation published last", labels=["domain"])
        flows = GaugeMetricFamily("aclflow_program_flows", "Flow entries of the program", labels=["domain"])
        for program in self._programs():
            generation.add_metric([program.domain], program.generation)
            flows.add_metric([program.domain], len(program.blocks))
        yield generation
        yield flows
        yield GaugeMetricFamily("aclflow_watching", "Enforcement points that wait for a program", self._watching())
