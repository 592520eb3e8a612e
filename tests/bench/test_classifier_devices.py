"""Suite classifier on a device: what is measured is right, and what is not measured is absent."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from models_world import pocl

from orchestrator.bench.classifier import devices
from orchestrator.bench.classifier.devices import Sizes, in_list_order, prepare, sample
from orchestrator.bench.results import Results
from orchestrator.classify.devices.models import Model
from orchestrator.errors import Drifted

TINY = Sizes(1, (16, 2048), (16,), (1, 48), (16,))


def test_everything_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "QUICK", TINY)
    monkeypatch.setattr(devices, "ITEMS", 16)
    monkeypatch.setattr(devices, "_RESIDENT", 1 << 10)
    monkeypatch.setattr(devices, "_GROUPED", 64)
    results = Results("classifier", {})
    told: list[str] = []
    devices.measure(results, [pocl()], "there is no GPU", quick=True, progress=lambda text, **_: told.append(text))
    assert results.absent == dict.fromkeys(devices._GPU_FIGURES, "there is no GPU")
    assert {line.y_label for line in results.series} == {
        "opencl_delay_by_rules_us", "opencl_delay_by_items_us", "opencl_batch_latency_us", "opencl_group_size_ns",
    }  # fmt: skip
    by_rules = [line for line in results.series if line.y_label == "opencl_delay_by_rules_us"]
    assert {line.name for line in by_rules} == {*(model.value for model in Model), "C, the list in order"}
    assert all(line.x == (16.0, 2048.0) for line in by_rules)
    assert all(figure.median > 0 for figure in results.figures.values())
    assert {f"opencl_{name}" for name in devices._GPU_FIGURES} < set(results.figures)
    assert json.dumps(results.document())
    assert len(told) == 3


def test_packets_are_of_all_rules() -> None:
    made = sample(100)
    assert len(np.unique(made.rows)) > 80
    assert np.array_equal(in_list_order(made).first(made.packets), made.rows)


def test_a_model_that_names_another_row_is_not_measured() -> None:
    made = sample(20)
    with pytest.raises(Drifted, match="bit-vectors: row"):
        prepare(pocl(), Model.BIT_VECTORS, replace(made, rows=made.rows ^ 1), 16, 48)
