"""Forbidden packets in the WAN and permitted ones lost, under each misdirect mode.

Two worlds: with repaired lines no tenant's packet meets a wrong server; with unrepaired ones, packed twice as dense,
a fifth of the tenants' blocks are misdirected, which is where the modes differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.bench.pop.edge import EdgeSwitch, FirewallServers
from orchestrator.bench.pop.grid import Grid, figure_prefix
from orchestrator.bench.pop.links import Links
from orchestrator.bench.pop.shots import datagram, fire, permitted_frame
from orchestrator.bench.pop.wan import Wan
from orchestrator.bench.pop.world import World, machine
from orchestrator.bench.results import Figure, Results, Stack, Target
from orchestrator.edge.hashing import U64
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.prefilter import Misdirect

_NONE, _ALL = Target(0.0), Target(1.0, at_most=False)


@dataclass(frozen=True, slots=True)
class Place:
    """Where it is measured."""

    links: Links
    switch: EdgeSwitch
    wan: Wan
    servers: FirewallServers


@dataclass(frozen=True, slots=True)
class Leak:
    """Results of one world under one mode.

    Packets in the WAN that nobody permits and how many theory expects, of so many sent; the share of permitted ones
    that arrived; and how many tenants' blocks the lines misdirect.
    """

    leaked: int
    expected: int
    sent: int
    permitted: float
    misdirected: int


def measure(
    worlds: Mapping[str, World], place: Place, every: int, step: Callable[[str], None]
) -> dict[tuple[str, Misdirect], Leak]:
    """Every world under every mode; swept is every so many-th block."""
    found = {}
    for name, world in worlds.items():
        place.switch.load(world, place.links)
        for mode in Misdirect:
            step(f"{name} lines, IPv{world.grid.family.value}, misdirected: {mode.value}")
            place.servers.load(world, mode)
            found[name, mode] = _measure_leak(world, mode, place, world.grid.routable[::every])
    return found


def _measure_leak(world: World, mode: Misdirect, place: Place, swept: U64) -> Leak:
    grid, before = world.grid, place.wan.count_arrived()
    machines = [permitted_frame(grid, Prefix.parse(machine(tenant)).network) for tenant in world.tenants]
    for shots in ([datagram(grid, address) for address in grid.addresses(swept)], machines):
        fire(place.links, place.switch, shots)
    place.links.settle()
    arrived = place.wan.count_arrived().since(before)
    keys = world.allocation.key
    wrong = int((world.lines.server_of(keys) != world.right_server(keys)).sum())
    expected = int(world.leaks(swept, mode).sum())
    return Leak(arrived.attack.packets, expected, len(swept), arrived.permitted.packets / len(machines), wrong)


def conclude(results: Results, grid: Grid, found: Mapping[tuple[str, Misdirect], Leak]) -> None:
    """Record an IP version's figures: leaks over both worlds, and permitted packets."""
    of = figure_prefix(grid)
    for mode in Misdirect:
        each = {name: leak for (name, its), leak in found.items() if its is mode}
        total = sum(leak.leaked for leak in each.values())
        if mode is Misdirect.WAN:
            off = [leak.leaked / leak.expected for leak in each.values() if leak.expected]
            results.figures[f"{of}leaked_wan_vs_theory"] = Figure.of(off, "ratio")
            results.figures[f"{of}leaked_wan"] = Figure.of([total], "packets")
        else:
            results.figures[f"{of}leaked_{mode.value}"] = Figure.of([total], "packets", _NONE)
        for name, leak in each.items():
            target = None if mode is Misdirect.DROP and leak.misdirected else _ALL
            results.figures[f"{of}permitted_arrive_{mode.value}_{name}"] = Figure.of([leak.permitted], "1", target)
    bars = tuple(f"{name},\n{mode.value}" for name, mode in found)
    shares = tuple(leak.leaked / leak.sent for leak in found.values())
    results.stacks.append(
        Stack(f"what leaks of a sweep of IPv{grid.family.value}", bars, {"in the WAN": shares}, "share of blocks swept")
    )
    worst, sent = max(leak.misdirected for leak in found.values()), max(leak.sent for leak in found.values())
    results.notes.append(
        f"IPv{grid.family.value} leaks: a packet to each of {sent:,} blocks; unrepaired lines misdirect {worst} blocks"
    )
