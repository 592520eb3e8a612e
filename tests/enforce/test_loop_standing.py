"""What follows from what is known of a device: the pure half of the loop."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from enforce.programs import change, program, rule
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.enforce.standing import (
    LONGEST_TRAIL,
    NEVER,
    Act,
    Device,
    Goal,
    Rest,
    Role,
    Standing,
    Timing,
    next_step,
)

OLD, NEW = program([]), program([rule(1)], generation=2)
RENAMED = replace(OLD, generation=2)
DEVICE = cast("Device", object())
MASTER = Standing(device=DEVICE, role=Role.MASTER, goal=Goal(NEW), held=NEW, observe_at=100.0, count_at=50.0)

programs = st.sampled_from((None, OLD, NEW, RENAMED))
times = st.sampled_from((0.0, 5.0, 10.0, NEVER))
standings = st.builds(
    Standing,
    device=st.sampled_from((None, DEVICE)),
    role=st.sampled_from(Role),
    goal=programs.map(lambda each: Goal(each) if each else None),
    held=programs,
    observe_at=times,
    count_at=times,
    retry_at=times,
    failures=st.integers(0, 5),
    absent_at=times,
)


@pytest.mark.parametrize(
    ("standing", "step"),
    [
        (Standing(), Rest()),
        (Standing(absent_at=9.0), Rest(9.0)),
        (Standing(absent_at=1.0), Act.ABSENT),
        (Standing(device=DEVICE), Act.CLAIM),
        (Standing(device=DEVICE, role=Role.STANDBY, goal=Goal(NEW)), Rest()),
        (Standing(device=DEVICE, role=Role.MASTER), Rest()),
        (replace(MASTER, held=None), Act.OBSERVE),
        (replace(MASTER, held=None, retry_at=7.0), Rest(7.0)),
        (replace(MASTER, held=OLD), Act.ADVANCE),
        (replace(MASTER, held=OLD, goal=Goal(RENAMED)), Act.ADVANCE),
        (replace(MASTER, observe_at=1.0), Act.OBSERVE),
        (replace(MASTER, count_at=1.0), Act.COUNT),
        (replace(MASTER, count_at=1.0, held=OLD), Act.ADVANCE),
        (MASTER, Rest(50.0)),
        (replace(MASTER, count_at=150.0), Rest(100.0)),
    ],
)
def test_what_to_do_follows_from_what_is_known(standing: Standing, step: Act | Rest) -> None:
    assert next_step(standing, 5.0) == step


@given(standings, times)
def test_a_device_is_only_written_by_its_master_and_only_towards_a_goal(standing: Standing, now: float) -> None:
    step = next_step(standing, now)
    if step in (Act.OBSERVE, Act.ADVANCE):
        assert standing.device is not None
        assert standing.role is Role.MASTER
        assert standing.goal is not None
        assert now >= standing.retry_at


@given(standings, times)
def test_a_step_from_memory_is_only_taken_where_something_is_remembered(standing: Standing, now: float) -> None:
    if next_step(standing, now) in (Act.ADVANCE, Act.COUNT):
        assert standing.held is not None


@given(standings, times.filter(lambda now: now != NEVER))
def test_rest_never_ends_before_it_begins(standing: Standing, now: float) -> None:
    step = next_step(standing, now)
    assert isinstance(step, Act) or step.until > now


def test_nothing_is_left_undone_by_resting_for_ever() -> None:
    """The only standings without a time-out: nobody to talk to, nothing to aim at, somebody else leads."""
    for standing in (Standing(), Standing(DEVICE, Role.MASTER), replace(MASTER, role=Role.STANDBY)):
        assert next_step(standing, 1e9) == Rest()


def test_patience_doubles_up_to_its_limit() -> None:
    timing = Timing(retry_s=0.5, longest_retry_s=3.0)
    assert [timing.delay_s(failures) for failures in (1, 2, 3, 4, 40)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_goals_trail_is_bounded_and_ends_the_memory_of_a_start_from_disk() -> None:
    goal = Goal(OLD, remembered=True)
    for _ in range(LONGEST_TRAIL + 5):
        goal = goal.followed_by(NEW, change(OLD, NEW))
    assert len(goal.trail) == LONGEST_TRAIL
    assert not goal.remembered
