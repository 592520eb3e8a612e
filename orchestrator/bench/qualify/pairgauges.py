"""Measurements from client to server, and limits of what they find.

Measured are iperf3 over TCP and UDP, httperf, and a refused port.

Programs run on the machines over SSH, with the caller's keys and settings. Limits are read from a file:

    tcp_mbit_s:       {at_least: 900}
    requests_per_s:   {at_least: 5000}
    connect_ms:       {at_most: 2}
    refused_answered: {at_most: 0}

A limit holds for each pair of machines by itself.
"""

from __future__ import annotations

import enum
import json
import math
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.bench.qualify.inventory import Host
from orchestrator.bench.results import Target
from orchestrator.bench.traffic import httperf, iperf
from orchestrator.bench.traffic.line import PAGE
from orchestrator.bench.yamlfiles import read_yaml
from orchestrator.errors import AclflowError, BadInput, Missing, Refused, Unreachable
from orchestrator.hosts.installer import advice

OCTETS = 1200
"""Of a datagram: it fits wherever IPv6 does."""
_ANSWER_S = 3
_STARTED_A_SECOND = 10_000

_OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
_SSH_FAILED, _NOT_FOUND = 255, 127
_LOGIN_S = 30.0
_PATH = "PATH=$PATH:/usr/sbin:/sbin; export PATH;"
_WHILE_HEARD = '"$@" & program=$!; trap "kill $program 2>/dev/null" EXIT; cat >/dev/null'
"""Runs a program until whoever asked for it hangs up, however that comes about."""


class Measure(enum.Enum):
    """A measured quantity from a client to a server, with its unit."""

    TCP = "tcp_mbit_s"
    PACKETS = "packets_per_s"
    LOST = "packets_lost_percent"
    REQUESTS = "requests_per_s"
    CONNECT = "connect_ms"
    CONNECTION = "connection_ms"
    REFUSED = "refused_answered"

    @property
    def unit(self) -> str:
        """Behind the number in a report."""
        return _ABOUT[self][0]

    @property
    def tool(self) -> str:
        """The measuring tool."""
        return _ABOUT[self][1]

    @property
    def what(self) -> str:
        """The measure, in words."""
        return _ABOUT[self][2]


TCP, UDP, HTTP, KNOCK = "iperf3 over TCP", "iperf3 over UDP", "httperf", "a refused port"
_ABOUT: Mapping[Measure, tuple[str, str, str]] = {
    Measure.TCP: ("Mbit/s", TCP, "one TCP stream by iperf3, what the server received"),
    Measure.PACKETS: ("1/s", UDP, "datagrams by iperf3 as fast as the client sends, counted at the server's interface"),
    Measure.LOST: ("%", UDP, "of these datagrams, how many did not reach the server's interface"),
    Measure.REQUESTS: ("1/s", HTTP, "HTTP requests by httperf, one a connection, in a closed loop"),
    Measure.CONNECT: ("ms", HTTP, "from a SYN to its answer, under that load"),
    Measure.CONNECTION: ("ms", HTTP, "from a SYN to the end of the connection, under that load"),
    Measure.REFUSED: ("1", KNOCK, "whether a port answers that the server listens on and the policy refuses"),
}
Limits = Mapping[Measure, Target]
Sample = Mapping[Measure, float]


@dataclass(frozen=True, slots=True)
class Remote:
    """One machine."""

    host: Host

    def run(self, *words: str, text: str = "", seconds: float = 0.0) -> str:
        """Run a program there; return its output.

        `seconds` is how long it may take beside logging in.

        Raises Unreachable for a machine that is not reached or does not answer in time, Missing for a program that is
        not there, Refused for one that fails.
        """
        command = self._make_ssh_command(words)
        try:
            done = subprocess.run(
                command, input=text, capture_output=True, text=True, timeout=_LOGIN_S + seconds, check=False
            )
        except FileNotFoundError:
            raise _make_missing_ssh() from None
        except subprocess.TimeoutExpired:
            raise self._make_error(
                Unreachable, f"'{words[0]}' has not ended after {_LOGIN_S + seconds:.0f} s"
            ) from None
        if done.returncode == 0:
            return done.stdout
        said = " ".join((done.stderr.strip() or done.stdout.strip()).split())[-500:]
        if done.returncode == _SSH_FAILED:
            raise self._make_unreachable(said)
        if done.returncode == _NOT_FOUND:
            raise self._make_error(Missing, f"the program '{words[0]}' is not installed there")
        raise self._make_error(Refused, f"'{words[0]}' ended with {done.returncode}: {said}")

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program there during the block: it ends with the connection.

        Raises Missing.
        """
        command = self._make_ssh_command(("sh", "-c", _WHILE_HEARD, "sh", *words))
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe)
        except FileNotFoundError:
            raise _make_missing_ssh() from None
        with process:
            try:
                yield process
            finally:
                process.terminate()

    def _make_ssh_command(self, words: Sequence[str]) -> list[str]:
        host = self.host
        key = ["-i", host.key, "-o", "IdentitiesOnly=yes"] if host.key else []
        options = [word for option in _OPTIONS for word in ("-o", option)]
        where = ("-p", str(host.port), "-l", host.user, "--", host.address)
        return ["ssh", *options, *key, *host.options, *where, f"{_PATH} exec {shlex.join(words)}"]

    def _make_unreachable(self, said: str) -> AclflowError:
        todo = advice(said, user=self.host.user, key="ansible_ssh_private_key_file")
        return self._make_error(Unreachable, f"cannot be reached over SSH: {'; '.join(filter(None, (todo, said)))}")

    def _make_error(self, kind: type[AclflowError], text: str) -> AclflowError:
        return kind(text, place=f"{self.host.name} ({self.host.address})")


def _make_missing_ssh() -> Missing:
    return Missing("the program 'ssh' is not installed here: apt-get install openssh-client")


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


def read_limits(path: Path) -> Limits:
    """The limits of a file. Raises BadInput with file and place, and Missing."""
    return read_yaml(path, "limits", parse_limits)


def parse_limits(document: object) -> Limits:
    """The limits of a document. Raises BadInput with the place."""
    if not isinstance(document, dict):
        raise BadInput("holds `figure: {at_least: number}` or `figure: {at_most: number}` lines")
    return dict(_read_limit(str(name), said) for name, said in document.items())


def _read_limit(name: str, said: object) -> tuple[Measure, Target]:
    try:
        measure = Measure(name)
    except ValueError:
        known = ", ".join(each.value for each in Measure)
        raise BadInput(f"is no figure; they are {known}", place=name) from None
    if not isinstance(said, dict) or len(said) != 1 or not {*said} < {"at_least", "at_most"}:
        raise BadInput("say either {at_least: number} or {at_most: number}", place=name)
    [(kind, bound)] = said.items()
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
        raise BadInput(f"{bound!r} is no number", place=f"{name}.{kind}")
    return measure, Target(float(bound), at_most=kind == "at_most")
