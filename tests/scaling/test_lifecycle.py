"""The life of a VNF: only forwards, never to traffic without proof, to an end in time, blind to what is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import BadInput
from orchestrator.scaling.lifecycle import (
    CARRYING,
    COMING,
    ENDING,
    NEXT,
    MemberState,
    Patience,
    Seen,
    Sight,
    Step,
    Trial,
    step,
)

S = MemberState
PATIENCE = Patience()
STATES = st.sampled_from(MemberState)
TIMES = st.floats(0, 1e4)
SEEN = st.builds(
    Seen,
    st.sampled_from(Sight),
    st.booleans(),
    st.booleans(),
    st.sampled_from(Trial),
    st.booleans(),
    st.booleans(),
    st.sampled_from((0.0, 1.0, 9.9, 10.0, 100.0)),
    st.integers(0, 6),
    st.booleans(),
    st.booleans(),
)
WELL = {
    S.REQUESTED: Seen(Sight.COMING),
    S.BUILDING: Seen(Sight.RUNNING, enrolled=True),
    S.ENROLLED: Seen(Sight.RUNNING, enrolled=True, holds=True),
    S.LOADED: Seen(Sight.RUNNING, enrolled=True, holds=True, trial=Trial.PASSED),
    S.PROVEN: Seen(Sight.RUNNING, True, True, Trial.PASSED, spread=True),
    S.DRAINING: Seen(Sight.RUNNING, True, True, Trial.PASSED, spread=True, quiet=True),
    S.LEAVING: Seen(Sight.ABSENT),
    S.FAILED: Seen(Sight.ABSENT),
}
"""What brings each state to its end as it should."""


@given(STATES, SEEN, TIMES)
def test_every_step_is_one_of_the_drawing_and_says_why(state: S, seen: Seen, for_s: float) -> None:
    found = step(state, seen, for_s, PATIENCE)
    if found is not None:
        assert found.state in NEXT[state]
        assert found.because


def test_no_state_comes_twice() -> None:
    """Whatever is seen: the drawing has no circle, and its only end is `gone`."""
    order = (*COMING, *CARRYING, *ENDING, S.GONE)
    assert set(order) == set(MemberState)
    for state, following in NEXT.items():
        assert all(order.index(each) > order.index(state) for each in following)
        assert bool(following) == (state is not S.GONE)


@given(STATES, SEEN, TIMES)
def test_traffic_only_after_proof_and_a_switch_that_was_read_back(state: S, seen: Seen, for_s: float) -> None:
    found = step(state, seen, for_s, PATIENCE)
    if found is not None and found.state is S.PROVEN:
        assert seen.trial is Trial.PASSED
    if found is not None and found.state is S.SERVING:
        assert state is S.PROVEN
        assert seen.spread
        assert not seen.sick_s


@given(STATES, SEEN, TIMES)
def test_gone_only_when_the_cloud_says_so(state: S, seen: Seen, for_s: float) -> None:
    found = step(state, seen, for_s, PATIENCE)
    assert (found is not None and found.state is S.GONE) == (state in ENDING and seen.sight is Sight.ABSENT)


@given(STATES, SEEN, TIMES)
def test_a_cloud_that_does_not_answer_changes_nothing(state: S, seen: Seen, for_s: float) -> None:
    """What it is next would be the same if the cloud said that it runs, as long as it is not about the cloud itself."""
    blind, running = (
        step(state, replace(seen, sight=sight, words="", trouble=""), for_s, PATIENCE)
        for sight in (Sight.UNKNOWN, Sight.RUNNING)
    )
    if state is S.REQUESTED:
        assert blind is None or for_s >= PATIENCE.order_s
    else:
        assert blind == running


@given(SEEN)
def test_nothing_waits_for_ever(seen: Seen) -> None:
    for state in (*COMING, S.DRAINING):
        assert step(state, seen, 1e4, PATIENCE) is not None


@given(SEEN)
def test_who_serves_and_is_well_stays_whatever_the_time(seen: Seen) -> None:
    well = Seen(Sight.RUNNING, True, True, seen.trial, seen.spread, seen.quiet)
    assert step(S.SERVING, well, 1e9, PATIENCE) is None


def test_a_good_life() -> None:
    state, told = S.REQUESTED, []
    while state is not S.GONE:
        if state is S.SERVING:
            state = S.DRAINING  # nothing but a decision ends it
            continue
        found = step(state, WELL[state], 0.1, PATIENCE)
        assert found is not None
        state = found.state
        told.append(found)
    assert [each.state for each in told] == [S.BUILDING, S.ENROLLED, S.LOADED, S.PROVEN, S.SERVING, S.LEAVING, S.GONE]


@given(SEEN, TIMES)
def test_the_last_that_serves_is_not_given_up_for_being_silent(seen: Seen, for_s: float) -> None:
    last = replace(seen, sight=Sight.RUNNING, is_last=True)
    assert step(S.SERVING, last, for_s, PATIENCE) is None


@given(STATES, SEEN, TIMES)
def test_one_that_its_cloud_takes_away_by_itself_is_drained_and_has_not_failed(
    state: S, seen: Seen, for_s: float
) -> None:
    taken = replace(seen, autonomous=True, sight=Sight.LEAVING)
    found, gone = (step(state, each, for_s, PATIENCE) for each in (taken, replace(taken, sight=Sight.ABSENT)))
    assert not any(each is not None and each.state is S.FAILED for each in (found, gone))
    if state is S.SERVING:
        assert found == gone == Step(S.DRAINING, "its cloud takes it away")
    if state is S.DRAINING:
        assert (found is None) == (not (seen.spread and seen.quiet) and for_s < PATIENCE.drain_s)
        assert gone is not None
        assert gone.state is S.LEAVING


FAILURES = [
    (S.REQUESTED, Seen(Sight.ABSENT, words="over the quota of 10 instances"), 300.0, "over the quota of 10 inst"),
    (S.REQUESTED, Seen(Sight.FAILED, words="no valid host"), 1.0, "the cloud could not build it: no valid host"),
    (S.BUILDING, Seen(Sight.RUNNING), 600.0, "its agent never enrolled (waited 600 s)"),
    (
        S.BUILDING,
        Seen(Sight.UNKNOWN, words="it runs"),
        600.0,
        "its agent never enrolled; of its machine the cloud said last: it runs (waited 600 s)",
    ),
    (S.BUILDING, Seen(Sight.ABSENT), 1.0, "the cloud has it no more, and nobody here removed it"),
    (S.ENROLLED, Seen(Sight.RUNNING, True, trouble="nft: no such set"), 60.0, "nft: no such set (waited 60 s)"),
    (S.LOADED, Seen(Sight.RUNNING, True, True, Trial.FAILED, trouble="a refused packet came through"), 1.0,
     "the probe failed: a refused packet came through"),
    (S.LOADED, Seen(Sight.RUNNING, True, True), 30.0, "it never answered the probe (waited 30 s)"),
    (S.SERVING, Seen(Sight.RUNNING, True, True, sick_s=10.0), 500.0, "it has not been well for 10 s: it is silent"),
    (S.SERVING, Seen(Sight.RUNNING, True, True, relapses=4), 500.0, "it fell sick 4 times within 120 s"),
    (S.DRAINING, Seen(Sight.ABSENT), 5.0, "the cloud has it no more, and nobody here removed it"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "seen", "for_s", "words"), FAILURES)
def test_what_fails_says_what_happened(state: S, seen: Seen, for_s: float, words: str) -> None:
    found = step(state, seen, for_s, PATIENCE)
    assert found is not None
    assert found.state is S.FAILED
    assert found.because.startswith(words)


def test_a_vnf_that_still_carries_something_goes_when_its_time_is_over() -> None:
    busy = Seen(Sight.RUNNING, True, True, spread=True)
    assert step(S.DRAINING, busy, 59.0, PATIENCE) is None
    found = step(S.DRAINING, busy, 60.0, PATIENCE)
    assert found == Step(S.LEAVING, "it still carries something after 60 s, which was as long as allowed")


def test_patience_is_above_zero() -> None:
    with pytest.raises(BadInput, match="build_s: 0 is not a number above zero"):
        Patience(build_s=0)
