"""Listeners hear of commits, of this process and of others, and of nothing else."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

import pytest
from patience import PATIENCE_S, until
from store.postgres_cluster import Cluster
from store.scenes import populate, rule

from orchestrator.store import Store, open_store
from orchestrator.store.notices import UNKNOWN
from orchestrator.store.records import Committed


def test_a_listener_hears_of_commits(store: Store, address: str) -> None:
    heard: list[Committed] = []
    populate(store)

    def broken(_committed: Committed) -> None:
        raise ZeroDivisionError

    store.subscribe(broken)
    stop = store.subscribe(heard.append)
    if address.startswith("postgresql"):
        until(lambda: heard)
        assert heard.pop() == UNKNOWN  # listening has begun
    with store.write() as unit:
        unit.acls.put_rule("blue", rule("a"), author="ann")
        event = unit.events.append("change", "blue", {})
        assert heard == []  # not before the commit
    assert heard == [Committed({"pop": 3}, event.id)]

    def fail() -> None:
        with store.write() as unit:
            unit.acls.put_rule("blue", rule("b"), author="ann")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.write() as unit:
        unit.tenants.rename("blue", "Quiet")
    with store.read() as unit:
        unit.acls.current("blue")
    stop()
    with store.write() as unit:
        unit.acls.put_rule("blue", rule("c"), author="ann")
    time.sleep(0.2)  # one's own notice, come back from PostgreSQL, is not heard twice
    assert len(heard) == 1


def test_another_process_is_heard_through_postgresql(cluster: Cluster) -> None:
    address = cluster.create_database("heard")
    writer, reader = open_store(address), open_store(address)
    populate(writer)
    heard: queue.Queue[Committed] = queue.Queue()
    reader.subscribe(heard.put)
    assert heard.get(timeout=PATIENCE_S) == UNKNOWN
    with writer.write() as unit:
        unit.acls.put_rule("blue", rule("a"), author="ann")
    assert heard.get(timeout=PATIENCE_S) == Committed({"pop": 3}, None)
    with cluster.connect() as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    assert heard.get(timeout=PATIENCE_S) == UNKNOWN  # listening again, after what may have been missed
    with writer.write() as unit:
        for number in range(600):
            unit.domains.create(f"a-domain-of-quite-a-long-name-{number}")
            unit.domains.bump_generation(f"a-domain-of-quite-a-long-name-{number}")
    assert heard.get(timeout=PATIENCE_S) == UNKNOWN  # more domains than a notice holds
    reader.close()
    writer.close()


def test_closing_is_quick_and_final(open_another: Callable[..., Store]) -> None:
    store = open_another()
    store.subscribe(lambda _committed: None)
    store.close()
