"""One TCP stream through a line, as in the paper's figures 11 to 13.

Bandwidth, latency and processors.

Ways take turns: a kernel that only routes, hash sets of every size, an interval set, and the tunnel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from orchestrator.bench.firewall_server import qperf
from orchestrator.bench.firewall_server.pairs import MARKED_ONLY, HashSet, pairs, traffic
from orchestrator.bench.firewall_server.qperf import Bandwidth
from orchestrator.bench.firewall_server.serversizes import Sizes
from orchestrator.bench.firewall_server.tunnel import SERVER_INSIDE, tunnel
from orchestrator.bench.traffic import netcat
from orchestrator.bench.traffic.addresses import ECHO, EXCLUDED_ADDRESS, SERVER_ADDRESS
from orchestrator.bench.traffic.line import MIDDLE, Line
from orchestrator.bench.traffic.site import serve_line
from orchestrator.errors import AclflowError, Drifted, Missing, Unreachable
from orchestrator.lab.layout import Layout
from orchestrator.lab.processes import Process

ROUTING, TUNNEL = "routing", "IPsec tunnel"


def hash_set(count: int) -> str:
    """The way of a hash set with so many pairs."""
    return f"hash set of {count:,}"


@dataclass(slots=True)
class Streams:
    """Values by way, in the order of the rounds.

    `absent` says why there is no tunnel, if there is none.
    """

    bandwidth: dict[str, list[Bandwidth]] = field(default_factory=dict)
    latency_us: dict[str, list[float]] = field(default_factory=dict)
    absent: str | None = None


@dataclass(frozen=True, slots=True)
class _Way:
    """A line with its traffic's address, and the processes that carry it beside the kernel."""

    line: Line
    address: str
    beside: Sequence[Process] = ()


def measure(place: Layout, sizes: Sizes, step: Callable[[str], None]) -> Streams:
    """All rounds. Raises Missing, Refused, Unreachable, Drifted."""
    found = Streams()
    with ExitStack() as stack:
        ways = {ROUTING: _Way(stack.enter_context(_serve_qperf_line(place, "routing")), SERVER_ADDRESS)}
        for count in sizes.counts:
            step(f"{hash_set(count)} on a line")
            line = stack.enter_context(_serve_qperf_line(place, f"hash{count}"))
            _permit(line, count)
            ways[hash_set(count)] = _Way(line, SERVER_ADDRESS)
        step(TUNNEL)
        try:
            line = stack.enter_context(_serve_qperf_line(place, "ipsec"))
            ways[TUNNEL] = _Way(line, SERVER_INSIDE, stack.enter_context(tunnel(line)))
        except (Missing, Unreachable) as error:
            found.absent = str(error)
        for turn in range(sizes.rounds):
            for name, way in ways.items():
                step(f"streams, round {turn + 1} of {sizes.rounds}: {name}")
                found.bandwidth.setdefault(name, []).append(
                    qperf.bandwidth(way.line, way.address, sizes.seconds, way.beside)
                )
                found.latency_us.setdefault(name, []).append(qperf.latency_us(way.line, way.address, sizes.seconds))
    return found


def steps(sizes: Sizes) -> int:
    """How many steps `measured` tells of."""
    return len(sizes.counts) + 1 + sizes.rounds * (len(sizes.counts) + 2)


@contextmanager
def _serve_qperf_line(place: Layout, name: str) -> Iterator[Line]:
    with serve_line(place, name) as line:
        qperf.start(line)
        yield line


def _permit(line: Line, count: int) -> None:
    """Load a set with the traffic's pair among others; check that it decides.

    Raises Drifted.
    """
    held = HashSet()
    line.run(MIDDLE, "nft", "-f", "-", text=MARKED_ONLY)
    line.inside(MIDDLE, held.create)
    line.inside(MIDDLE, lambda: held.load(pairs(count - 1)))
    line.inside(MIDDLE, lambda: held.load(traffic()))
    try:
        strangers = netcat.reached_sources(line, [(EXCLUDED_ADDRESS, ECHO)])
    except AclflowError as error:
        raise Drifted(f"{hash_set(count)}: the permitted pair is not heard: {error}") from None
    if any(strangers):
        raise Drifted(f"{hash_set(count)}: a pair that is not permitted is heard")
