"""Real packets to every /16 block there is, and the switch's counters beside the model, line by line."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from orchestrator.bench.pop.edge import EdgeSwitch
from orchestrator.bench.pop.links import Links
from orchestrator.bench.pop.shots import datagram, fire
from orchestrator.bench.pop.world import EVERY_CHUNK, World, addresses
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.edge.rates import spread, union_of
from orchestrator.errors import Drifted

_NONE = Target(0.0)


@dataclass(slots=True)
class Counters:
    """What was found: lines asked and lines that counted otherwise than the model, and rates of false matches."""

    lines: int = 0
    off: int = 0
    counted: list[float] = field(default_factory=list)
    exact: list[float] = field(default_factory=list)


def compare(found: Counters, world: World, links: Links, switch: EdgeSwitch) -> None:
    """Send a packet to every block and compare. Raises Drifted where exceptions count something else than they hold."""
    switch.load(world, links)
    fire(links, switch, [datagram(address) for address in addresses(EVERY_CHUNK)])
    counted = switch.packets_of_lines()
    asked = EVERY_CHUNK[~np.isin(EVERY_CHUNK, world.lines.exception)]
    first = world.lines.first(asked)
    model = np.bincount(first[first >= 0], minlength=len(world.lines))
    found.lines += len(model)
    found.off += int((counted != model).sum())
    owned = len(world.allocation)
    foreign = int(counted.sum()) - (owned - len(world.lines.exception))
    found.counted.append(foreign / (len(EVERY_CHUNK) - owned))
    sizes = world.sizes
    found.exact.append(union_of(sizes.width, sizes.functions, spread(owned, len(world.lines))))


def upcalls_a_chunk(world: World, links: Links, switch: EdgeSwitch, hosts: int) -> float:
    """Packets that meet no cache entry, for each of the tenants' blocks, in each of which many hosts are spoken to."""
    switch.load(world, links)
    blocks = world.allocation.key
    keys = np.resize(blocks, hosts)
    before = switch.upcalls()
    fire(links, switch, [datagram(address) for address in addresses(keys, range(1, hosts + 1))])
    if hosts < len(blocks):
        raise Drifted(f"{hosts} hosts are fewer than {len(blocks)} blocks")
    return (switch.upcalls() - before) / len(blocks)


def conclude(results: Results, found: Counters, upcalls: float) -> None:
    """Record the figures."""
    results.figures["lines_off_model"] = Figure.of([found.off], "lines", _NONE)
    results.figures["lines_compared"] = Figure.of([found.lines], "lines")
    ratios = [counted / exact for counted, exact in zip(found.counted, found.exact, strict=True)]
    results.figures["false_matches_vs_theory"] = Figure.of(ratios, "ratio")
    results.figures["upcalls_per_chunk"] = Figure.of([upcalls], "1")
    pairs = ", ".join(f"{counted:.4g} ({exact:.4g})" for counted, exact in zip(found.counted, found.exact, strict=True))
    results.notes.append(f"blocks of nobody's that some line matched, in shares, and what is exactly expected: {pairs}")
