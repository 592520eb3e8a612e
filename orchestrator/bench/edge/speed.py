"""Packets a second through the edge, on system ports and on AF_XDP rings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orchestrator.bench.pop import flood
from orchestrator.bench.pop.edge import edge_switch
from orchestrator.bench.pop.links import SERVICE, Links, server
from orchestrator.bench.pop.world import World
from orchestrator.bench.results import Figure, Results
from orchestrator.bench.traffic.iperf import received_frames
from orchestrator.bench.traffic.vnf import Ports
from orchestrator.errors import Missing, Refused, Unreachable

_NAMES = {Ports.SYSTEM: "system_ports", Ports.AF_XDP: "af_xdp"}


def measure(
    results: Results, world: World, links: Links, ports: Ports, rounds: int, seconds: float, step: Callable[[str], None]
) -> None:
    """Send at full speed to every block of one server; count at its interface."""
    name = f"packets_s_{_NAMES[ports]}"
    mine = world.allocation.key[world.servers == 1]
    destinations = world.grid.addresses(mine)
    try:
        with edge_switch(links, ports, name=name) as switch:
            switch.load(world, links)
            rates = []
            for turn in range(rounds):
                step(f"{name}, round {turn + 1} of {rounds}")
                before = _count_received(links)
                attacking = flood.begin(links, destinations, seconds=seconds, per_s=flood.AS_FAST_AS_IT_GOES)
                rates.append((attacking.end().seconds, _count_received(links) - before))
        results.figures[name] = Figure.of([packets / took for took, packets in rates], "1/s")
    except (Missing, Refused, Unreachable) as error:
        if ports is Ports.SYSTEM:
            raise
        results.absent[name] = f"AF_XDP ports do not work here: {error}"


def _count_received(links: Links) -> int:
    text = links.inside(server(1), lambda: Path("/proc/thread-self/net/dev").read_text(encoding="ascii"))
    return received_frames(text, SERVICE)
