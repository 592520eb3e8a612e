"""Waiting after refusals: never shorter than the service asks for, and spread over callers."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.client.backoff import FIRST_S, LONGEST_S, delay_s, shorten_wait
from orchestrator.errors import AclflowError, Busy, Unreachable

CHANCE = st.floats(0.0, 1.0)


@given(st.integers(1, 10_000), st.floats(0.0, 300.0), CHANCE)
def test_nobody_comes_back_before_the_time_that_the_service_names(failures: int, after_s: float, chance: float) -> None:
    waits_s = delay_s(failures, Busy("later", after_s=after_s), draw=lambda: chance)
    assert after_s <= waits_s <= max(2 * after_s, after_s + LONGEST_S)


@given(st.integers(1, 10_000), CHANCE)
def test_without_a_time_pauses_double_up_to_the_longest(failures: int, chance: float) -> None:
    pause_s = min(FIRST_S * 2 ** min(failures - 1, 30), LONGEST_S)
    assert pause_s / 2 <= delay_s(failures, Unreachable("gone"), draw=lambda: chance) <= pause_s


@pytest.mark.parametrize(
    ("failures", "error"),
    [(4, Unreachable("gone")), (1, Busy("starting", after_s=1)), (4, Busy("starting", after_s=1))],
)
def test_a_thousand_callers_that_fail_together_do_not_come_back_together(failures: int, error: AclflowError) -> None:
    draw = random.Random(22).random
    came_in_50_ms = Counter(int(delay_s(failures, error, draw=draw) / 0.05) for _ in range(1000))
    assert max(came_in_50_ms.values()) < 120


@given(st.floats(0.0, 1e6), CHANCE)
def test_a_period_is_never_longer_than_it_was(seconds: float, chance: float) -> None:
    assert 0.75 * seconds <= shorten_wait(seconds, lambda: chance) <= seconds
