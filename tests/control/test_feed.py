"""The events' tail: who follows is told when events were forgotten that the tail has not seen either."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orchestrator.control.feed import Feed
from orchestrator.store import StoreSettings, open_store


def test_a_tail_that_fell_behind_the_log_says_that_events_are_missing(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", settings=StoreSettings(events_kept=100))
    feed = Feed(store)
    try:
        with store.write() as unit:
            unit.domains.create("pop")
            first = unit.events.append("domain.created", "pop", {})
        seen = asyncio.run(feed.after(first.id - 1, 0.0))
        with store.write() as unit:
            for _ in range(450):
                unit.events.append("domain.changed", "pop", {})
        fed = asyncio.run(feed.after(first.id, 0.0))
    finally:
        feed.close()
        store.close()
    assert seen is not None
    assert fed is not None
    assert (seen.missed, fed.missed) == (False, True)
    assert fed.events[0].id > first.id + 1
