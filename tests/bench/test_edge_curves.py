"""The paper's figures 7 to 10: what is drawn is what the planner says."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.bench.edge.curves import LARGER_CHUNK, PAPERS_CHUNK, by_share, by_size, bypass, papers_figures, wan
from orchestrator.bench.edge.model import Counters, conclude
from orchestrator.bench.plots import draw_plots
from orchestrator.bench.pop.world import IPV4
from orchestrator.bench.results import Results
from orchestrator.edge.planner import Cloud, Load, Tcam, plan

CLOUD, TCAM, LOAD = Cloud(), Tcam(), Load()


def test_figure_7_is_the_papers() -> None:
    small, large = wan(LOAD)
    at = small.x.index(0.3)
    assert small.y[at] == pytest.approx(3.0)
    assert large.y[at] == pytest.approx(75.0)


def test_figure_8_has_both_readings() -> None:
    shared, own = bypass(CLOUD, TCAM, LOAD)
    assert shared.y[0] > 0.98  # as in the paper, almost everything by almost nothing
    assert all(less < more for less, more in zip(own.y, shared.y, strict=True))
    assert list(own.y) == sorted(own.y)


def test_figures_9_and_10_are_the_planners_points() -> None:
    papers, one_size, larger = by_share(CLOUD, TCAM)
    at = papers.x.index(0.1)
    assert papers.y[at] == plan(CLOUD, PAPERS_CHUNK).paper.one_line_rate
    assert one_size.y[at] == plan(CLOUD, PAPERS_CHUNK).filters.union_rate
    assert larger.y[at] == plan(CLOUD, LARGER_CHUNK).filters.union_rate
    for line in by_size(CLOUD, TCAM):
        assert line.x_log
        assert line.y_log
        assert min(line.y) > 0
        assert line.x[0] == 10**7


def test_all_four_are_drawn(tmp_path: Path) -> None:
    names = [path.name for path in draw_plots(papers_figures(CLOUD, TCAM, LOAD), (), tmp_path)]
    assert [name.split("-")[1] for name in names] == ["7", "8", "9", "10"]
    assert all((tmp_path / name).read_text().startswith("<?xml") for name in names)


def test_counters_become_figures() -> None:
    results = Results("edge", {})
    conclude(results, IPV4, Counters(lines=128, off=0, counted=[0.02], exact=[0.025]), 1.0)
    assert results.figures["lines_off_model"].median == 0
    assert results.figures["false_matches_vs_theory"].median == pytest.approx(0.8)
