"""A firewall dies under load: detection time, recovery time and losses.

A lab with a spreading switch, three firewalls that share their connections, and real processes: each run opens its
connections, kills a firewall, and looks. It is revived before the next run, empty, and serves once it is whole.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from types import MappingProxyType

from orchestrator.bench.progress import Steps
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.state_sync.syncsizes import Sizes
from orchestrator.bench.traffic.journal import Journal
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
"""Figures with their units, and what they must reach."""


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


def measure(results: Results, sizes: Sizes, steps: Steps, layout: Layout, journal: Journal) -> None:
    """Record the figures. Raises Unreachable where the lab does not come up."""
    found: list[Seen] = []
    with ExitStack() as stack:
        ground: tuple[Lab, Sequence[Firewall]] | None = None
        for turn in range(sizes.failovers):
            steps.next(f"failover {turn + 1} of {sizes.failovers}, {sizes.connections} connections")
            name = f"failover {turn}"
            if ground is None and not journal.has(name):
                ground = stack.enter_context(_ground(layout))
            found.append(Seen(**journal.row(name, partial(_fail_and_revive, ground, turn, sizes))))
    values: tuple[list[float], ...] = (
        [each.detect_ms for each in found], [each.takeover_ms for each in found], [each.gap_ms for each in found],
        [each.lost for each in found], [each.held for each in found], [each.failed for each in found],
        [each.begun for each in found],
    )  # fmt: skip
    for (name, (unit, target)), each in zip(FIGURES.items(), values, strict=True):
        results.figures[name] = Figure.of(each, unit, target)


def _fail_and_revive(ground: tuple[Lab, Sequence[Firewall]] | None, turn: int, sizes: Sizes) -> dict[str, float]:
    if ground is None:
        raise Refused("there is no lab to measure in")
    lab, members = ground
    victim = members[turn % SIZE]
    seen = _failover(lab, victim, sizes.connections)
    cluster.revive(victim)
    wait_until(partial(cluster.is_up, victim), "a firewall does not serve again", _PATIENCE_S)
    return asdict(seen)


@contextmanager
def _ground(layout: Layout) -> Iterator[tuple[Lab, Sequence[Firewall]]]:
    """A lab with a cluster of three, and a server that echoes."""
    pop.down(layout)
    try:
        lab = pop.up(layout, POP)
        plane = ControlPlane(lab)
        plane.start({TenantId("shop"): _OPEN})
        with plane.client() as client:
            members = cluster.start(lab, client, SIZE)
        server = _start_load(lab, "web", "serve", _ADDRESS, _PORT)
        try:
            yield lab, members
        finally:
            server.kill()
            server.communicate()
    finally:
        pop.down(layout)


def _failover(lab: Lab, victim: Firewall, connections: int) -> Seen:
    client = _start_load(lab, "outside", "hold", _ADDRESS, _PORT, str(connections), *SOURCES)
    time.sleep(_SETTLE_S)
    killed = time.monotonic()
    _, noticed_s = cluster.kill_and_watch(victim)
    time.sleep(max(0.0, killed + _SETTLE_S - time.monotonic()))
    told, _ = client.communicate("\n", timeout=_PATIENCE_S)
    try:
        found = json.loads(told)
    except ValueError:
        raise Refused(f"the load ended with {client.returncode} and said {told[:200]!r}") from None
    detect_s = _SETTLE_S if noticed_s is None else noticed_s
    gaps = [
        until - max(since, killed)
        for arrivals in found["arrivals"]
        for since, until in pairwise(arrivals)
        if since - killed < _NEAR_S and until > killed
    ]
    gap_s = max(gaps, default=_SETTLE_S)
    return Seen(detect_s * 1000, gap_s * 1000, found["lost"], found["held"], found["begun"], found["failed"])


def _start_load(lab: Lab, node: str, *words: str) -> subprocess.Popen[str]:
    """A program of the load that says when it is ready.

    Raises Refused for one that does not.
    """
    command = [sys.executable, "-m", "orchestrator.bench.state_sync.holding", *words]
    start = partial(subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process: subprocess.Popen[str] = lab.inside(node, start)
    if process.stdout is None or process.stdout.readline().strip() != "ready":
        raise Refused(f"the load in {node} did not start")
    return process
