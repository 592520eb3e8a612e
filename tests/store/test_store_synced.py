"""What is on the disk when: a commit before it is seen, a report's right after that, and before anybody is told."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from store.scenes import populate

from orchestrator.errors import Unreachable
from orchestrator.store import Store
from orchestrator.store.unit import Unit

FULL, NORMAL = 2, 1


def level(unit: Unit) -> int:
    """How the transaction under way will be synced (SQLite)."""
    found: int = unit.transaction.connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
    return found


def create(store: Store) -> None:
    with store.write(shown=lambda: None) as unit:
        unit.domains.create("pop")
        unit.events.append("change", "pop", {})


def test_it_is_seen_then_synced_then_told_and_the_next_writer_may_begin(
    store: Store, open_another: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    populate(store)
    other, log = open_another(), list[str]()
    sync = os.fdatasync

    def synced(descriptor: int) -> None:
        with store.write():  # the turn is given back already
            log.append("synced" if Path(f"/proc/self/fd/{descriptor}").readlink().name.endswith("-wal") else "?")
        sync(descriptor)

    def shown() -> None:
        with other.read() as unit:
            log.append(f"shown as {unit.tenants.get('blue').name}")

    monkeypatch.setattr(os, "fdatasync", synced)
    store.subscribe(lambda committed: log.append("told") if committed.last_event else None)
    with store.write(shown=shown) as unit:
        unit.tenants.rename("blue", "Navy")
        unit.events.append("change", "blue", {})
    is_postgres = store.engine.dialect.name == "postgresql"
    assert [each for each in log if each != "told"] == ["shown as Navy"] + ["synced"] * (not is_postgres)
    assert log[-1] == "told"


def test_only_who_is_shown_early_is_synced_later(store: Store) -> None:
    if store.engine.dialect.name == "postgresql":
        pytest.skip("PostgreSQL syncs every commit before it is seen")
    found = []
    for shown in (None, lambda: None, None, None, lambda: None, lambda: None):
        with store.write(shown=shown) as unit:
            found.append(level(unit))
    assert found == [FULL, NORMAL, FULL, FULL, NORMAL, NORMAL]


def test_what_fails_is_neither_shown_nor_synced(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda _: pytest.fail("nothing was written"))
    with pytest.raises(ZeroDivisionError), store.write(shown=lambda: pytest.fail("there is nothing to see")):
        raise ZeroDivisionError


def test_a_disk_that_does_not_take_it_is_said_and_nobody_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    if store.engine.dialect.name == "postgresql":
        pytest.skip("PostgreSQL's disk is PostgreSQL's")

    def full(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    told: list[object] = []
    store.subscribe(told.append)
    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(Unreachable, match="does not take what was written"):
        create(store)
    assert told == []
    monkeypatch.undo()
    with store.write() as unit:
        unit.events.append("change", "pop", {})
    assert len(told) == 1
