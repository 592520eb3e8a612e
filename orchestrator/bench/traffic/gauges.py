"""Measurements on a line under traffic: each tool's number, and the switch's own counters."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.bench.traffic import httperf, iperf, netcat
from orchestrator.bench.traffic.addresses import Clients
from orchestrator.bench.traffic.planes import Plane, SwitchPlane


class Metric(enum.Enum):
    """A measured quantity; the value names it on a plot's axis, with its unit."""

    REQUESTS = "HTTP requests a second (1/s)"
    CONNECTION = "time of a connection under load (ms)"
    PACKETS = "UDP packets a second (1/s)"
    PACKET_CPU = "switch CPU a packet (us)"
    RTT = "round trip in a known flow (ms)"
    FIRST_RTT = "round trip of a new flow (ms)"
    UPCALLS = "upcalls a connection (1)"
    LATER_UPCALLS = "upcalls a connection of the clients that come next (1)"
    MEGAFLOWS = "megaflows afterwards (1)"
    CPU = "switch CPU a connection (us)"

    @property
    def unit(self) -> str:
        return self.value.rpartition("(")[2].rstrip(")")


Sample = Mapping[Metric, float]

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
    """Measures planes with one load. `preload` is what `httperf.compiled` made."""

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
