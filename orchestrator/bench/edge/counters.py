"""Real packets to every block of a grid: the switch's counters beside the model."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from orchestrator.bench.pop.edge import EdgeSwitch
from orchestrator.bench.pop.grid import Grid, figure_prefix
from orchestrator.bench.pop.links import Links
from orchestrator.bench.pop.shots import datagram, fire
from orchestrator.bench.pop.world import World
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.edge.rates import spread, union_of
from orchestrator.errors import Drifted

_NONE = Target(0.0)


@dataclass(slots=True)
class Counters:
    """The results: lines examined, lines off the model, and false-match rates."""

    lines: int = 0
    off: int = 0
    counted: list[float] = field(default_factory=list)
    exact: list[float] = field(default_factory=list)


def compare(found: Counters, world: World, links: Links, switch: EdgeSwitch) -> None:
    """Send a packet to every block and compare.

    Raises Drifted where exceptions count something else than they hold.
    """
    grid = world.grid
    switch.load(world, links)
    fire(links, switch, [datagram(grid, address) for address in grid.addresses(grid.every)])
    counted = switch.packets_of_lines()
    asked = grid.every[~np.isin(grid.every, world.lines.exception)]
    first = world.lines.first(asked)
    model = np.bincount(first[first >= 0], minlength=len(world.lines))
    found.lines += len(model)
    found.off += int((counted != model).sum())
    owned = len(world.allocation)
    foreign = int(counted.sum()) - (owned - len(world.lines.exception))
    found.counted.append(foreign / (len(grid.every) - owned))
    sizes = world.sizes
    found.exact.append(union_of(sizes.width, sizes.functions, spread(owned, len(world.lines))))


def upcalls_a_chunk(world: World, links: Links, switch: EdgeSwitch, hosts: int) -> float:
    """Return cache misses for each of the tenants' blocks, with many hosts in each."""
    switch.load(world, links)
    blocks = world.allocation.key
    keys = np.resize(blocks, hosts)
    before = switch.upcalls()
    fire(links, switch, [datagram(world.grid, address) for address in world.grid.addresses(keys, range(1, hosts + 1))])
    if hosts < len(blocks):
        raise Drifted(f"{hosts} hosts are fewer than {len(blocks)} blocks")
    return (switch.upcalls() - before) / len(blocks)


def conclude(results: Results, grid: Grid, found: Counters, upcalls: float) -> None:
    """Record the figures of an IP version."""
    of = figure_prefix(grid)
    results.figures[f"{of}lines_off_model"] = Figure.of([found.off], "lines", _NONE)
    results.figures[f"{of}lines_compared"] = Figure.of([found.lines], "lines")
    ratios = [counted / exact for counted, exact in zip(found.counted, found.exact, strict=True)]
    results.figures[f"{of}false_matches_vs_theory"] = Figure.of(ratios, "ratio")
    results.figures[f"{of}upcalls_per_chunk"] = Figure.of([upcalls], "1")
    pairs = ", ".join(f"{counted:.4g} ({exact:.4g})" for counted, exact in zip(found.counted, found.exact, strict=True))
    whose = f"IPv{grid.family.value}: blocks of nobody's that some line matched"
    results.notes.append(f"{whose}, in shares, and what is exactly expected: {pairs}")
