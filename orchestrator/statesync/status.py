"""A member's state for people and Prometheus: its HTTP server, and readers of it.

    GET /status     one JSON document
    GET /metrics    the same for Prometheus

There is nothing secret in it but who talks to whom in numbers, and nothing can be changed; bind it to an address that
only operators reach.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestrator.errors import BadInput, Unreachable
from orchestrator.statesync.kernel import Replicator
from orchestrator.statesync.member import Member
from orchestrator.statesync.states import OPEN
from orchestrator.wire import codec

MOST_OPEN, SILENT_S = 64, 10.0
"""So many connections a member holds, and one that says nothing so long."""
PROTOCOLS: Mapping[int, str] = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6"}
_PATIENCE_S = 3.0
_MOST_BYTES = 1 << 20
"""No member says more of itself; who reads it may not be filled."""
_OPEN = frozenset(state.name for state in OPEN)


@dataclass(frozen=True, slots=True)
class StateCount:
    """How many connections of a protocol are in a state."""

    protocol: str
    state: str
    count: int


@dataclass(frozen=True, slots=True)
class Followed:
    """A member that this one follows; `lag` counts its messages that have not come."""

    member: int
    is_whole: bool
    lag: int


@dataclass(frozen=True, slots=True)
class Status:
    """A member as it is now."""

    member: int
    level: str
    context: str
    confirmation: str
    serves: bool
    is_whole: bool
    followers: tuple[int, ...]
    followed: tuple[Followed, ...]
    held: int
    states: tuple[StateCount, ...]
    counters: Mapping[str, int]
    lists: int = -1
    """The generation of the lists that its connections were held to last; -1: it has none."""
    forbidden: int = 0
    """So many connections were closed because lists forbid them."""
    peers: int = 0
    """So many other members may take part; a whole cluster has as many followers of each."""

    @property
    def is_well(self) -> bool:
        """Whether it serves, is whole, and has every message of those that it follows."""
        return self.serves and self.is_whole and not any(each.lag for each in self.followed)

    def connections(self, *, opened: bool) -> int:
        """Return how many connections are open, or opening and closing."""
        return sum(each.count for each in self.states if (each.state in _OPEN) is opened)

    @classmethod
    def of(cls, kernel: Replicator, member: Member) -> Status:
        """Look at a member of this process."""
        settings, following = kernel.settings(), member.following
        counts = sorted(kernel.states().items())
        return cls(
            settings.number, settings.level.name.lower(), settings.context.name.lower(),
            settings.confirmation.name.lower(), kernel.health().serving, member.is_whole,
            tuple(sorted(settings.members)),
            tuple(Followed(number, each.is_whole, each.lag) for number, each in sorted(following.items())),
            int((kernel.waiting() != 0).sum()),
            tuple(StateCount(PROTOCOLS.get(of, str(of)), state.name, count) for (of, state), count in counts),
            kernel.counters(), member.held_to.generation, member.held_to.closed, len(member.peers),
        )  # fmt: skip


def ask(where: str) -> Status:
    """Return the state of the member whose server is at ADDRESS:PORT. Raises BadInput, Unreachable."""
    address, port = read_place(where)
    connection = HTTPConnection(address, port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", "/status")
        return codec.decode(Status, json.loads(connection.getresponse().read(_MOST_BYTES)))
    except (OSError, HTTPException) as error:
        raise Unreachable(f"{where}: {error}") from None
    except (BadInput, ValueError, RecursionError):
        raise Unreachable(f"{where}: what answers is no member of a firewall cluster") from None
    finally:
        connection.close()


def ask_all(places: Sequence[str]) -> Mapping[str, Status | str]:
    """Ask several members at once; one that does not answer is told by why."""
    with ThreadPoolExecutor(max(1, len(places))) as threads:
        return dict(zip(places, threads.map(_status_or_why, places), strict=True))


def _status_or_why(where: str) -> Status | str:
    try:
        return ask(where)
    except Unreachable as error:
        return error.reason


def read_place(text: str, place: str = "MEMBER") -> tuple[str, int]:
    """Read ADDRESS:PORT. Raises BadInput."""
    address, _, port = text.rpartition(":")
    if not address or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise BadInput(f"'{text}' is not ADDRESS:PORT", place=place)
    return address.strip("[]"), int(port)


# ------------------------------------------------------------------------------------------------------------- serving


class _Gauges(Collector):
    """A member's state as Prometheus reads it."""

    def __init__(self, look: Callable[[], Status]) -> None:
        self._look = look

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield everything about the member."""
        status = self._look()
        member = str(status.member)
        for name, says, value in (
            ("serves", "1: it answers the spread switch", status.serves),
            ("whole", "1: it has the connections of all members that it reaches", status.is_whole),
            ("followers", "Members that are sent messages and waited for", len(status.followers)),
            ("peers", "Other members that may take part", status.peers),
            ("held_packets", "Packets that wait for confirmations", status.held),
            ("lists", "Generation of the lists that connections were held to, -1 for none", status.lists),
        ):
            gauge = GaugeMetricFamily(f"aclflow_cluster_{name}", says, labels=["member"])
            gauge.add_metric([member], float(value))
            yield gauge
        lag = GaugeMetricFamily("aclflow_cluster_lag", "Messages that have not come", labels=["member", "followed"])
        for each in status.followed:
            lag.add_metric([member, str(each.member)], each.lag)
        yield lag
        labels = ["member", "protocol", "state"]
        connections = GaugeMetricFamily("aclflow_cluster_connections", "Connections by state", labels=labels)
        for kind in status.states:
            connections.add_metric([member, kind.protocol, kind.state], kind.count)
        yield connections
        forbidden = CounterMetricFamily("aclflow_cluster_forbidden", "Connections closed by lists", labels=["member"])
        forbidden.add_metric([member], status.forbidden)
        yield forbidden
        counters = CounterMetricFamily("aclflow_cluster_events", "What the program counts", labels=["member", "event"])
        for name, count in status.counters.items():
            counters.add_metric([member, name], count)
        yield counters


class _Listener(ThreadingHTTPServer):
    """Holds `MOST_OPEN` connections at the most: one more ends the oldest."""

    request_queue_size = MOST_OPEN

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._guard = threading.Lock()
        self._open: dict[socket.socket, None] = {}
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and cut the oldest where too many are open."""
        with self._guard:
            if len(self._open) >= MOST_OPEN:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):  # it has ended by itself
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a request's connection, as any server does."""
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error as any server, but not that a caller left."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class StatusServer:
    """Serves a member's state. Raises OSError where the address is taken. Call `close` once."""

    def __init__(self, address: str, port: int, look: Callable[[], Status]) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Gauges(look))

        class Handler(BaseHTTPRequestHandler):
            timeout = SILENT_S

            def do_GET(self) -> None:
                """Answer with the state."""
                if self.path == "/status":
                    self._answer("application/json", json.dumps(asdict(look())).encode())
                elif self.path == "/metrics":
                    self._answer("text/plain; version=0.0.4", generate_latest(registry))
                else:
                    self.send_error(404)

            def _answer(self, kind: str, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = _Listener((address, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
