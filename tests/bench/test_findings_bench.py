"""The figures of findings and differences: what is changed for them, and what is said where the data is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.bench.control_plane import suite
from orchestrator.bench.results import Figure, Results
from orchestrator.bench.rulesets import synthetic
from orchestrator.errors import Unreachable


def test_ten_rules_are_turned_round_and_others_for_every_seed() -> None:
    acl = synthetic(200)
    turned = [
        [old.id for old, new in zip(acl.rules, suite.change_rules(acl, seed).rules, strict=True) if old != new]
        for seed in (1, 2)
    ]
    assert [len(each) for each in turned] == [10, 10]
    assert turned[0] != turned[1]
    assert suite.change_rules(acl, 1) == suite.change_rules(acl, 1)


@pytest.mark.parametrize("there", [True, False])
def test_every_figure_is_measured_or_absent_with_its_reason(
    there: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(suite, "synthetic", lambda _: synthetic(50))
    monkeypatch.setenv("ACLFLOW_DATA", str(tmp_path))
    if there:
        monkeypatch.setattr(suite, "_read_lists", lambda: [("small", synthetic(50))])
    results = Results("findings", {})
    suite.measure_findings(results, rounds=2, progress=lambda _: None)
    assert "findings_100k_s" in results.figures
    of = results.figures if there else results.absent
    assert {"findings_10k_s", "difference_10k_ten_s"} <= of.keys()


def test_a_part_that_fails_leaves_its_figure_out_and_what_it_had() -> None:
    results = Results("parts", {})

    def fail() -> None:
        results.figures["some_ms"] = Figure.of([1.0], "ms")
        raise Unreachable("a switch has gone")

    suite.measure_part(results, "main_ms", fail)
    assert results.absent == {"main_ms": "a switch has gone"}
    assert "some_ms" in results.figures
