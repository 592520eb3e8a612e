"""Measurements without a switch: planner, lines for a million chunks, formulas against real lines."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from orchestrator.bench.edge.curves import LARGER_CHUNK, PAPERS_CHUNK, papers_figures
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.edge.lines import Shape, build
from orchestrator.edge.occupancy import exact, formula
from orchestrator.edge.planner import Cloud, Load, Tcam, plan
from orchestrator.edge.rates import match_rates, union_of
from orchestrator.edge.sampling import AGREES, Model, compare, drawn, sample
from orchestrator.edge.settings import EdgeSettings
from orchestrator.edge.suggest import suggest

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
            results.figures[f"union_rate_1e{exponent}_{name}"] = _one(found.filters.union_rate)
            results.figures[f"one_line_rate_1e{exponent}_{name}"] = _one(found.paper.one_line_rate)
    trillion = plan(Cloud(vms=10**12), LARGER_CHUNK).filters.union_rate
    results.figures["union_rate_1e12"] = Figure.of([trillion], "1", _UNION)
    results.figures["planner_1e13_s"] = Figure.of([_cpu_s(_plan_anew)], "s", _PLANNER_S)
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
    seconds = _cpu_s(lambda: build(keys, servers, [shape], most_exceptions=len(keys)))
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


def _one(value: float) -> Figure:
    return Figure.of([value], "1")


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
