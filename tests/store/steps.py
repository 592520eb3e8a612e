"""Counts the steps of SQLite's machine: what a piece of work costs the database, the same in every run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import event

from orchestrator.store import Store, open_store

_STEPS_A_TICK = 20


@contextmanager
def ticking(path: Path) -> Iterator[tuple[Store, list[int]]]:
    """A store on a database, and a counter of its steps, in twenties."""
    ticks = [0]

    def tick() -> None:
        ticks[0] += 1

    def count(connection: sqlite3.Connection, _record: object) -> None:
        connection.set_progress_handler(tick, _STEPS_A_TICK)

    with closing(open_store(f"sqlite:///{path}")) as store:
        event.listen(store.engine, "connect", count)
        store.engine.dispose()  # whatever was connected before it was listened to
        yield store, ticks
