"""Figures: the median, and an interval that is as sure as it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from orchestrator.bench import report
from orchestrator.bench.plots import thin_points
from orchestrator.bench.results import Figure, Results, Series, Stack, Target, in_digits
from orchestrator.errors import BadInput, Missing


def test_few_runs_give_the_whole_range() -> None:
    figure = Figure.of([3.0, 1.0, 2.0], "s")
    assert (figure.median, figure.low, figure.high, figure.runs) == (2.0, 1.0, 3.0, 3)


@pytest.mark.parametrize("runs", [6, 9, 15, 40])
def test_the_interval_holds_the_true_median_95_times_of_100(runs: int) -> None:
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(400):
        figure = Figure.of(random.exponential(1.0, runs).tolist(), "s")
        hits += figure.low <= np.log(2) <= figure.high
    assert hits >= 0.93 * 400


def test_the_interval_of_many_runs_is_narrower_than_the_range() -> None:
    figure = Figure.of([float(value) for value in range(40)], "s")
    assert 0 < figure.low < figure.median < figure.high < 39


def test_the_interval_of_ten_thousand_runs_is_that_of_the_normal_distribution() -> None:
    figure = Figure.of([float(value) for value in range(10_000)], "s")
    assert (figure.low, figure.high) == pytest.approx((5000 - 1.96 * 50, 5000 + 1.96 * 50), abs=2)


@pytest.mark.parametrize(("at_most", "value", "met"), [(True, 0.6, True), (True, 0.61, False), (False, 0.6, True)])
def test_a_target_has_a_side(at_most: bool, value: float, met: bool) -> None:
    assert Target(0.6, at_most).met(value) is met


@pytest.mark.parametrize(
    ("whole", "at_most", "is_met"), [(False, False, True), (True, False, False), (True, True, False)]
)
def test_a_target_may_be_for_the_whole_interval(whole: bool, at_most: bool, is_met: bool) -> None:
    figure = Figure.of([1.1, 1.3, 1.5], "ratio", Target(1.2, at_most, whole))
    assert figure.is_met is is_met
    assert replace(figure, target=None).is_met


@pytest.mark.parametrize(
    ("value", "digits"), [(155_512.3, "155,500"), (1736, "1,736"), (0.60049, "0.6005"), (12, "12"), (4.0e-13, "4e-13")]
)
def test_large_numbers_are_written_out(value: float, digits: str) -> None:
    assert in_digits(value) == digits


def test_plots_are_drawn_again_from_the_results(tmp_path: Path) -> None:
    results = Results("demo", {})
    results.series += [
        Series("ours", (1, 10, 100), (3, 4, 5), "rules", "seconds (s)", (2, 3, 4), (4, 5, 6), x_log=True, y_log=True),
        Series("long", tuple(range(1000)), (0.0,) * 999 + (7.5,), "time", "size"),
    ]
    results.stacks.append(Stack("parts of it", ("a", "b"), {"one": (1.0, 2.0), "two": (3.0, 4.0)}, "ms"))
    first = {path: path.read_bytes() for path in report.write(results, tmp_path) if path.suffix == ".svg"}
    for path in first:
        path.unlink()
    assert {path: path.read_bytes() for path in report.redraw(tmp_path)} == first
    assert all(b"<text" in svg and len(svg) < 30_000 for svg in first.values())


def test_a_folder_without_results_is_not_drawn_again(tmp_path: Path) -> None:
    with pytest.raises(Missing, match=r"results\.json"):
        report.redraw(tmp_path)
    (tmp_path / "results.json").write_text("[]", encoding="utf-8")
    with pytest.raises(BadInput, match=r"results\.json"):
        report.redraw(tmp_path)


def test_a_thinned_line_keeps_its_lowest_and_highest_values() -> None:
    y = [0.0] * 5000
    y[1234], y[4321] = 9.0, -9.0
    x, thin = thin_points(list(range(5000)), y)
    assert len(x) == len(thin) <= 160
    assert {(1234, 9.0), (4321, -9.0)} <= set(zip(x, thin, strict=True))


def test_a_report_says_what_was_measured_what_was_missed_and_what_is_absent(tmp_path: Path) -> None:
    results = Results("demo", {"rules": 20})
    results.figures["fast"] = Figure.of([1.0, 2.0, 3.0], "s", Target(1.5))
    results.absent["slow"] = "no second switch here"
    results.series.append(Series("ours", (1, 2), (3, 4), "rules", "seconds (s)"))
    report.prepare(tmp_path / "new")
    written = report.write(results, tmp_path / "new")
    assert {path.name for path in written} == {"results.json", "seconds.svg", "report.md"}
    document = json.loads((tmp_path / "new" / "results.json").read_text(encoding="utf-8"))
    assert document["figures"]["fast"] == {"median": 2.0, "low": 1.0, "high": 3.0, "runs": 3, "unit": "s"}
    text = (tmp_path / "new" / "report.md").read_text(encoding="utf-8")
    assert "MISSED" in text
    assert "no second switch here" in text
    console = Console(record=True, width=160)
    report.show(results, console)
    assert "MISSED" in console.export_text()


def test_files_of_a_report_are_short_and_keep_every_value(tmp_path: Path) -> None:
    results = Results("demo", {"counts": [1, 2], "empty": [], "phases": [[10, 0.3], [30, 1.4]], "of": {"plane": "a"}})
    results.series.append(
        Series("ours", tuple(range(100)), tuple(number / 7 for number in range(100)), "rules", "seconds (s)")
    )
    results.figures["fast"] = Figure.of([1.0, 2.0, 3.0], "s")
    report.prepare(tmp_path)
    document, plot, _ = report.write(results, tmp_path)
    text = document.read_text(encoding="utf-8")
    assert json.loads(text) == json.loads(json.dumps(results.document()))
    assert len(text.splitlines()) < 50
    drawn = plot.read_text(encoding="utf-8")
    assert len(drawn.splitlines()) < 150
    assert "metadata" not in drawn
    ElementTree.fromstring(drawn)
