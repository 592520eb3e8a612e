"""Suite classifier on a device: what is measured is right, and what is not measured is absent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from models_world import pocl

from orchestrator.bench.classifier import devices
from orchestrator.bench.classifier.devices import Sizes, in_list_order, prepare, sample
from orchestrator.bench.results import Results
from orchestrator.classify.devices import opencl
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
    energies = {f"opencl_{devices.word_of(model)}_nj" for model in devices._ITEM_A_PACKET}
    assert {name: why for name, why in results.absent.items() if name not in energies} == dict.fromkeys(
        devices._GPU_FIGURES, "there is no GPU"
    )
    assert energies <= {*results.absent, *results.figures}
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


def test_energy_a_packet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A counter that grows by three joules while a model runs once over 1,000 packets; one that begins anew; none."""
    results, counter, device = Results("classifier", {}), tmp_path / "energy_uj", pocl()
    monkeypatch.setattr(devices, "_ENERGY_S", 0.0)
    monkeypatch.setattr(devices, "_ITEM_A_PACKET", (Model.BIT_VECTORS,))
    monkeypatch.setattr(opencl, "PACKAGE_ENERGY", counter)
    devices.measure_energy(results, device, sample(20), 1_000)
    assert "does not tell" in results.absent["opencl_bit_vectors_nj"]
    real = devices.Run.resident
    for spent, wanted in ((3, {"opencl_bit_vectors_nj": 3e6}), (-3, {})):
        counter.write_text("4000000\n")

        def resident(run: devices.Run, told: str = f"{4 + spent}000000\n") -> None:
            real(run)
            counter.write_text(told)

        results = Results("classifier", {})
        with monkeypatch.context() as patch:
            patch.setattr(devices.Run, "resident", resident)
            devices.measure_energy(results, device, sample(20), 1_000)
        assert {name: figure.median for name, figure in results.figures.items()} == pytest.approx(wanted)


def test_packets_are_of_all_rules() -> None:
    made = sample(100)
    assert len(np.unique(made.rows)) > 80
    assert np.array_equal(in_list_order(made).first(made.packets), made.rows)


def test_a_model_that_names_another_row_is_not_measured() -> None:
    made = sample(20)
    with pytest.raises(Drifted, match="bit-vectors: row"):
        prepare(pocl(), Model.BIT_VECTORS, replace(made, rows=made.rows ^ 1), 16, 48)
