"""Ways to search general rows, as programs in the kernel: each finds for every packet the first row that holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.bench.classifiers import kernelsearches, suite
from orchestrator.bench.results import Results
from orchestrator.bench.rulesets import synthetic
from orchestrator.errors import Drifted

MOST_CELLS = 1 << 20


def test_all_ways_find_the_same_rows_and_a_wrong_one_is_noticed(tmp_path: Path) -> None:
    programs = kernelsearches.build(tmp_path, 4 * MOST_CELLS)
    made = suite.prepare_rows(synthetic(60), MOST_CELLS)
    results = Results("classifiers", {})
    spent = suite.measure_list(results, programs, "few", made, rounds=1, times=256)
    assert spent.keys() == {suite.VECTORS, suite.TUPLES, suite.CLASSES}
    assert {f"few_{word}_ns" for word in ("vectors", "tuples", "recursive")} == results.figures.keys()
    with kernelsearches.vectors(programs, made.packets, made.rows[1:]) as without_the_first, pytest.raises(Drifted):
        suite.check(without_the_first, made, "one row less")
