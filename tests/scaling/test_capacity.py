"""The capacity model: it finds the times behind the measurements, and knows how far it can be trusted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import BadInput
from orchestrator.scaling.capacity import CapacityModel, Measured, fit

TIMES = st.tuples(
    st.floats(1e-6, 2e-5),
    st.one_of(st.just(0.0), st.floats(1e-9, 1e-7)),
    st.one_of(st.just(0.0), st.floats(1e-10, 1e-8)),
)
GRID = [(rules, octets) for rules in (0, 250, 1000, 2000) for octets in (64, 512, 1500)]


def measured(times: tuple[float, float, float], off: float = 0.0) -> list[Measured]:
    """What a VNF with these times carries; every other measurement is `off` too high, the others as much too low."""
    base, per_rule, per_octet = times
    return [
        Measured(rules, octets, (1 + off * (-1) ** index) / (base + per_rule * rules + per_octet * octets))
        for index, (rules, octets) in enumerate(GRID)
    ]


@given(TIMES)
def test_exact_measurements_give_the_times_back(times: tuple[float, float, float]) -> None:
    model = fit(measured(times), version=3)
    assert model.base_s == pytest.approx(times[0], rel=1e-3)
    for rules, octets in GRID:
        true = 1 / (times[0] + times[1] * rules + times[2] * octets)
        assert model.rate_pps(rules, octets) == pytest.approx(true, rel=1e-3)
    assert model.error is not None
    assert model.error < 1e-3
    assert (model.version, model.most_rules) == (3, 2000)


@given(TIMES, st.floats(0.01, 0.2))
def test_the_error_tells_how_far_off_predictions_are(times: tuple[float, float, float], off: float) -> None:
    model = fit(measured(times, off), version=1)
    assert model.error is not None
    assert off / 2 < model.error < 4 * off
    assert model.safe_rate_pps(1000, 512) < model.rate_pps(1000, 512)


@given(
    st.lists(
        st.builds(Measured, st.integers(0, 20000), st.integers(1, 9000), st.floats(1, 1e7)), min_size=1, max_size=8
    )
)
def test_whatever_was_measured_no_time_is_below_zero(some: list[Measured]) -> None:
    model = fit(some, version=1)
    assert min(model.base_s, model.per_rule_s, model.per_octet_s) >= 0
    assert model.rate_pps(0, 64) >= model.rate_pps(100, 64) >= model.rate_pps(100, 9000) > 0


def test_more_rules_and_longer_packets_never_make_it_faster() -> None:
    model = CapacityModel(1, 1e-5, 5e-9, 1e-9, None, 2000)
    assert model.rate_pps(10, 64) > model.rate_pps(20, 64) > model.rate_pps(20, 128)
    assert not model.is_beyond(2000)
    assert model.is_beyond(2001)


@pytest.mark.parametrize(("rules", "octets", "pps"), [(-1, 64, 1.0), (0, 0, 1.0), (0, 64, 0.0), (0, 64, float("inf"))])
def test_what_is_no_measurement_is_refused(rules: int, octets: int, pps: float) -> None:
    with pytest.raises(BadInput):
        Measured(rules, octets, pps)


def test_without_measurements_there_is_no_model() -> None:
    with pytest.raises(BadInput, match="without a measurement"):
        fit([], version=1)
    with pytest.raises(BadInput):
        CapacityModel(1, -1e-6, 0, 0, None, 0)
