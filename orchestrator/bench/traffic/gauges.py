"""Measurements on a line under traffic: each tool's number, and the switch's own counters.

`Plane` has both kinds of firewall of a line behind one interface. A list's compiled form is kept, so that loading it
again costs only the loading.
"""

from __future__ import annotations

import abc
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.bench.traffic import filters, httperf, iperf, netcat
from orchestrator.bench.traffic.addresses import ECHO, EXCLUDED_ADDRESS, UNSERVED, Clients, alone, policy
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.line import RIGHT, Line
from orchestrator.bench.traffic.measured import Metric, Sample
from orchestrator.bench.traffic.rules import Listed
from orchestrator.bench.traffic.vnf import VnfAcl
from orchestrator.compile.hostprogram import compile_host
from orchestrator.errors import Drifted
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import ReturnTraffic
from orchestrator.program.program import Program


class Plane(abc.ABC):
    """A firewall on a line."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def load(self, listed: Listed) -> None:
        """Hold this list and nothing else, installed afresh.

        Raises Drifted where something passes that no rule permits, Unreachable where what is permitted does not.
        """
        self.put(listed)
        unserved, excluded = (Clients.ONE.address, UNSERVED), (EXCLUDED_ADDRESS, ECHO)
        passes = netcat.reached_sources(self.line, [unserved, excluded])
        if passes != [not listed.rules] * 2:
            wrong = f"a port that no rule permits: {passes[0]}, a client that is shut out: {passes[1]}"
            raise Drifted(
                f"{self.line.name}, {listed.rules} rules: what gets through is not what the list says: {wrong}"
            )

    @abc.abstractmethod
    def put(self, listed: Listed) -> None:
        """Compile a list and load it into the plane."""


class KernelPlane(Plane):
    """A kernel that routes, with a packet filter for one tenant.

    Other tenants' lists would only be more lines to pass.
    """

    def __init__(self, line: Line, kind: Filter) -> None:
        super().__init__(line)
        self._kind = kind
        self._texts: dict[Listed, str] = {}

    def put(self, listed: Listed) -> None:
        """Load a list as a packet filter; one without rules is no filter."""
        if not listed.rules:
            filters.clear(self.line, self._kind)
            return
        if listed not in self._texts:
            self._texts[listed] = filters.text_of(self._kind, alone(listed.acl()))
        filters.load(self.line, self._kind, self._texts[listed])


class SwitchPlane(Plane):
    """A VNF-ACL; `lifted` is what stands above the list when it is loaded."""

    def __init__(
        self,
        line: Line,
        vnf: VnfAcl,
        lifted: tuple[LiftedRule, ...] = (),
        returns: ReturnTraffic = ReturnTraffic.ESTABLISHED,
    ) -> None:
        super().__init__(line)
        self.vnf = vnf
        self._lifted = lifted
        self._returns = returns
        self._programs: dict[Listed, Program] = {}

    def put(self, listed: Listed) -> None:
        if listed not in self._programs:
            wanted = replace(policy(listed.acl(), server_port=RIGHT), return_traffic=self._returns)
            generation = len(self._programs) + 1
            self._programs[listed] = compile_host(wanted, domain="bench", generation=generation, lifted=self._lifted)
        self.vnf.load(self._programs[listed])
        if self._returns is ReturnTraffic.TRACKED:
            self.vnf.forget_connections()


_AT_BEST_OF = 3


@dataclass(frozen=True, slots=True)
class Load:
    """How much traffic each measurement takes.

    `connections` of httperf, `at_once` under way; `seconds` of iperf3; `trips` of netcat in a known flow, and from so
    many new sources.
    """

    connections: int
    at_once: int
    seconds: int
    trips: int
    sources: int


@dataclass(frozen=True, slots=True)
class Gauges:
    """Measures planes with one load. `preload` is what `httperf.compile_library` made."""

    load: Load
    preload: Path

    def requests(self, plane: Plane, clients: Clients) -> Sample:
        """Measure httperf's rate and times.

        For a switch, which starts with an empty cache, also their cost.
        """
        if not isinstance(plane, SwitchPlane):
            return self._measure_requests(plane, clients)
        plane.vnf.forget()
        before = plane.vnf.work()
        found = self._measure_requests(plane, clients)
        after = plane.vnf.work()
        each = self._connections
        cost = {
            Metric.UPCALLS: (after.upcalls - before.upcalls) / each,
            Metric.MEGAFLOWS: float(plane.vnf.count_cached()),
        }
        if not plane.vnf.polls:  # a thread that polls is always busy
            cost[Metric.CPU] = (after.cpu_ns - before.cpu_ns) / 1000 / each
        return {**found, **cost}

    def later_upcalls(self, plane: SwitchPlane, clients: Clients) -> Sample:
        """Count upcalls of as many further clients, with the cache as `requests` left it."""
        before = plane.vnf.work().upcalls
        self._measure_requests(plane, clients, passed=self._connections)
        return {Metric.LATER_UPCALLS: (plane.vnf.work().upcalls - before) / self._connections}

    def packets(self, plane: Plane) -> Sample:
        """iperf3's datagrams that got through; of a switch, also what each cost it."""
        if not isinstance(plane, SwitchPlane) or plane.vnf.polls:
            return {Metric.PACKETS: iperf.flood(plane.line, seconds=self.load.seconds).per_s}
        before = plane.vnf.work().cpu_ns
        found = iperf.flood(plane.line, seconds=self.load.seconds)
        cost = (plane.vnf.work().cpu_ns - before) / 1000 / found.arrived
        return {Metric.PACKETS: found.per_s, Metric.PACKET_CPU: cost}

    def steady_packets(self, plane: Plane) -> Sample:
        """Measure packets at their best, some time after the list.

        Other load on the machine only lowers them.
        """
        self.packets(plane)
        return max((self.packets(plane) for _ in range(_AT_BEST_OF)), key=lambda sample: sample[Metric.PACKETS])

    def round_trips(self, plane: Plane, clients: Clients) -> Sample:
        """Measure netcat's median round trips: in a known flow, and in new clients' flows."""
        known = netcat.round_trips(plane.line, Clients.ONE.address, self.load.trips)
        if isinstance(plane, SwitchPlane):
            plane.vnf.forget()
        first = netcat.first_round_trips(plane.line, clients.addresses(self.load.sources))
        return {Metric.RTT: statistics.median(known), Metric.FIRST_RTT: statistics.median(first)}

    @property
    def _connections(self) -> int:
        """How many there are: every session has the same number."""
        return self.load.connections // self.load.at_once * self.load.at_once

    def _measure_requests(self, plane: Plane, clients: Clients, *, passed: int = 0) -> Sample:
        load = self.load
        found = httperf.requests(
            plane.line,
            clients,
            connections=load.connections,
            at_once=load.at_once,
            preload=self.preload,
            passed=passed,
        )
        return {Metric.REQUESTS: found.per_s, Metric.CONNECTION: found.connection_ms}
