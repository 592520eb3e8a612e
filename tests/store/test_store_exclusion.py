"""Exclusive prefixes are held by the database itself, even against writers that check nothing and do not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from patience import until
from sqlalchemy import Connection, Table, exc, insert, text, update
from store.scenes import populate
from strategies import FAR_POOL

from orchestrator.errors import Busy, Conflict
from orchestrator.policy.addresses import Prefix
from orchestrator.store import Store
from orchestrator.store.chains import Chain, Head
from orchestrator.store.schema.core import endpoint_prefixes, endpoints, prefixes
from orchestrator.store.sql.database import begin_writing, lock_log
from orchestrator.store.sql.faults import translate_faults
from orchestrator.store.sql.keys import first_bytes, last_bytes
from orchestrator.store.transaction import StoreSettings


def insert_raw(connection: Connection, table: Table, prefix: Prefix, owner: dict[str, object]) -> None:
    """What a program without our checks would do."""
    row = {"first": first_bytes(prefix), "last": last_bytes(prefix), "prefix": str(prefix), **owner}
    connection.execute(insert(table).values(**row))


@pytest.mark.parametrize("table", [prefixes, endpoint_prefixes], ids=lambda table: str(table.name))
def test_the_database_takes_exactly_disjoint_prefixes(store: Store, table: Table) -> None:
    populate(store)
    owner: dict[str, object] = {"tenant": 1}
    with store.engine.begin() as connection:
        connection.execute(prefixes.delete())
        if table is endpoint_prefixes:
            owner = {"domain": "pop", "endpoint": "web"}
            row = {"domain": "pop", "name": "web", "tenant": 1, "port": "tap", "mac": 2, "version": 1}
            connection.execute(insert(endpoints).values(**row))

    @settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(order=st.lists(st.sampled_from(FAR_POOL), min_size=1, max_size=8))
    def law(order: list[Prefix]) -> None:
        with store.engine.connect() as connection, connection.begin() as outer:
            held: list[Prefix] = []
            for prefix in order:
                free = not any(prefix.overlaps(other) for other in held)
                try:
                    with connection.begin_nested():
                        insert_raw(connection, table, prefix, owner)
                except exc.IntegrityError:
                    assert not free, f"{prefix} was refused beside {held}"
                else:
                    assert free, f"{prefix} was taken beside {held}"
                    held.append(prefix)
            outer.rollback()

    law()


def test_ranges_cannot_be_moved_past_the_check(store: Store) -> None:
    """SQLite forbids it; PostgreSQL checks the prefix itself, so that it cannot be changed to an overlapping one."""
    populate(store)
    with store.write() as unit:
        unit.tenants.add_prefix("blue", Prefix.parse("10.9.0.0/16"))
    nine = prefixes.c.prefix == "10.9.0.0/16"
    moved = update(prefixes).where(nine).values(first=b"\x04\x0a\x01\x09\x00", prefix="10.1.9.0/24")
    with store.engine.connect() as connection, pytest.raises(exc.IntegrityError, match=r"prefixes_(fixed|exclusive)"):
        connection.execute(moved)


def test_two_transactions_under_way_cannot_both_take_overlapping_prefixes(
    store: Store, open_another: Callable[..., Store]
) -> None:
    """Two writers that take no lock of ours: PostgreSQL lets the second wait for the first, SQLite lets nobody in."""
    populate(store)
    other = open_another()
    outcome: list[str] = []

    def second() -> None:
        try:
            with translate_faults(), other.engine.connect() as connection:
                insert_raw(connection, prefixes, Prefix.parse("10.9.1.0/24"), {"tenant": 1})
                connection.commit()
                outcome.append("taken")
        except (Conflict, Busy) as error:
            outcome.append(type(error).__name__)

    with store.engine.connect() as connection:
        insert_raw(connection, prefixes, Prefix.parse("10.9.0.0/16"), {"tenant": 1})
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        connection.commit()
        thread.join()
    assert outcome[0] in ("Conflict", "Busy")
    with store.read() as unit:
        assert [str(prefix) for prefix in unit.tenants.get("blue").prefixes if prefix.family == 4] == [
            "10.1.0.0/16",
            "10.9.0.0/16",
        ]


def test_writers_in_two_processes_stand_in_line(store: Store, open_another: Callable[..., Store]) -> None:
    """Counters drawn by two stores at once are all different, and no update is lost."""
    populate(store)
    stores = [store, open_another()]
    failures: list[Exception] = []

    def work(index: int) -> None:
        try:
            for step in range(10):
                with stores[index % 2].write() as unit:
                    unit.tenants.create(f"t{index}-{step}", name="x", domain="pop")
                    unit.events.append("made", f"t{index}-{step}", {})
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with store.read() as unit:
        tenants = unit.tenants.list(limit=1000)
        assert len({tenant.number for tenant in tenants}) == 41
        assert unit.domains.get("pop").generation == 42
        assert len(unit.events.since(0).events) == 40


def test_the_next_writer_waits_until_the_head_of_the_trail_is_noted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database lets it in right after the commit, when this process has not noted its newest entry yet."""
    populate(store)
    noted = Chain.commit

    def note_late(chain: Chain, head: Head | None) -> None:
        time.sleep(0.01)
        noted(chain, head)

    monkeypatch.setattr(Chain, "commit", note_late)
    failures: list[Exception] = []

    def work(part: str | None) -> None:
        try:
            for step in range(5):
                with store.write(part=part) as unit:
                    unit.events.append("made", f"{part}-{step}", {})
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(part,)) for part in (None, None, "one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("kind", ["acl.replaced", "acl.enforced"], ids=["with an audit entry", "without"])
def test_ids_of_logs_are_drawn_after_the_wait_for_the_log(store: Store, kind: str) -> None:
    """Else they would not be in the order of commits, and a reader of events would miss some."""
    if store.is_alone:
        pytest.skip("SQLite has one writer")
    populate(store)
    tables = ("events", "audit")

    def read_sequences(connection: Connection) -> list[object]:
        named = (text(f"SELECT last_value + is_called::int FROM {table}_id_seq") for table in tables)
        return [connection.execute(each).scalar_one() for each in named]

    def work() -> None:
        with store.write(part="one") as unit:
            unit.events.append(kind, "blue", {})

    waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    writer = threading.Thread(target=work)
    with store.engine.connect() as holder, store.engine.connect() as looking:
        holder.begin()
        lock_log(holder)
        before = read_sequences(looking)
        writer.start()
        until(lambda: looking.execute(waiting).scalar_one())
        assert read_sequences(looking) == before
        holder.rollback()
        writer.join()
        assert read_sequences(looking) != before


def test_a_writer_that_waits_too_long_is_told_so(store: Store, open_another: Callable[..., Store]) -> None:
    populate(store)
    impatient = open_another(settings=StoreSettings(busy_timeout_s=0.1))
    with store.engine.connect() as connection:
        begin_writing(connection)
        with pytest.raises(Busy), impatient.write() as unit:
            unit.tenants.rename("blue", "Never")
        with impatient.read() as unit:  # readers do not wait
            assert unit.tenants.get("blue").name == "Blue"
        connection.rollback()
    with impatient.write() as unit:
        unit.tenants.rename("blue", "Later")


def test_a_writer_in_the_same_process_waits_its_turn_too(open_another: Callable[..., Store]) -> None:
    store = open_another(settings=StoreSettings(busy_timeout_s=0.1))
    populate(store)
    outcome: list[str] = []

    def second() -> None:
        try:
            with store.write() as unit:
                unit.tenants.rename("blue", "Never")
        except Busy:
            outcome.append("busy")

    with store.write() as unit:
        unit.tenants.rename("blue", "First")
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert outcome == ["busy"]
    with store.read() as unit:
        assert unit.tenants.get("blue").name == "First"
