"""Restore a backup completely or not at all, into SQLite or PostgreSQL.

A store that was put back is behind the world: hosts hold later generations, switches have heard later epochs, readers
of the log later events, and numbers of rules were given out that it knows nothing of. None of these may come a second
time for something else, so all counters go on a long way above. The generations that hosts then report are in the past,
and they are given the program anew, after an intersection with whatever lists they may hold. A host that holds
something even later counts as drifted (`points/acceptance.py`); a further restore goes on above it.

A store that was put back by other means is backed up as it is, and restored from that.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from sqlalchemy import Connection, MetaData, func, select, text, true, update

from orchestrator.errors import BadInput, Conflict, Missing
from orchestrator.store import migrate
from orchestrator.store.acls.cache import AclCache
from orchestrator.store.backups.backup import Backup, Contents, Progress, numbered_column, rows_of, tables_of
from orchestrator.store.events import Events
from orchestrator.store.intersections import leave_open
from orchestrator.store.policycache import PolicyCache, PopCache
from orchestrator.store.schema.core import HEAD, domains, events, invitations
from orchestrator.store.sql.database import begin_writing, connect_pool
from orchestrator.store.sql.faults import translate_faults
from orchestrator.store.transaction import StoreSettings, Transaction

AHEAD = 1 << 20
"""How far everything that is counted goes on above the backup: more than any store counts between two backups, and a
number of a tenant (32 bits) has room for thousands of restores."""

_BUSY_TIMEOUT_S = 30.0
_AT_ONCE = 5000
_COUNTERS_TABLE = "counters"
_DRAWN = ("rule", "tenant")
_NOTED = ("generation", "epoch")
_NUMBERS_LEAVE = ("events", "enforcers", "tokens", "enrolment_groups", "packet_log")
"""Tables whose rows' numbers somebody outside may hold. The others' go on where they were: some of them are logs that
forget by the distance of numbers."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored backup.

    `spent` is the number of enrolment tokens that were open and are used up now.
    """

    contents: Contents
    spent: int


def restore(url: str, backup: Backup, *, replace: bool, now: dt.datetime, progress: Progress) -> Restored:
    """Make a store what an open backup says, at this program's schema.

    Raises Missing for a backup of a newer schema, Conflict where the store is in
    use or not empty (unless it is to be replaced), TryAgain where the disk is full, Unreachable; nothing is changed.
    """
    contents, raw = backup.contents, backup.raw
    if contents.schema > HEAD:
        raise Missing(
            f"the backup has schema {contents.schema}, this program needs {HEAD}: take aclflow "
            f"{contents.program} or newer"
        )
    engine = connect_pool(url, _BUSY_TIMEOUT_S)
    try:
        with translate_faults(), engine.connect() as connection:
            begin_writing(connection)
            _clear(connection, replace=replace)
            migrate.run(connection, contents.schema)
            tx = Transaction(connection, now, True, StoreSettings(), AclCache(0), PolicyCache(), PopCache())
            _fill_tables(tx, contents, raw, progress)
            migrate.run(connection)
            spent = _step_ahead(tx, contents)
            connection.commit()
    finally:
        engine.dispose()
    return Restored(contents, spent)


def _clear(connection: Connection, *, replace: bool) -> None:
    """Drop the present tables.

    Raises Conflict for a store in use, or with something in it.
    """
    found = migrate.revision(connection)
    _check_unused(connection)
    if found is None:
        return
    for table in tables_of(connection):
        is_filled = table.name != _COUNTERS_TABLE and connection.execute(select(table).limit(1)).first() is not None
        if is_filled and not replace:
            raise Conflict(f"the store is not empty ('{table.name}' has rows): say --yes to lose what it holds")
    everything = MetaData()
    everything.reflect(connection)
    everything.drop_all(connection)


def _check_unused(connection: Connection) -> None:
    """Refuse a PostgreSQL database in use.

    On SQLite the caller holds the service's lock.
    """
    if connection.dialect.name != "postgresql":
        return
    others = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND application_name LIKE 'aclflow%'"
    )
    if connection.execute(others).scalar_one():
        raise Conflict("a service is connected to the database: stop it first")


def _fill_tables(tx: Transaction, contents: Contents, raw: BinaryIO, progress: Progress) -> None:
    known = {table.name: table for table in tables_of(tx.connection)}
    filled = 0
    with progress(contents.rows) as done:
        for listed, rows in rows_of(raw, contents):
            table = known.get(listed.name)
            if table is None or not set(listed.columns) <= set(table.columns.keys()):
                raise BadInput(f"the backup has a table that schema {contents.schema} has not: '{listed.name}'")
            while some := list(islice(rows, _AT_ONCE)):
                tx.insert_rows(table, listed.columns, some)
                filled += len(some)
                done(filled)


def _step_ahead(tx: Transaction, contents: Contents) -> int:
    """Count on far above the backup, and use up enrolment tokens; return their number.

    They may have been used.
    """
    generation = domains.c.generation + AHEAD
    tx.write(update(domains).values(generation=generation, epoch=domains.c.epoch + AHEAD, behind=generation - 1))
    leave_open(tx, true())
    for counter in _DRAWN:
        tx.draw(counter, AHEAD)
    for counter in _NOTED:
        tx.raise_highest(counter, tx.highest(counter) + AHEAD)
    numbered = {table.name: table.last for table in contents.tables if table.last is not None}
    Events(tx).renumber(AHEAD, numbered[events.name])
    for table, last in numbered.items():
        _count_from(tx.connection, table, last + AHEAD * (table in _NUMBERS_LEAVE))
    is_open = invitations.c.used.is_(None)
    spent = tx.read(select(func.count()).select_from(invitations).where(is_open)).scalar_one()
    tx.write(update(invitations).where(is_open).values(used=tx.micros))
    detail = {"made": contents.made.isoformat(), "program": contents.program}
    Events(tx).append("store.restored", "store", detail)
    return int(spent)


def _count_from(connection: Connection, table: str, number: int) -> None:
    if connection.dialect.name == "sqlite":
        values = {"name": table, "number": number}
        connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
        connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number)"), values)
        return
    statement = text("SELECT setval(pg_get_serial_sequence(:name, :column), :next, false)")
    connection.execute(statement, {"name": table, "column": numbered_column(table), "next": number + 1})
