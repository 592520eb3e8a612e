"""Measurements from client to server: iperf3 over TCP and UDP, httperf, a refused port."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.bench.qualify.limits import HTTP, KNOCK, TCP, UDP, Measure
from orchestrator.bench.qualify.remote import Remote
from orchestrator.bench.traffic import httperf, iperf
from orchestrator.bench.traffic.servers import PAGE
from orchestrator.errors import AclflowError, Refused, Unreachable

OCTETS = 1200
"""Of a datagram: it fits wherever IPv6 does."""
_ANSWER_S = 3
_STARTED_A_SECOND = 10_000

Sample = Mapping[Measure, float]


@dataclass(frozen=True, slots=True)
class Load:
    """How much traffic a measurement takes: `seconds` of iperf3, `connections` of httperf, `at_once` under way."""

    seconds: int
    connections: int
    at_once: int


@dataclass(frozen=True, slots=True)
class Pair:
    """A client and a server that answers."""

    client: Remote
    server: Remote

    @property
    def name(self) -> str:
        return f"{self.client.host.name} {self.server.host.name}"

    def gauges(self, load: Load) -> Mapping[str, Callable[[], Sample]]:
        """Return the measurements by their name in progress.

        Each raises Unreachable, Refused, Missing.
        """
        found: dict[str, Callable[[], Sample]] = {
            TCP: lambda: self._measure_stream(load),
            UDP: lambda: self._measure_flood(load),
            HTTP: lambda: self._measure_requests(load),
        }
        if self.server.host.refused_port:
            found[KNOCK] = self._try_port
        return found

    def _run_iperf(self, load: Load, *more: str) -> str:
        host = self.server.host
        words = (
            "iperf3",
            "--client",
            host.traffic,
            "--port",
            str(host.iperf_port),
            "--time",
            str(load.seconds),
            "--json",
        )
        try:
            return self.client.run(
                *words,
                "--bind",
                self.client.host.traffic,
                "--connect-timeout",
                "5000",
                *more,
                seconds=load.seconds + 30,
            )
        except Refused as error:
            raise self._make_unreachable("iperf3", host.iperf_port, error) from None

    def _measure_stream(self, load: Load) -> Sample:
        text = self._run_iperf(load)
        try:
            return {Measure.TCP: float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 1e6}
        except (ValueError, KeyError, TypeError):
            raise Refused(f"iperf3 reported something else: {text.strip()[:200]!r}") from None

    def _measure_flood(self, load: Load) -> Sample:
        before = self._frames()
        sent, seconds = iperf.read(self._run_iperf(load, "--udp", "--length", str(OCTETS), "--bitrate", "0"))
        arrived = self._frames() - before
        if not sent or not arrived:
            raise Unreachable(f"none of iperf3's datagrams went from {self.name.replace(' ', ' to ')}")
        return {Measure.PACKETS: arrived / seconds, Measure.LOST: max(0.0, 100.0 * (sent - arrived) / sent)}

    def _frames(self) -> int:
        """Frames that the server's interface has received."""
        address = self.server.host.traffic
        found = json.loads(self.server.run("ip", "-j", "address", "show", "to", address))
        if not found:
            host = self.server.host
            raise Refused(f"no interface has {address} (aclflow_bench_address)", place=f"{host.name} ({host.address})")
        return iperf.received_frames(self.server.run("cat", "/proc/net/dev"), found[0]["ifname"])

    def _measure_requests(self, load: Load) -> Sample:
        host = self.server.host
        words = ("--server", host.traffic, "--port", str(host.http_port), "--uri", PAGE, "--http-version=1.0")
        sessions = f"{load.at_once},{load.connections // load.at_once},0"
        try:
            text = self.client.run(
                "httperf", *words, "--wsess", sessions, "--rate", str(_STARTED_A_SECOND), "--timeout", "10", seconds=120
            )
            found = httperf.read(text)
        except (Refused, Unreachable) as error:
            raise self._make_unreachable("httperf", host.http_port, error) from None
        return {
            Measure.REQUESTS: found.per_s,
            Measure.CONNECT: found.connect_ms,
            Measure.CONNECTION: found.connection_ms,
        }

    def _try_port(self) -> Sample:
        """Whether the port answers; that somebody listens there was seen on the server itself."""
        host = self.server.host
        knock = f"exec 3<>/dev/tcp/{host.traffic}/{host.refused_port}"
        said = self.client.run(
            "bash", "-c", f"timeout {_ANSWER_S} bash -c '{knock}' 2>/dev/null && echo came || echo silent"
        )
        return {Measure.REFUSED: float(said.strip() == "came")}

    def _make_unreachable(self, program: str, port: int, error: AclflowError) -> AclflowError:
        way = f"{self.client.host.traffic} to {self.server.host.traffic} port {port}"
        return Unreachable(f"{program} from {way}: {error.reason}; does the tenant's list permit it?", place=self.name)
