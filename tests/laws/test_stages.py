"""The stage clock: every second counts for exactly one stage."""

from __future__ import annotations

import threading
from contextvars import copy_context

from hypothesis import given
from hypothesis import strategies as st

from orchestrator import stages
from orchestrator.stages import StageClock, measuring

NAMES = st.sampled_from(("database", "compile", "commit"))


@given(st.lists(st.tuples(NAMES, st.integers(0, 1000))))
def test_laps_add_up_to_the_whole(laps: list[tuple[str, int]]) -> None:
    now = [100]
    clock = StageClock(lambda: now[0])
    for stage, spent in laps:
        now[0] += spent
        clock.lap(stage)
    assert sum(clock.seconds.values()) == now[0] - 100
    for name in {stage for stage, _ in laps}:
        assert clock.seconds[name] == sum(spent for stage, spent in laps if stage == name)


def test_parts_are_named_after_their_whole() -> None:
    with measuring() as clock:
        stages.add_parts("enforce", {"wire": 2.0})
        stages.add_parts("enforce", {"wire": 0.5})
    assert clock.seconds == {"enforce.wire": 2.5}


def test_a_thread_that_is_given_the_context_laps_the_same_clock() -> None:
    with measuring() as clock:
        thread = threading.Thread(target=copy_context().run, args=(stages.lap, "elsewhere"))
        thread.start()
        thread.join()
    assert list(clock.seconds) == ["elsewhere"]


def test_where_nobody_measures_laps_do_nothing() -> None:
    stages.lap("nothing")
    stages.add_parts("nothing", {"part": 1.0})
    with measuring() as outer, measuring() as inner:
        stages.lap("inner")
    assert (list(outer.seconds), list(inner.seconds)) == ([], ["inner"])
