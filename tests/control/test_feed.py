"""The events' tail: who follows is told when events were forgotten that the tail has not seen either, and is given what
comes one after the other at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE_S

from orchestrator.control.feed import GATHER_S, PAGE, TAIL, Feed
from orchestrator.errors import Busy
from orchestrator.store import StoreSettings, open_store
from orchestrator.store.events import Events
from orchestrator.store.records import EventPage


def test_a_tail_that_fell_behind_the_log_says_that_events_are_missing(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", settings=StoreSettings(events_kept=100))
    feed = Feed(store)
    try:
        with store.write() as unit:
            unit.domains.create("pop")
            unit.events.append("domain.created", "pop", {})
            first = unit.events.last_id()
        seen = asyncio.run(feed.after(first - 1, 0.0))
        with store.write() as unit:
            for _ in range(450):
                unit.events.append("domain.changed", "pop", {})
        fed = asyncio.run(feed.after(first, 0.0))
    finally:
        feed.close()
        store.close()
    assert seen is not None
    assert fed is not None
    assert (seen.missed, fed.missed) == (False, True)
    assert fed.events[0].id > first + 1


class Seen:
    """An event of the tail, which counts how often all of them are looked at."""

    looks = 0

    def __init__(self, number: int) -> None:
        self.number, self.tenant = number, number % 2

    @property
    def id(self) -> int:
        Seen.looks += 1
        return self.number


def test_who_is_nearly_up_to_date_is_given_the_end_of_the_tail_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand may follow, and each event wakes all of them."""
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    feed = Feed(store)
    read = Events.since

    def since(events: Events, event_id: int, **asked: int | None) -> EventPage:
        page = read(events, event_id, **asked)  # type: ignore[arg-type]
        return replace(page, events=tuple(Seen(each.id) for each in page.events))  # type: ignore[misc]

    async def story() -> None:
        start = await feed.newest()
        await asyncio.to_thread(log)
        end = start + TAIL
        assert await feed.newest() == end
        Seen.looks = 0
        page = await feed.after(end - 4, PATIENCE_S)
        assert Seen.looks < 10
        assert page is not None
        assert [each.id for each in page.events] == [end - 3, end - 2, end - 1, end]
        page = await feed.after(end - 4, PATIENCE_S, tenant=end % 2)
        assert page is not None
        assert [each.id for each in page.events] == [end - 2, end]
        page = await feed.after(start, PATIENCE_S)
        assert page is not None
        assert [each.id for each in page.events] == list(range(start + 1, start + PAGE + 1))

    def log() -> None:
        with store.write() as unit:
            for _ in range(TAIL):
                unit.events.append("domain.changed", "pop", {})

    monkeypatch.setattr(Events, "since", since)
    try:
        asyncio.run(story())
    finally:
        feed.close()
        store.close()


def test_what_comes_one_after_the_other_is_given_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is read once for all of it, when some time has passed: here, when everything has come."""
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    feed = Feed(store)

    def log(kind: str) -> int:
        with store.write() as unit:
            unit.events.append(kind, "pop", {})
            return unit.events.last_id()

    async def story() -> list[str]:
        gathering, everything = asyncio.Event(), asyncio.Event()

        async def sleep(seconds: float) -> None:
            assert 0 < seconds <= GATHER_S
            gathering.set()
            await everything.wait()

        start = await feed.newest()
        following = asyncio.create_task(feed.after(start, PATIENCE_S))
        await asyncio.sleep(0)
        monkeypatch.setattr("orchestrator.control.signals.asyncio.sleep", sleep)
        await asyncio.to_thread(log, "domain.created")
        await asyncio.wait_for(gathering.wait(), PATIENCE_S)
        for kind in ("domain.changed", "domain.deleted"):
            await asyncio.to_thread(log, kind)
        everything.set()
        fed = await following
        assert fed is not None
        return [event.kind for event in fed.events]

    try:
        assert asyncio.run(story()) == ["domain.created", "domain.changed", "domain.deleted"]
    finally:
        feed.close()
        store.close()


def test_what_could_not_be_read_is_read_by_whoever_asks_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other notice comes of what was committed: a look that fails must not be taken for one that was had."""
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    feed = Feed(store)
    try:
        with store.write() as unit:
            unit.domains.create("pop")
            unit.events.append("domain.created", "pop", {})
            first = unit.events.last_id()
        assert asyncio.run(feed.after(first, 0.0)) is None
        with store.write() as unit:
            unit.events.append("domain.changed", "pop", {})
            second = unit.events.last_id()

        def busy() -> None:
            raise Busy("somebody holds it")

        with monkeypatch.context() as patch:
            patch.setattr(store, "read", busy)
            with pytest.raises(Busy):
                asyncio.run(feed.after(first, 0.0))
        fed = asyncio.run(feed.after(first, 0.0))
    finally:
        feed.close()
        store.close()
    assert fed is not None
    assert [event.id for event in fed.events] == [second]
