"""Loads replayed: nothing is lost where growth keeps up, and what is lost is told where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.errors import BadInput
from orchestrator.scaling.capacity import CapacityModel
from orchestrator.scaling.decide import Limits
from orchestrator.scaling.simulate import Scenario, simulate

MODEL = CapacityModel(version=1, base_s=1e-5, per_rule_s=0.0, per_octet_s=0.0, error=0.0, most_rules=2000)
LIMITS = Limits(most=10, target=0.7, cooldown_down_s=30, peak_s=30, ahead_s=8)


def ramp(top_pps: float, up_s: int, stay_s: int, down_s: int) -> np.ndarray:
    up, down = np.linspace(10_000, top_pps, up_s), np.linspace(top_pps, 10_000, down_s)
    return np.concatenate([up, np.full(stay_s, top_pps), down, np.full(120, 10_000.0)])


def test_a_ramp_is_met_without_a_loss_and_left_again() -> None:
    outcome = simulate(Scenario(ramp(500_000, 120, 60, 120)), MODEL, LIMITS)
    assert outcome.lost_share == 0
    assert outcome.size.max() == 8
    assert outcome.size[-1] == 1
    changes = np.sign(np.diff(outcome.size))
    turns = np.diff(changes[changes != 0]) != 0
    assert turns.sum() == 1  # up, then down, never to and fro


def test_a_jump_loses_what_comes_before_the_new_ones_serve() -> None:
    jump = np.concatenate([np.full(60, 10_000.0), np.full(120, 300_000.0)])
    outcome = simulate(Scenario(jump), MODEL, LIMITS)
    lossy = np.flatnonzero(outcome.lost_pps)
    assert lossy.min() >= 60
    assert lossy.max() < 80
    assert 0 < outcome.lost_share < 0.1


def test_vnfs_that_fail_open_the_storm_breaker() -> None:
    scenario = Scenario(np.full(600, 300_000.0), failing=frozenset(range(100)))
    outcome = simulate(scenario, MODEL, LIMITS)
    assert outcome.serving.max() == 1
    asked = sum(decision.size - 1 for _, decision in outcome.decisions)
    assert asked <= LIMITS.most_failures + LIMITS.step_up
    assert outcome.lost_share == pytest.approx(2 / 3, abs=0.01)


@settings(max_examples=examples(30))
@given(st.lists(st.floats(0, 2e6), min_size=1, max_size=60), st.integers(1, 5))
def test_whatever_comes_is_carried_or_lost_and_sizes_stay_in_their_limits(loads: list[float], start: int) -> None:
    scenario = Scenario(np.repeat(loads, 5).astype(np.float64), start=start)
    outcome = simulate(scenario, MODEL, LIMITS)
    assert np.allclose(outcome.carried_pps + outcome.lost_pps, scenario.pps)
    assert (outcome.carried_pps <= outcome.capacity_pps + 1e-6).all()
    assert (outcome.lost_pps >= 0).all()
    assert outcome.size.max() <= LIMITS.most
    assert (outcome.serving <= outcome.size).all()
    again = simulate(scenario, MODEL, LIMITS)
    assert (again.size == outcome.size).all()
    assert again.decisions == outcome.decisions


def test_what_is_no_load_is_refused() -> None:
    with pytest.raises(BadInput, match="none below zero"):
        Scenario(np.array([1.0, -1.0]))
    with pytest.raises(BadInput, match="do not go together"):
        Scenario(np.array([1.0]), step_s=10.0, interval_s=5.0)
