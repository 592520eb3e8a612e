"""How soon a cluster cuts the connections that a changed list forbids.

A tenth is cut of 10,000 that talk through one member. Three members share all of them, and each is given the new lists.
The clock begins when the lists are there as a file, and ends when the last byte of a forbidden connection is heard.
There is no filter in front: what cuts is what the members close.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from orchestrator.bench.progress import Steps
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.state_sync.programs import Cluster
from orchestrator.bench.state_sync.syncworld import CLIENT, CLIENT4, SERVER, SERVER4, Sizes, World
from orchestrator.bench.traffic.journal import Journal
from orchestrator.bench.traffic.talks import connect_all, draw_tenth, measure_cut
from orchestrator.statesync.lists import read_lists
from orchestrator.statesync.states import Confirmation, Context, Level

FIGURES: Mapping[str, tuple[str, Target]] = MappingProxyType(
    {
        "cut_10k_cluster_ms": ("ms", Target(1000, whole=True)),
        "cut_10k_cluster_missed": ("1", Target(0, whole=True)),
        "cut_10k_cluster_lost": ("1", Target(0, whole=True)),
    }
)
"""Figures with their units, and what they must reach."""
_PORT = 7001
"""The server's in the first round. Each has its own, for a server may still hold connections of the rounds before."""
_FIRST_PORT = 10_000


def measure(results: Results, world: World, sizes: Sizes, steps: Steps, journal: Journal) -> None:
    """Record the figures, of as many rounds as there are failovers."""
    found = []
    world.via(1)
    with Cluster(world, level=Level.FULL, context=Context.DIRTY, confirmation=Confirmation.SYNCHRONOUS) as cluster:
        for turn in range(sizes.failovers):
            steps.next(f"lists that forbid a tenth of {sizes.connections} connections, {turn + 1} of {sizes.failovers}")
            row = journal.row(f"cut {turn}", partial(_measure_round, cluster, turn, sizes.connections))
            found.append(row)
    for (name, (unit, target)), key in zip(FIGURES.items(), ("cut_ms", "missed", "lost"), strict=True):
        results.figures[name] = Figure.of([each[key] for each in found], unit, target)


def _measure_round(cluster: Cluster, turn: int, connections: int) -> dict[str, float]:
    cluster.forget_all()
    ends = [(CLIENT4, _FIRST_PORT + each) for each in range(connections)]
    forbidden = draw_tenth(connections, turn)
    with ExitStack() as stack:
        file = Path(stack.enter_context(TemporaryDirectory()), "lists.json")
        file.write_text(write_lists(turn + 1, [ends[each][1] for each in sorted(forbidden)]))
        door = stack.enter_context(cluster.world.inside(SERVER, partial(_listen, _PORT + turn)))
        talks = cluster.world.inside(CLIENT, lambda: connect_all(stack, door, ends, forbidden))
        cut = measure_cut(talks, partial(_give, cluster, file))
    return {name: float(value) for name, value in asdict(cut).items()}


def write_lists(generation: int, ports: Sequence[int]) -> str:
    """Return a file of lists that forbids what comes from some ports, and nothing else."""
    denies = {"id": "forbidden", "action": "deny", "protocol": "tcp", "source_ports": [str(port) for port in ports]}
    rules = [denies, {"id": "all", "action": "permit"}]
    tenants = [{"prefixes": [f"{SERVER4}/32"], "acl": {"rules": rules}}]
    return json.dumps({"generation": generation, "operator": [], "tenants": tenants})


def _give(cluster: Cluster, file: Path) -> None:
    """Give every member of a cluster the lists of a file."""
    lists = read_lists(file)
    for node in cluster.nodes.values():
        node.member.hold_to(lists)


def _listen(port: int) -> socket.socket:
    return socket.create_server((SERVER4, port), backlog=1024)
