"""A firewall dies, comes or goes under load: detection time, recovery time and losses.

A lab with a spreading switch, three firewalls that share their connections, and real processes: each run opens its
connections, kills a firewall, and looks. It is revived before the next run, empty, and serves once it is whole. Then a
fourth one comes empty, gets its part of the traffic, gives it back and leaves.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from orchestrator.bench.progress import Steps
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.state_sync.syncworld import Sizes
from orchestrator.bench.traffic.journal import Journal
from orchestrator.client import Client
from orchestrator.errors import Refused
from orchestrator.lab import cluster, pop, specfile
from orchestrator.lab.cluster import Firewall
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.processes import wait_until
from orchestrator.lab.service import ControlPlane
from orchestrator.policy.model import Acl, Action, Rule, RuleId, TenantId

SOURCES = tuple(f"192.0.2.{number}" for number in range(1, 25))
POP = specfile.parse(
    f"""
    domain: failover
    hosts: [{{name: host1}}]
    clients: [{{name: outside, addresses: [{", ".join(SOURCES)}]}}]
    tenants: [{{id: shop, prefixes: [198.51.100.0/24]}}]
    endpoints: [{{name: web, tenant: shop, host: host1, addresses: [198.51.100.10]}}]
    spread: true
    """
)
SIZE = 3
_ADDRESS, _PORT = "198.51.100.10", "8000"
_OPEN = Acl((Rule(RuleId("all"), Action.PERMIT),))
_NEAR_S = 0.02
_SETTLE_S = 1.0
_PATIENCE_S = 120.0


FIGURES: Mapping[str, tuple[str, Target | None]] = MappingProxyType(
    {
        "detect_ms": ("ms", Target(50)),
        "takeover_ms": ("ms", Target(20)),
        "gap_ms": ("ms", Target(70)),
        "connections_lost": ("1", Target(0)),
        "connections_held": ("1", None),
        "new_connections_failed": ("1", Target(0)),
        "new_connections_begun": ("1", None),
    }
)
"""Figures of failovers with their units, and what they must reach."""
SCALING_FIGURES: Mapping[str, tuple[str, Target | None]] = MappingProxyType(
    {
        "scale_out_s": ("s", None),
        "scale_in_s": ("s", None),
        "scaling_gap_ms": ("ms", None),
        "scaling_connections_lost": ("1", Target(0)),
        "scaling_new_connections_failed": ("1", Target(0)),
    }
)
"""Figures of a firewall that comes and goes."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One failover, in ms from the kill: detection, and the last flow's first answer."""

    detect_ms: float
    gap_ms: float
    lost: float
    held: float
    begun: float
    failed: float

    @property
    def takeover_ms(self) -> float:
        """From the switch's knowing to the first packet that another firewall has delivered."""
        return self.gap_ms - self.detect_ms


@dataclass(frozen=True, slots=True)
class Scaling:
    """One scaling: seconds to come and to go, and lost connections."""

    out_s: float
    in_s: float
    gap_ms: float
    lost: float
    failed: float


@dataclass(slots=True)
class Ground:
    """A lab with three firewalls that serve, and a fourth that does not run."""

    lab: Lab
    client: Client
    members: Sequence[Firewall]

    def spread_over(self, members: Sequence[Firewall]) -> None:
        """Give traffic to these firewalls, and return once the switch does."""
        domain, generation = self.lab.spec.domain, cluster.spread(self.client, self.lab, list(members))
        enforced = partial(self.client.spread.read, domain)
        wait_until(lambda: enforced().enforced >= generation, "the switch does not spread anew", _PATIENCE_S)


def measure(results: Results, sizes: Sizes, steps: Steps, layout: Layout, journal: Journal) -> None:
    """Record the figures, those of failovers first.

    Raises Unreachable where the lab does not come up, and Refused where a load does not start.
    """
    with ExitStack() as stack:
        open_ground = cache(lambda: stack.enter_context(_ground(layout)))  # a journal may know every measurement
        found: list[Seen] = []
        for turn in range(sizes.failovers):
            steps.next(f"failover {turn + 1} of {sizes.failovers}, {sizes.connections} connections")
            fail = partial(_fail_and_revive, open_ground, turn, sizes)
            found.append(Seen(**journal.row(f"failover {turn}", fail)))
        _conclude(
            results, FIGURES,
            [each.detect_ms for each in found], [each.takeover_ms for each in found], [each.gap_ms for each in found],
            [each.lost for each in found], [each.held for each in found], [each.failed for each in found],
            [each.begun for each in found],
        )  # fmt: skip
        scaled: list[Scaling] = []
        for turn in range(sizes.failovers):
            steps.next(f"scaling {turn + 1} of {sizes.failovers}, {sizes.connections} connections")
            scaled.append(Scaling(**journal.row(f"scaling {turn}", partial(_scale, open_ground, sizes))))
        _conclude(
            results, SCALING_FIGURES,
            [each.out_s for each in scaled], [each.in_s for each in scaled], [each.gap_ms for each in scaled],
            [each.lost for each in scaled], [each.failed for each in scaled],
        )  # fmt: skip


def _conclude(results: Results, figures: Mapping[str, tuple[str, Target | None]], *values: list[float]) -> None:
    """Add figures to the results: a name, unit and target for each list of values."""
    for (name, (unit, target)), each in zip(figures.items(), values, strict=True):
        results.figures[name] = Figure.of(each, unit, target)


def _fail_and_revive(open_ground: Callable[[], Ground], turn: int, sizes: Sizes) -> dict[str, float]:
    ground = open_ground()
    victim = ground.members[turn % SIZE]
    seen = _kill_and_measure(ground.lab, victim, sizes.connections)
    cluster.revive(victim)
    wait_until(partial(cluster.is_up, victim), "a firewall does not serve again", _PATIENCE_S)
    return asdict(seen)


def _scale(open_ground: Callable[[], Ground], sizes: Sizes) -> dict[str, float]:
    """Bring a fourth firewall, have it serve and leave, while connections are held and begin."""
    ground = open_ground()
    fourth = ground.members[SIZE]
    load = _hold(ground.lab, sizes.connections)
    began = time.monotonic()
    cluster.revive(fourth)
    wait_until(partial(cluster.is_up, fourth), "a firewall that came does not serve", _PATIENCE_S)
    ground.spread_over(ground.members)
    out_s = time.monotonic() - began
    time.sleep(_SETTLE_S)
    if not fourth.show()["counters"]["passed"]:
        raise Refused("the firewall that came got no traffic")
    leaving = time.monotonic()
    ground.spread_over(ground.members[:SIZE])
    fourth.drain()
    in_s = time.monotonic() - leaving
    time.sleep(_SETTLE_S)
    found = _read_load(load)
    return asdict(Scaling(out_s, in_s, _gap_s(found, began, _PATIENCE_S) * 1000, found["lost"], found["failed"]))


@contextmanager
def _ground(layout: Layout) -> Iterator[Ground]:
    """A lab with a cluster, and a server that echoes."""
    pop.down(layout)
    try:
        lab = pop.up(layout, POP)
        plane = ControlPlane(lab)
        plane.start({TenantId("shop"): _OPEN})
        with plane.client() as client:
            ground = Ground(lab, client, cluster.start(lab, client, SIZE + 1))
            ground.spread_over(ground.members[:SIZE])
            ground.members[SIZE].drain()
            server = _start_load(lab, "web", "serve", _ADDRESS, _PORT)
            try:
                yield ground
            finally:
                server.kill()
                server.communicate()
    finally:
        pop.down(layout)


def _kill_and_measure(lab: Lab, victim: Firewall, connections: int) -> Seen:
    load = _hold(lab, connections)
    killed = time.monotonic()
    _, noticed_s = cluster.kill_and_watch(victim)
    time.sleep(max(0.0, killed + _SETTLE_S - time.monotonic()))
    found = _read_load(load)
    detect_s = _SETTLE_S if noticed_s is None else noticed_s
    gap_s = _gap_s(found, killed, _NEAR_S)
    return Seen(detect_s * 1000, gap_s * 1000, found["lost"], found["held"], found["begun"], found["failed"])


def _hold(lab: Lab, connections: int) -> subprocess.Popen[str]:
    """Start a client that holds connections, sends and begins others; wait a second."""
    client = _start_load(lab, "outside", "hold", _ADDRESS, _PORT, str(connections), *SOURCES)
    time.sleep(_SETTLE_S)
    return client


def _read_load(load: subprocess.Popen[str]) -> dict[str, Any]:
    """End the load; return its report about connections. Raises Refused where it says nothing."""
    told, _ = load.communicate("\n", timeout=_PATIENCE_S)
    try:
        found: dict[str, Any] = json.loads(told)
    except ValueError:
        raise Refused(f"the load ended with {load.returncode} and said {told[:200]!r}") from None
    return found


def _gap_s(found: Mapping[str, Any], since_s: float, within_s: float) -> float:
    """The longest time without an answer to a client.

    Of those times that began within `within_s` after `since_s`.
    """
    gaps = [
        until - max(before, since_s)
        for arrivals in found["arrivals"]
        for before, until in pairwise(arrivals)
        if before - since_s < within_s and until > since_s
    ]
    return max(gaps, default=_SETTLE_S)


def _start_load(lab: Lab, node: str, *words: str) -> subprocess.Popen[str]:
    """A program of the load that says when it is ready.

    Raises Refused for one that does not.
    """
    command = [sys.executable, "-m", "orchestrator.bench.state_sync.holding", *words]
    start = partial(subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process: subprocess.Popen[str] = lab.inside(node, start)
    if process.stdout is None or process.stdout.readline().strip() != "ready":
        raise Refused(f"the load in {node} did not start; what it said stands above")
    return process
