"""Events as people read them: details in words, times in the viewer's zone, nothing of how a program writes values."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from api.console.pages.events import event_text
from orchestrator.wire.events import Event

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ({"pop": "berlin", "places": {"mail": "fs1", "video": "fs2"}}, "(pop berlin, places mail: fs1, video: fs2)"),
        ({"expires": "2026-07-01T12:00:00.700048+00:00"}, "(expires 2026-07-01 14:00:00)"),
        ({"rules": ["a", "b"], "was_serving": True}, "(rules a, b, was serving yes)"),
        ({"version": 7, "reason": None, "note": ""}, "(version 7)"),
        ({"day": "2026-07-01"}, "(day 2026-07-01)"),
        ({}, ""),
    ],
)
def test_details_are_told_in_words(detail: dict[str, Any], said: str) -> None:
    told = {**detail, "by": "admin:1", "by_name": "Ann"}
    event = Event(1, dt.datetime(2026, 7, 1, tzinfo=dt.UTC), "somebody.did", "shop", told)
    assert event_text(event, BERLIN) == f"shop: somebody.did{' ' + said if said else ''}; by Ann (admin 1)"


@pytest.mark.parametrize(
    ("author", "said"),
    [({"by": "member:3"}, "; by member 3"), ({"by": "heat"}, "; by heat"), ({}, "")],
)
def test_an_author_without_a_name_is_told_by_role_and_token(author: dict[str, str], said: str) -> None:
    event = Event(1, dt.datetime(2026, 7, 1, tzinfo=dt.UTC), "somebody.did", "shop", author)
    assert event_text(event, BERLIN) == f"shop: somebody.did{said}"
