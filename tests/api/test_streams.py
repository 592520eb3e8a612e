"""What goes on for as long as the service runs goes on when its database was away."""

from __future__ import annotations

import asyncio
import datetime as dt
from types import SimpleNamespace
from typing import cast

import pytest

from api import inspection, streams
from api.context import Services
from api.streams import Validity, following
from orchestrator.control.feed import Feed, Feeding
from orchestrator.errors import NotFound, Unauthenticated, Unreachable
from orchestrator.store.records import Event

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


class Failing:
    """A feed that cannot read its store the first so many times, and then closes."""

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.answered = 0

    @property
    def closed(self) -> bool:
        return self.answered > 1

    async def newest(self) -> int:
        self._fail()
        return 7

    async def after(self, _event_id: int, _wait_s: float, **_more: object) -> Feeding | None:
        self._fail()
        self.answered += 1
        return None

    def _fail(self) -> None:
        self._failures -= 1
        if self._failures >= 0:
            raise Unreachable("the database is away")


def test_who_follows_events_is_kept_while_the_database_is_away() -> None:
    async def followed() -> list[bytes]:
        feed = cast("Feed", Failing(2))
        return [
            chunk
            async for chunk in following(feed, 7, tenant=None, heartbeat_s=0.0, validity=Validity(lambda: None, 0.0))
        ]

    assert asyncio.run(followed()) == [b"retry: 1000\n\n", *[b":\n\n"] * 4]


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_lists_are_looked_at_ahead_after_the_database_was_away(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "_AGAIN_S", 0.0)
    feed = Failing(failures)
    asyncio.run(inspection.look_ahead(cast("Services", SimpleNamespace(feed=feed))))
    assert feed.answered == 2


def test_a_list_that_cannot_be_looked_at_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = {"blue": ValueError("a fault of ours"), "green": NotFound("it is gone")}
    looked = []

    def length(_services: Services, tenant: str) -> int:
        if tenant in faults:
            raise faults[tenant]
        return inspection.LONG

    changes = [Event(number, START, "rule.inserted", name, {}) for number, name in enumerate((*faults, "red"))]

    class Feeds(Failing):
        async def after(self, _event_id: int, _wait_s: float, **_more: object) -> Feeding | None:
            self.answered += changes == []
            fed = Feeding(tuple(changes), 9, missed=False) if changes else None
            changes.clear()
            return fed

    monkeypatch.setattr(inspection, "_count_rules", length)
    monkeypatch.setattr(inspection, "standing", lambda _services, tenant, _parts: looked.append(tenant))
    asyncio.run(inspection.look_ahead(cast("Services", SimpleNamespace(feed=Feeds(0)))))
    assert looked == ["red"]


class Revoked:
    """What a stream's bearer is, by a clock of the test's own: known at first, then not."""

    def __init__(self) -> None:
        self.is_known, self.store_answers, self.looks = True, True, 0

    def look(self) -> None:
        self.looks += 1
        if not self.store_answers:
            raise Unreachable("the database is away")
        if not self.is_known:
            raise Unauthenticated("revoked")


def test_a_stream_ends_with_the_first_look_and_looks_are_a_while_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=lambda: now[0]))
    bearer = Revoked()
    validity = Validity(bearer.look, 1.0)

    def holds_at(time_s: float) -> bool:
        now[0] = time_s
        return asyncio.run(validity.holds())

    assert all(map(holds_at, (0.5, 0.9, 1.0, 1.5)))
    assert bearer.looks == 1
    bearer.is_known = False
    assert holds_at(1.9), "nobody has looked"
    assert not holds_at(2.0)


def test_a_store_that_does_not_answer_is_asked_a_while_apart_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=lambda: now[0]))
    bearer = Revoked()
    bearer.store_answers = False
    validity = Validity(bearer.look, 1.0)
    for time_s, looks in ((0.9, 0), (1.0, 1), (1.1, 1), (1.9, 1), (2.0, 2)):
        now[0] = time_s
        assert asyncio.run(validity.holds())
        assert bearer.looks == looks
    bearer.store_answers, bearer.is_known, now[0] = True, False, 3.0
    assert not asyncio.run(validity.holds())
