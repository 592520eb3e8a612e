"""Map database failures to our errors, by what the caller can do.

    locked, deadlock, too many connections, starting up      Busy          the same request may work at once
    disk full                                                Full          after somebody made room; nothing was lost
    file unreadable or damaged, connection lost or refused   Unreachable
    a constraint of ours                                     Conflict      repositories check first; this is the net
    a number or text that no column holds                    BadInput      say an id of 2^70, or half a character
Everything else is a defect of this program and is raised as it is.
"""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager

import psycopg
from sqlalchemy import exc

from orchestrator.errors import AclflowError, BadInput, Busy, Conflict, Full, Unreachable

DISK_FULL = "the disk of the store is full; nothing was changed: make room there, then try again"

_UNHEARD_OF = "a number or a character in it is one that the store cannot hold"

_SQLITE_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_SQLITE_GONE = ("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_READONLY", "SQLITE_PERM")
_SQLITE_TAKEN = (
    "SQLITE_CONSTRAINT_UNIQUE",
    "SQLITE_CONSTRAINT_PRIMARYKEY",
    "SQLITE_CONSTRAINT_FOREIGNKEY",
    "SQLITE_CONSTRAINT_TRIGGER",
)
_POSTGRES_TAKEN = ("23503", "23505", "23P01")  # foreign_key_violation, unique_violation, exclusion_violation
_POSTGRES_BUSY = {
    "40001": "two writers met",  # serialization_failure
    "40P01": "two writers met",  # deadlock_detected
    "53300": "it has no connection left",
    "55P03": "another writer holds it",  # lock_not_available
    "57P03": "it is starting or stopping",
}
_POSTGRES_GONE = ("08", "57P", "58", "XX", "28", "3D")  # connection, shutdown, I/O, corruption, refused, no database


class _Translated:
    """Translates errors inside a block.

    A class and no generator: every transaction enters it and leaves it, nearly always without an error.
    """

    def __enter__(self) -> None:
        """Nothing has gone wrong yet."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        ours = None if error is None else _translate_error(error)
        if ours is not None:
            raise ours from error


_TRANSLATED = _Translated()


def translate_faults() -> AbstractContextManager[None]:
    """Raise errors of SQLAlchemy and drivers as ours, where they are mapped."""
    return _TRANSLATED


def _translate_error(error: BaseException) -> AclflowError | None:
    """The error of ours that another stands for, if there is one."""
    if isinstance(error, exc.TimeoutError):
        return Busy("every connection to the store is in use: try again")
    if isinstance(error, OverflowError | UnicodeEncodeError):  # SQLite's driver, before it asks the database
        return BadInput(_UNHEARD_OF)
    return _find_own_error(error.orig if isinstance(error, exc.DBAPIError) else error)


def _find_own_error(error: BaseException | None) -> AclflowError | None:
    if isinstance(error, sqlite3.Error):
        return _translate_sqlite(error)
    return _translate_postgres(error) if isinstance(error, psycopg.Error) else None


def is_busy(error: sqlite3.Error) -> bool:
    """Whether SQLite refused something because another connection holds the database."""
    return _find_sqlite_name(error).startswith(_SQLITE_BUSY)


def _find_sqlite_name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", None) or ""


def _translate_sqlite(error: sqlite3.Error) -> AclflowError | None:
    name = _find_sqlite_name(error)
    if is_busy(error):
        return Busy("the store is locked by another writer: try again")
    if name == "SQLITE_FULL":
        return Full(DISK_FULL)
    if name.startswith(_SQLITE_GONE):
        return Unreachable(f"the store's file cannot be used: {error}")
    if name in _SQLITE_TAKEN:
        return Conflict(f"the store refuses it: {error}")
    return None


def _translate_postgres(error: psycopg.Error) -> AclflowError | None:
    state = error.sqlstate or ""
    if isinstance(error, psycopg.DataError):
        return BadInput(_UNHEARD_OF)
    if state in _POSTGRES_BUSY:
        return Busy(f"the store is busy, {_POSTGRES_BUSY[state]}: try again")
    if state == "53100":
        return Full(DISK_FULL)
    if not state or state.startswith(_POSTGRES_GONE):
        return Unreachable(
            f"the store's database does not answer: {str(error).splitlines()[0] if str(error) else state}"
        )
    if state in _POSTGRES_TAKEN:
        return Conflict(f"the store refuses it: {error.diag.constraint_name}")
    return None
