"""Measurements without a switch: planner, lines for a million chunks, formulas against real lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from orchestrator.bench.edge.curves import LARGER_CHUNK, PAPERS_CHUNK, papers_figures
from orchestrator.bench.pop.edge import EdgeSwitch
from orchestrator.bench.pop.links import Links
from orchestrator.bench.pop.shots import datagram, fire
from orchestrator.bench.pop.world import Grid, World, figure_prefix
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.edge.lines import Shape, build
from orchestrator.edge.occupancy import exact, formula, match_rates, spread, union_of
from orchestrator.edge.planner import Cloud, Load, Tcam, plan
from orchestrator.edge.sampling import AGREES, Model, compare, drawn, sample
from orchestrator.edge.settings import EdgeSettings
from orchestrator.edge.suggest import suggest
from orchestrator.errors import Drifted

_SERVERS = 64
_TARGET_RATE = 1e-9
_UNION, _PLANNER_S, _BUILD_S, _T = Target(_TARGET_RATE), Target(1.0), Target(30.0), Target(AGREES)
_PAPERS_LINES = Model(lines=1_024, width=288, per_line=11, functions=18)
"""As many chunks a line as the paper's cloud gives it, in as many lines as can be sampled."""


def measure_planner(results: Results) -> None:
    """The planner's points, and the paper's figures 7 to 10."""
    for vms in (10**12, 10**13):
        for name, size in (("papers_chunks", PAPERS_CHUNK), ("larger_chunks", LARGER_CHUNK)):
            found = plan(Cloud(vms=vms), size)
            exponent = len(str(vms)) - 1
            results.figures[f"union_rate_1e{exponent}_{name}"] = _make_figure(found.filters.union_rate)
            results.figures[f"one_line_rate_1e{exponent}_{name}"] = _make_figure(found.paper.one_line_rate)
    trillion = plan(Cloud(vms=10**12), LARGER_CHUNK).filters.union_rate
    results.figures["union_rate_1e12"] = Figure.of([trillion], "1", _UNION)
    results.figures["planner_1e13_s"] = Figure.of([_measure_cpu_s(_plan_anew)], "s", _PLANNER_S)
    advice = suggest(Cloud(vms=10**13), Tcam(), _TARGET_RATE)
    results.notes.append(
        f"at 10^13 VMs {_TARGET_RATE:g} takes chunks of {advice.chunk_size:,} addresses, which leaves "
        f"{advice.union_rate:.3g} with {advice.heavy_share:.0%} of the free entries for heavy hitters"
    )
    results.series += papers_figures(Cloud(), Tcam(), Load())


def _plan_anew() -> None:
    """The largest cloud with its suggestion, with nothing remembered from before."""
    match_rates.cache_clear()
    exact.cache_clear()
    plan(Cloud(vms=10**13), LARGER_CHUNK)
    suggest(Cloud(vms=10**13), Tcam(), _TARGET_RATE)


def built(results: Results, chunks: int) -> None:
    """Lines for so many chunks, as the settings' defaults shape them: order, repair and all."""
    settings = EdgeSettings()
    keys = np.unique(drawn(1, 0, chunks))
    servers = np.arange(len(keys), dtype=np.int64) // settings.per_line % _SERVERS
    shape = Shape(settings.width, tuple(range(1, settings.functions + 1)), settings.per_line)
    seconds = _measure_cpu_s(lambda: build(keys, servers, [shape], most_exceptions=len(keys)))
    results.figures[f"build_{chunks}_chunks_s"] = Figure.of([seconds], "s", _BUILD_S)


def measure_samples(results: Results, draws: int, step: Callable[[str], None]) -> None:
    """Formulas against real lines: Student's t of each, and of those that are usually taken."""
    for name, model in (("papers_lines", _PAPERS_LINES), ("narrow_lines", Model())):
        step(f"{draws:,} draws against {model.lines} lines of {model.width} bits")
        found = sample(model, draws, seed=1)
        m, k, n = model.width, model.functions, model.per_line
        usual = formula(m, k, n)
        one, union = compare(found.one_line, exact(m, k, n)), compare(found.union, union_of(m, k, model.held))
        results.figures[f"sampled_one_line_rate_{name}"] = Figure.of(found.one_line, "1")
        results.figures[f"sampled_union_rate_{name}"] = Figure.of(found.union, "1")
        results.figures[f"t_one_line_{name}"] = Figure.of([abs(one.t)], "1", _T)
        results.figures[f"t_union_{name}"] = Figure.of([abs(union.t)], "1", _T)
        results.notes.append(
            f"{found.total:,} draws against {len(found.union)} sets of {model.lines} lines ({m} bits, {n} chunks, {k} "
            f"functions): one line {one.observed:.4g}, exactly {one.predicted:.4g} (t {one.t:.1f}), by the usual "
            f"formula {usual:.4g} (t {compare(found.one_line, usual).t:.0f}); any line {union.observed:.4g}, exactly "
            f"{union.predicted:.4g} (t {union.t:.1f})"
        )


def _make_figure(value: float) -> Figure:
    return Figure.of([value], "1")


def _measure_cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


_NONE = Target(0.0)


@dataclass(slots=True)
class Counters:
    """The results: lines examined, lines off the model, and false-match rates."""

    lines: int = 0
    off: int = 0
    counted: list[float] = field(default_factory=list)
    exact: list[float] = field(default_factory=list)


def compare_counters(found: Counters, world: World, links: Links, switch: EdgeSwitch) -> None:
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
