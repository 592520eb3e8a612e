"""Order keys, ranges of prefixes and secrets."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import FAR_POOL, prefixes

from orchestrator.store.sql.clock import Ages, SteadyClock
from orchestrator.store.sql.keys import (
    HIGHEST_KEY,
    LOWEST_KEY,
    digest_of,
    first_bytes,
    from_micros,
    keys_between,
    last_bytes,
    longest_increasing,
    new_secret,
    to_micros,
)

keys = st.integers(LOWEST_KEY, HIGHEST_KEY)


@settings(max_examples=examples(200))
@given(low=st.none() | keys, high=st.none() | keys, count=st.integers(1, 50))
def test_keys_lie_between_their_neighbours_in_order(low: int | None, high: int | None, count: int) -> None:
    if low is not None and high is not None and low > high:
        low, high = high, low
    found = keys_between(low, high, count)
    if found is None:
        near_the_end = low is not None and HIGHEST_KEY - low <= count
        near_the_start = high is not None and high - LOWEST_KEY <= count
        assert near_the_end or near_the_start or (low is not None and high is not None and high - low <= count)
        return
    assert len(found) == count
    fence = [*([] if low is None else [low]), *found, *([] if high is None else [high])]
    assert all(a < b for a, b in itertools.pairwise(fence))
    assert all(LOWEST_KEY <= key <= HIGHEST_KEY for key in found)


@settings(max_examples=examples(200))
@given(numbers=st.lists(st.integers(0, 12), max_size=9))
def test_the_longest_increasing_run_is_one_and_none_is_longer(numbers: list[int]) -> None:
    run = longest_increasing(numbers)
    assert list(run) == sorted(set(run))
    assert all(numbers[a] < numbers[b] for a, b in itertools.pairwise(run))
    longest = max(
        length
        for length in range(len(numbers) + 1)
        for chosen in itertools.combinations(numbers, length)
        if all(a < b for a, b in itertools.pairwise(chosen))
    )
    assert len(run) == longest


@settings(max_examples=examples(300))
@given(one=prefixes(FAR_POOL), other=prefixes(FAR_POOL))
def test_ranges_meet_exactly_where_prefixes_overlap(one: object, other: object) -> None:
    meet = first_bytes(one) <= last_bytes(other) and first_bytes(other) <= last_bytes(one)  # type: ignore[arg-type]
    assert meet is one.overlaps(other)  # type: ignore[attr-defined]


@given(st.datetimes(min_value=dt.datetime(1950, 1, 1), max_value=dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC)))
def test_times_come_back(time: dt.datetime) -> None:
    assert from_micros(to_micros(time)) == time


def test_secrets_are_long_marked_and_different() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(secret.startswith("aclflow_") and len(secret) == 8 + 43 for secret in secrets)
    assert len(digest_of("half \ud800")) == 32  # whatever a client sends has a digest


def test_the_clock_never_goes_back() -> None:
    times = [dt.datetime(2026, 1, 1, hour, tzinfo=dt.UTC) for hour in (1, 3, 2, 1, 4)]
    clock = SteadyClock(iter(times).__next__)
    seen = [clock() for _ in range(4)]
    assert seen == sorted(seen)
    assert seen[1] - seen[0] < dt.timedelta(seconds=5)  # three o'clock, then two and one: time goes on from three
    assert seen[0] == times[1]
    assert seen[3] == times[4]


def test_the_clock_counts_its_jumps_forward_and_nothing_else() -> None:
    start, ticks = dt.datetime(2026, 1, 1, tzinfo=dt.UTC), [0.0]
    wall = [start]
    clock = SteadyClock(lambda: wall[0], lambda: ticks[0])

    def at(seconds: float, says: float) -> dt.timedelta:
        ticks[0], wall[0] = seconds, start + dt.timedelta(seconds=says)
        assert clock() >= start + dt.timedelta(seconds=seconds)
        return clock.jumped

    assert at(7200, 7200) == dt.timedelta(), "nobody asked for two hours, as where the machine slept"
    assert at(7201, 7261) == dt.timedelta(), "a minute is a correction"
    assert at(7202, 7262 + 3600) == dt.timedelta(hours=1)
    assert at(7203, 7263) == dt.timedelta(hours=1), "it is set back"
    assert at(7204, 7264 + 3600) == dt.timedelta(hours=1), "it comes to where the time went on to meanwhile"
    assert at(7205, 7265 + 7200) == dt.timedelta(hours=2)


def test_an_age_leaves_out_what_the_clock_jumped_since() -> None:
    ticks = [100.0]
    ages = Ages(lambda: ticks[0])
    start, hour = dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.timedelta(hours=1)

    def at(seconds: float, jumped: dt.timedelta = dt.timedelta()) -> dt.datetime:
        ticks[0] = 100.0 + seconds
        return start + dt.timedelta(seconds=seconds) + jumped

    assert ages.since(start, at(5)) == 5
    assert ages.since(start, at(6, hour)) == pytest.approx(6)
    assert ages.since(at(6, hour), at(8, hour)) == pytest.approx(2), "what came after the jump is as old as it looks"
    assert ages.look(at(9, hour)) == 0
    assert ages.look(at(10, 2 * hour)) == pytest.approx(3600)
    assert ages.since(start, at(11, 2 * hour)) == pytest.approx(11)
    assert ages.since(at(20, 2 * hour), at(11, 2 * hour)) == 0
    assert ages.since(start, at(12, 2 * hour) - dt.timedelta(seconds=3)) == pytest.approx(9), (
        "a transaction that waited"
    )
    assert ages.look(at(13, 2 * hour)) == 0
