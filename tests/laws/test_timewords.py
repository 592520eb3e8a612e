"""Times as people say them, in their own zone, and never in the past."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import BadInput
from orchestrator.policy.timewords import read_time

NOON = dt.datetime(2026, 11, 24, 12, 0, tzinfo=dt.UTC)  # a Tuesday; 13:00 in Berlin
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("in 2h", "2026-11-24T14:00"),
        ("In 2 Hours", "2026-11-24T14:00"),
        ("90 min", "2026-11-24T13:30"),
        ("in 1d 12h", "2026-11-26T00:00"),
        ("in 4w", "2026-12-22T12:00"),
        ("18:00", "2026-11-24T17:00"),
        ("12:30", "2026-11-25T11:30"),
        ("today 18:00", "2026-11-24T17:00"),
        ("tomorrow 18:00", "2026-11-25T17:00"),
        ("tomorrow", "2026-11-25T23:00"),
        ("friday", "2026-11-27T23:00"),
        ("tuesday 9:30", "2026-12-01T08:30"),
        ("2026-11-24", "2026-11-24T23:00"),
        ("2026-11-24 18:00", "2026-11-24T17:00"),
        ("2026-11-24T18:00:00Z", "2026-11-24T18:00"),
        ("2026-11-24T18:00:00+05:00", "2026-11-24T13:00"),
        ("2027-07-01", "2027-07-01T22:00"),
    ],
)
def test_a_time_is_read_as_it_is_meant(said: str, meant: str) -> None:
    assert read_time(said, NOON, BERLIN) == dt.datetime.fromisoformat(meant).replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("now", "said", "meant"),
    [
        ("2026-10-24T16:30", "tomorrow 18:00", "2026-10-25T17:00"),  # 25 hours and a half from now
        ("2026-10-24T16:30", "in 1d", "2026-10-25T16:30"),
        ("2026-10-24T16:30", "tomorrow", "2026-10-25T23:00"),
        ("2026-10-24T16:30", "tomorrow 02:30", "2026-10-25T00:30"),  # shown twice: the first of the two
        ("2026-10-25T00:45", "02:30", "2026-10-25T01:30"),  # the first is over, the second is to come
        ("2026-10-25T00:45", "today 02:30", "2026-10-25T01:30"),
        ("2026-10-25T01:10", "2026-10-25 02:30", "2026-10-25T01:30"),
        ("2026-10-25T01:40", "02:30", "2026-10-26T01:30"),
        ("2027-03-27T17:00", "tomorrow 18:00", "2027-03-28T16:00"),  # 23 hours from now
        ("2027-03-27T17:00", "tomorrow", "2027-03-28T22:00"),
        ("2027-03-28T00:30", "02:30", "2027-03-29T00:30"),  # the next time that the clock shows it
    ],
)
def test_a_night_in_which_clocks_are_changed_is_no_matter(now: str, said: str, meant: str) -> None:
    begun = dt.datetime.fromisoformat(now).replace(tzinfo=dt.UTC)
    assert read_time(said, begun, BERLIN) == dt.datetime.fromisoformat(meant).replace(tzinfo=dt.UTC)


@pytest.mark.parametrize("said", ["tomorrow 02:30", "2027-03-28 02:00", "2027-03-28T02:59"])
def test_a_time_that_no_clock_shows_is_refused(said: str) -> None:
    with pytest.raises(BadInput, match="no clock shows 02:"):
        read_time(said, dt.datetime(2027, 3, 27, 17, tzinfo=dt.UTC), BERLIN)


@pytest.mark.parametrize("said", ["9999-12-31T23:59:59-14:00", "9999-12-31", "in 999999w"])
def test_a_time_beyond_the_calendar_is_refused(said: str) -> None:
    with pytest.raises(BadInput, match="is not a time such as"):
        read_time(said, NOON, BERLIN)


ZONES = [
    "Europe/Berlin",
    "America/Santiago",
    "America/Havana",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kathmandu",
]


@given(
    st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2036, 1, 1)),
    st.times().map(lambda time: time.replace(second=0, microsecond=0)),
    st.sampled_from(ZONES).map(ZoneInfo),
)
def test_a_clock_shows_what_was_said_then_for_the_first_time(now: dt.datetime, clock: dt.time, zone: ZoneInfo) -> None:
    begun = now.replace(tzinfo=dt.UTC)
    found = read_time(f"{clock:%H:%M}", begun, zone)
    assert found.astimezone(zone).time() == clock
    minutes = range(1, int((found - begun).total_seconds() // 60))
    earlier = (begun.replace(second=0, microsecond=0) + dt.timedelta(minutes=each) for each in minutes)
    assert all(each.astimezone(zone).time() != clock for each in earlier)


@pytest.mark.parametrize(
    "said",
    ["2026-11-23", "2026-11-24 12:59", "today 13:00", "in 0h", "2026-11-24T11:59:59Z", "1999-12-31", "0001-01-01"],
)
def test_a_time_in_the_past_is_refused(said: str) -> None:
    with pytest.raises(BadInput, match="in the past"):
        read_time(said, NOON, BERLIN)


NO_TIMES = [
    *(
        "",
        " ",
        "soon",
        "in",
        "in 2 parsecs",
        "25:00",
        "tomorrow 24:01",
        "yesterday",
        "in -2h",
        "2026-02-30",
        "12:30:xx",
    ),
    *("in 999999w", "never", "\x00", "in ٢h", "x" * 10_000, "שעה", "9999-12-31"),
]


@pytest.mark.parametrize("said", NO_TIMES)
def test_what_is_no_time_is_refused(said: str) -> None:
    with pytest.raises(BadInput):
        read_time(said, NOON, BERLIN)


@given(st.text(max_size=40), st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2100, 1, 1)))
def test_whatever_is_said_it_is_to_come_or_refused(said: str, now: dt.datetime) -> None:
    try:
        found = read_time(said, now.replace(tzinfo=dt.UTC), dt.UTC)
    except BadInput:
        return
    assert found > now.replace(tzinfo=dt.UTC)


@given(st.datetimes(dt.datetime(2000, 1, 1), dt.datetime(2090, 1, 1)), st.integers(1, 10_000))
def test_a_span_is_as_long_as_it_says(now: dt.datetime, minutes: int) -> None:
    """Also over a night in which the clocks are put forward or back."""
    begun = now.replace(tzinfo=dt.UTC)
    assert read_time(f"in {minutes}m", begun, BERLIN) - begun == dt.timedelta(minutes=minutes)
