"""Decisions: within limits, in steps, never up and down, and always with the reason."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import BadInput
from orchestrator.scaling.capacity import CapacityModel
from orchestrator.scaling.decide import Fleet, History, Limits, Load, Sample, decide, forecast, needed, slope

MODEL = CapacityModel(version=1, base_s=1e-5, per_rule_s=0.0, per_octet_s=0.0, error=0.0, most_rules=2000)
"""One VNF carries 100 kpps."""
LIMITS = Limits(fewest=1, most=10, target=0.5, hysteresis=0.2, step_up=3, cooldown_up_s=5, cooldown_down_s=60)
NOW = 1000.0
NOTHING = History()

LOADS = st.floats(0, 2e6)
FLEETS = st.builds(Fleet, st.integers(0, 12), st.integers(0, 4), st.integers(0, 3))
TIMES = st.lists(st.floats(0, NOW), max_size=6).map(tuple)
HISTORIES = st.builds(History, TIMES, TIMES, TIMES)


def steady(pps: float, rules: int = 100) -> Load:
    return Load(tuple(Sample(NOW - 10 * before, pps) for before in range(20, -1, -1)), 512.0, rules)


@given(LOADS, FLEETS, HISTORIES)
def test_it_stays_within_the_limits_and_goes_in_steps(pps: float, fleet: Fleet, history: History) -> None:
    decision = decide(steady(pps), fleet, MODEL, LIMITS, history, NOW)
    assert decision.because
    if decision.size == fleet.size:
        return
    assert decision.size >= LIMITS.fewest
    if decision.size > fleet.size:
        assert decision.size <= LIMITS.most
        assert decision.size - fleet.size <= LIMITS.step_up or fleet.size < LIMITS.fewest
    else:
        assert fleet.size - decision.size <= LIMITS.step_down
        assert not fleet.coming


@given(LOADS, LOADS, FLEETS, HISTORIES)
def test_more_load_never_asks_for_fewer(one: float, other: float, fleet: Fleet, history: History) -> None:
    low, high = sorted((one, other))
    sizes = [decide(steady(pps), fleet, MODEL, LIMITS, history, NOW).size for pps in (low, high)]
    assert sizes[0] <= sizes[1]


@given(LOADS, st.integers(1, 10))
def test_a_steady_load_is_met_once_and_then_left_alone(pps: float, start: int) -> None:
    fleet, sizes = Fleet(start), [start]
    for _ in range(30):
        decision = decide(steady(pps), fleet, MODEL, LIMITS, NOTHING, NOW)
        fleet = Fleet(decision.size)
        sizes.append(decision.size)
    assert sizes[-1] == sizes[-2]
    assert sizes == sorted(sizes) or sizes == sorted(sizes, reverse=True)
    assert min(LIMITS.most, math.ceil(pps / 50_000 - 1e-6)) <= sizes[-1]


@given(st.floats(0, 5e5), st.floats(0, 5e5))
def test_it_never_shrinks_below_what_the_highest_load_of_late_needs(now_pps: float, peak_pps: float) -> None:
    samples = (Sample(NOW - 200, peak_pps), *(Sample(NOW - before, now_pps) for before in range(50, -1, -10)))
    decision = decide(Load(samples, 512.0, 0), Fleet(9), MODEL, LIMITS, NOTHING, NOW)
    assert decision.size * 50_000 * (1 + 1e-9) >= min(max(now_pps, peak_pps), 450_000)


def test_it_grows_before_a_rising_load_arrives() -> None:
    """10 kpps a second for 60 s: in 10 s there will be 100 kpps more than now."""
    samples = tuple(Sample(NOW - before, 400_000 - 10_000 * before) for before in range(40, -1, -5))
    limits = replace(LIMITS, most=20, step_up=20)
    decision = decide(Load(samples, 512.0, 0), Fleet(8), MODEL, limits, NOTHING, NOW)
    assert decision.size == 10
    assert decision.because == "500 kpps expected in 10 s, 100 kpps each with 0 rules: 10 at 50%"


def test_a_list_that_grows_asks_for_more_though_the_load_does_not() -> None:
    model = replace(MODEL, per_rule_s=1e-8)
    sizes = [decide(steady(100_000, rules), Fleet(2), model, LIMITS, NOTHING, NOW).size for rules in (0, 1000)]
    assert sizes == [2, 4]


def test_a_model_that_is_off_by_a_fifth_is_not_trusted_with_the_last_fifth() -> None:
    assert decide(steady(100_000), Fleet(1), replace(MODEL, error=0.2), LIMITS, NOTHING, NOW).size == 3


@pytest.mark.parametrize(
    ("history", "because"),
    [
        (History(failed_s=(NOW - 1, NOW - 2, NOW - 3)), "storm breaker: 3 VNFs failed within 600 s, 3 are allowed"),
        (History(grew_s=tuple(NOW - 20 - n for n in range(12))), "storm breaker: 12 VNFs were created"),
        (History(grew_s=(NOW - 2,)), "grew 2 s ago, waiting for 5 s"),
    ],
)
def test_what_keeps_it_from_growing(history: History, because: str) -> None:
    decision = decide(steady(400_000), Fleet(2), MODEL, LIMITS, history, NOW)
    assert decision.size == 2
    assert decision.because.startswith(because)


@pytest.mark.parametrize(
    ("fleet", "history", "because"),
    [
        (Fleet(5), History(shrank_s=(NOW - 30,)), "changed 30 s ago, waiting for 60 s"),
        (Fleet(5), History(grew_s=(NOW - 59,)), "changed 59 s ago, waiting for 60 s"),
        (Fleet(4, coming=1), NOTHING, "1 VNFs are coming and 0 leaving"),
        (Fleet(5, leaving=2), NOTHING, "0 VNFs are coming and 2 leaving"),
        (Fleet(1), NOTHING, "1 kpps at most of late keeps 1 busy enough"),
    ],
)
def test_what_keeps_it_from_shrinking(fleet: Fleet, history: History, because: str) -> None:
    decision = decide(steady(1000), fleet, MODEL, LIMITS, history, NOW)
    assert decision.size == fleet.size
    assert decision.because.startswith(because)


def test_an_old_storm_is_over() -> None:
    history = History(failed_s=(NOW - 601,) * 9)
    assert decide(steady(400_000), Fleet(2), MODEL, LIMITS, history, NOW).size == 5


def test_an_empty_fleet_is_filled_at_once() -> None:
    limits = replace(LIMITS, fewest=4, step_up=1)
    assert decide(steady(0), Fleet(0), MODEL, limits, History(grew_s=(NOW - 1,)), NOW).size == 4


def test_the_papers_estimate() -> None:
    """FW-VNF, section IV: one VNF of 2000 rules carries about 180 Mb/s of 1024-byte packets, so 900 Mb/s need five."""
    pps = 180e6 / 8 / 1024
    model = CapacityModel(1, 1 / pps - 2000 * 4.3e-9, 4.3e-9, 0.0, None, 2000)
    assert [needed(rate * 1e6 / 8 / 1024, model, 2000, 1024) for rate in (100, 180, 360, 900)] == [1, 1, 2, 5]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fewest", -1), ("most", 0), ("target", 0.0), ("target", 1.1), ("hysteresis", 1.0), ("step_up", 0),
        ("step_down", 0), ("cooldown_up_s", -1.0), ("ahead_s", math.inf), ("most_failures", 0), ("peak_s", math.nan),
    ],
)  # fmt: skip
def test_wrong_limits_are_refused_with_their_place(field: str, value: float) -> None:
    with pytest.raises(BadInput) as refused:
        replace(LIMITS, **{field: value})  # type: ignore[arg-type]
    assert refused.value.place == field


# ---------------------------------------------------------------------------------------------------------- forecasts


@given(st.floats(-1000, 1000), st.floats(0, 1e6), st.integers(4, 12))
def test_a_line_is_drawn_on(rise: float, start: float, count: int) -> None:
    samples = [Sample(float(n), start + rise * n) for n in range(count)]
    assert slope(samples) == pytest.approx(rise, abs=1e-4)
    last = samples[-1].pps
    assert forecast(samples, count - 1.0, 10.0) == pytest.approx(max(last, last + 10 * rise), abs=1e-2)


def test_a_single_burst_does_not_turn_it() -> None:
    samples = [Sample(float(n), 1000.0 if n != 6 else 1e6) for n in range(12)]
    assert slope(samples) == 0
    assert forecast(samples, 11.0, 60.0) == 1000


def test_too_little_was_seen_to_tell() -> None:
    assert forecast([], 0.0, 10.0) == 0
    assert slope([Sample(0, 1), Sample(1, 100), Sample(2, 1000)]) == 0
    assert slope([Sample(5, 1), Sample(5, 100), Sample(5, 7), Sample(5, 8)]) == 0
