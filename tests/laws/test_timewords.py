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
        ("2027-03-28 02:30", "2027-03-28T01:30"),  # a time that Berlin's clocks leap over
    ],
)
def test_a_time_is_read_as_it_is_meant(said: str, meant: str) -> None:
    assert read_time(said, NOON, BERLIN) == dt.datetime.fromisoformat(meant).replace(tzinfo=dt.UTC)


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
