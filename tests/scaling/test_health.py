"""Sick at once, well only after a while, and every relapse counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.scaling.lifecycle import Health, look_again

STEADY_S, WINDOW_S = 5.0, 60.0
LOOKS = st.lists(st.tuples(st.floats(0.1, 4.0), st.booleans()), max_size=60)


def after(looks: list[tuple[float, bool]]) -> tuple[list[tuple[float, bool]], list[Health]]:
    now_s, health, times, found = 0.0, Health(), [], []
    for later_s, well in looks:
        now_s += later_s
        health = look_again(health, well, now_s, steady_s=STEADY_S, window_s=WINDOW_S)
        times.append((now_s, well))
        found.append(health)
    return times, found


@given(LOOKS)
def test_one_bad_look_is_enough_and_only_a_steady_while_mends(looks: list[tuple[float, bool]]) -> None:
    times, found = after(looks)
    for at, health in enumerate(found):
        if not times[at][1]:
            assert not health.is_well
        elif health.is_well and any(not well for _, well in times[: at + 1]):
            bad = max(index for index in range(at + 1) if not times[index][1])
            assert times[at][0] - times[bad + 1][0] >= STEADY_S


@given(LOOKS)
def test_relapses_are_the_turns_from_well_to_sick_within_the_window(looks: list[tuple[float, bool]]) -> None:
    times, found = after(looks)
    fell = [time for at, (time, _) in enumerate(times)
            if not found[at].is_well and (at == 0 or found[at - 1].is_well)]  # fmt: skip
    for at, health in enumerate(found):
        now_s = times[at][0]
        assert list(health.fell_sick_s) == [time for time in fell if time <= now_s and now_s - time <= WINDOW_S]


def test_how_long_it_is_sick_stops_growing_while_it_looks_well() -> None:
    health = look_again(Health(), False, 10.0, steady_s=STEADY_S, window_s=WINDOW_S)
    assert health.sick_for_s(10.0) > 0
    health = look_again(health, True, 12.0, steady_s=STEADY_S, window_s=WINDOW_S)
    assert (health.sick_for_s(16.0), health.is_well) == (2.0, False)
    assert look_again(health, True, 17.0, steady_s=STEADY_S, window_s=WINDOW_S).is_well
