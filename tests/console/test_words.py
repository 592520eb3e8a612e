"""Numbers, units and times in words."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from api.console import words

NOON = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (1000, "1 k"),
        (1234, "1.23 k"),
        (999_600, "1 M"),
        (5_000_000_000, "5 G"),
        (0.25, "0.25"),
    ],
)
def test_short_numbers(number: float, text: str) -> None:
    assert words.short(number) == text


def test_numbers_and_names() -> None:
    assert words.count(20000) == "20\u202f000"
    assert words.of(1, "rule") == "1 rule"
    assert words.of(2, "set of packets", "sets of packets") == "2 sets of packets"
    assert words.bytes_text(1_250_000) == "1.25 MB"
    assert words.list_names(["a", "b"]) == "a, b"
    assert words.list_names(["a", "b", "c"], 2) == "a, b and 1 more"
    assert words.seconds(0.0453) == "45 ms"
    assert words.seconds(1.25) == "1.2 s"


@pytest.mark.parametrize(
    ("of_one", "text"),
    [(0, "0 %"), (1 / 3, "33.3 %"), (0.05, "5 %"), (1, "100 %"), (1e-9, "less than 0.1 %")],
)
def test_shares(of_one: float, text: str) -> None:
    assert words.share(of_one) == text


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("there is no tenant 'tenant'", "there is no project 'tenant'"),
        ("is not among the tenant's own prefixes", "is not among the project's own prefixes"),
        ("Tenants of 'a tenant'", "Projects of 'a tenant'"),
        ("nothing", "nothing"),
        ("or write it with `despite_expectations`", f"or tick “{words.DESPITE}” in the review"),
    ],
)
def test_owners_read_project(said: str, shown: str) -> None:
    assert words.for_owners(said) == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (5, "5 s ago"),
        (61, "1 min ago"),
        (7200, "2 h ago"),
        (86400, "1 day ago"),
        (200000, "2 days ago"),
        (-90, "in 1 min"),
    ],
)
def test_how_long_ago(seconds: float, text: str) -> None:
    assert words.ago(NOON - dt.timedelta(seconds=seconds), NOON) == text


def test_times_are_those_of_the_viewer() -> None:
    assert words.ago(None, NOON) == "never"
    assert words.moment(NOON, ZoneInfo("Europe/Berlin")) == "2026-07-01 14:00:00"
    assert words.moment(NOON, dt.UTC) == "2026-07-01 12:00:00"
    last = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
    assert words.moment(last, ZoneInfo("Europe/Berlin")) == "9999-12-31 23:59:59 UTC"
