"""A connection pool to one database; acknowledged data is on disk.

SQLite: write-ahead log, so that readers never wait; every commit synced, by itself or by `sync_log` right after it;
foreign keys held; SQLAlchemy, not the driver, begins transactions. PostgreSQL: a writer that hangs in the middle of a
transaction is cut off after a minute.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError

from orchestrator.errors import BadInput, Missing, Unreachable
from orchestrator.store.sql.faults import is_busy, translate_faults
from orchestrator.store.sql.prepared import driver_of

WRITER_LOCK = 0xAC1F10
"""PostgreSQL's advisory lock that a writer holds until its transaction ends: shared, if it writes a part of the store
only, else alone."""
PART_LOCK = 0xAC1F11
"""The first half of the lock that a writer of a part holds; the second half is drawn from the part's name."""
LOG_LOCK = 0xAC1F12
"""The lock of writers of parts while they add what they logged: from then on until the commit there is one at a time,
so that ids are in the order of commits."""

_LOCK = f"SELECT pg_advisory_xact_lock({WRITER_LOCK})".encode()
_LOCK_LOG = f"SELECT pg_advisory_xact_lock({LOG_LOCK})".encode()

_SYNCED = "aclflow_synced"
"""Where a connection remembers whether its commits are synced."""

LIVENESS: Final = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
"""A connection to PostgreSQL whose other end has gone without a word is given up after some ten seconds."""

_SWITCH_AGAIN_S = 0.01
_SQLITE, _POSTGRES = "sqlite", "postgresql"
_CONNECTIONS, _KEPT = 40, 8
"""How many there are at most, and how many of them stay open where nobody uses them."""


def session_name(service: str) -> str:
    """Return the name that PostgreSQL shows of a service's sessions."""
    return f"aclflow {service}"


def connect_pool(url: str, busy_timeout_s: float, service: str = "", connections: int = _CONNECTIONS) -> Engine:
    """An engine for ``sqlite:///path`` or ``postgresql+psycopg://...``. Connects to nothing yet. Raises BadInput.

    `service` is how the store's other users know this one. `connections` are open at most.
    """
    pool = {"pool_timeout": busy_timeout_s, "pool_size": _KEPT, "max_overflow": connections - _KEPT}
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise BadInput(
            f"{url!r} is not the address of a store: give sqlite:///path or postgresql+psycopg://..."
        ) from None
    backend = parsed.get_backend_name()
    if backend == _SQLITE:
        return _open_sqlite_pool(parsed, busy_timeout_s, pool)
    if backend == _POSTGRES:
        address = parsed.set(drivername="postgresql+psycopg")
        return _open_postgres_pool(address, busy_timeout_s, session_name(service), pool)
    raise BadInput(f"a store is kept in SQLite or PostgreSQL, not in '{backend}'")


def begin_writing(connection: Connection, *, synced: bool = True, part: str | None = None) -> None:
    """Begin the only writing transaction of the store, or of a `part` of it.

    It waits for that as long as configured. Where it is not `synced`, SQLite's commit returns before it is on the disk:
    `sync_log` has to follow. SQLite has one writer at a time, whatever it writes.
    """
    driver = driver_of(connection)
    if isinstance(driver, sqlite3.Connection):
        _set_synced(connection, driver, synced)
        driver.execute("BEGIN IMMEDIATE")
        connection.begin()
    else:
        connection.begin()
        driver.execute(_LOCK if part is None else _make_lock_statement(part))


def lock_log(connection: Connection) -> None:
    """Let no other writer of PostgreSQL log anything until this transaction ends.

    Writers of other parts of the store wait as well.
    """
    driver = driver_of(connection)
    if not isinstance(driver, sqlite3.Connection):
        with translate_faults():
            driver.execute(_LOCK_LOG)


def _make_lock_statement(part: str) -> bytes:
    number = int.from_bytes(blake2b(part.encode(), digest_size=4).digest(), "big", signed=True)
    shared = f"WITH store AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared({WRITER_LOCK}))"
    return f"{shared} SELECT pg_advisory_xact_lock({PART_LOCK}, {number}) FROM store".encode()  # noqa: S608 - numbers


def _set_synced(connection: Connection, driver: sqlite3.Connection, synced: bool) -> None:
    known = connection.info
    if known.get(_SYNCED, True) is not synced:
        driver.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}").close()
        known[_SYNCED] = synced


def sync_log(engine: Engine) -> None:
    """Flush all commits to disk.

    Raises Unreachable; they may be there all the same, or not for long.

    PostgreSQL has done so already.
    """
    if engine.dialect.name != _SQLITE:
        return
    try:
        log = os.open(f"{engine.url.database}-wal", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # the last connection was closed, which brings everything to the disk
        return
    try:
        os.fdatasync(log)
    except OSError as error:
        raise Unreachable(f"the store's disk does not take what was written: {error.strerror}") from error
    finally:
        os.close(log)  # SQLite locks its other files, not this one: locks go where any of a file's descriptors does


def begin_reading(connection: Connection) -> None:
    """Begin a transaction that sees one state of the database throughout."""
    if connection.dialect.name == _POSTGRES:
        connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    connection.begin()


def _open_sqlite_pool(url: URL, busy_timeout_s: float, pool: Mapping[str, Any]) -> Engine:
    if not url.database or url.database == ":memory:":
        raise BadInput("a store in SQLite needs a file, as in sqlite:////var/lib/aclflow/aclflow.db")
    _create_file(url.database)
    engine = create_engine(url, connect_args={"timeout": busy_timeout_s}, **pool)
    event.listen(engine, "connect", lambda connection, _record: _prepare_sqlite(connection, busy_timeout_s))
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _create_file(path: str) -> None:
    """Create the file if missing, readable by its owner only.

    Its log files take its mode.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise Missing(f"the store's file cannot be opened: {error.strerror}", place=path) from None


def _prepare_sqlite(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    connection.isolation_level = None  # the driver must not begin transactions by itself
    _use_write_ahead_log(connection, busy_timeout_s)
    for pragma in ("foreign_keys = ON", "synchronous = FULL", "cache_size = -4096"):
        connection.execute(f"PRAGMA {pragma}").close()


def _use_write_ahead_log(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Switch an SQLite database to its write-ahead log.

    It is tried again while others open a fresh one at the same time, because SQLite does not wait for them.
    """
    give_up = time.monotonic() + busy_timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > give_up:
                raise
        else:
            return
        time.sleep(_SWITCH_AGAIN_S)


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction as SQLAlchemy does; a writer has begun it already."""
    driver = driver_of(connection)
    if isinstance(driver, sqlite3.Connection) and not driver.in_transaction:
        driver.execute("BEGIN")


def _open_postgres_pool(url: URL, busy_timeout_s: float, called: str, pool: Mapping[str, Any]) -> Engine:
    options = f"-c lock_timeout={int(busy_timeout_s * 1000)} -c idle_in_transaction_session_timeout=60000"
    return create_engine(
        url,
        pool_pre_ping=True,
        connect_args={"options": options, "connect_timeout": 5, "application_name": called, **LIVENESS},
        **pool,
    )
