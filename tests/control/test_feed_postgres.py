"""Events of one process of the service, followed at another, over one PostgreSQL."""

from __future__ import annotations

import asyncio

from store.postgres_cluster import running

from orchestrator.control.feed import Feed
from orchestrator.store import open_store
from orchestrator.store.migrate import upgrade
from orchestrator.store.records import Event


def test_what_one_process_logs_is_followed_at_another() -> None:
    with running() as cluster:
        url = cluster.create_database("followed")
        upgrade(url)
        stores = [open_store(url) for _ in range(2)]
        feeds = [Feed(store) for store in stores]
        try:
            for writer, reader in ((0, 1), (1, 0)):
                with stores[reader].read() as unit:
                    start = unit.events.last_id()

                async def follow(feed: Feed = feeds[reader], start: int = start) -> list[Event]:
                    got: list[Event] = []
                    while len(got) < 5:
                        fed = await feed.after(got[-1].id if got else start, 10)
                        assert fed is not None
                        assert not fed.missed
                        got += fed.events
                    return got

                async def write(store: int = writer) -> None:
                    for number in range(5):
                        await asyncio.to_thread(log_one, stores[store], number)

                async def both() -> list[Event]:
                    found, _ = await asyncio.gather(follow(), write())
                    return found

                assert [event.detail["number"] for event in asyncio.run(both())] == list(range(5))
        finally:
            for feed, store in zip(feeds, stores, strict=True):
                feed.close()
                store.close()


def log_one(store, number: int) -> None:  # type: ignore[no-untyped-def]
    with store.write() as unit:
        unit.events.append("domain.changed", "pop", {"number": number})
