"""What goes on for as long as the service runs goes on when its database was away."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from api import lookout
from api.context import Services
from api.streams import following
from orchestrator.control.feed import Feed, Feeding
from orchestrator.errors import Unreachable


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
        return [chunk async for chunk in following(feed, 7, tenant=None, heartbeat_s=0.0, check=lambda: None)]

    assert asyncio.run(followed()) == [b"retry: 1000\n\n", *[b":\n\n"] * 4]


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_lists_are_looked_at_ahead_after_the_database_was_away(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "_AGAIN_S", 0.0)
    feed = Failing(failures)
    asyncio.run(lookout.look_ahead(cast("Services", SimpleNamespace(feed=feed))))
    assert feed.answered == 2
