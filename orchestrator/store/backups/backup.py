"""A backup: one file with a whole store, the same from SQLite and PostgreSQL.

    gzip of lines of JSON    first    what it is: `Contents`
                             then     the rows of every table, a line each, in the order of the tables
                             last     the SHA-256 of all lines before it, and who signed that, if somebody did

Tables are taken as the database has them, so the backup of an older schema is one, too. They are read in one snapshot,
while the service may go on writing. The file replaces what had its name as a whole, and is for its owner alone: it has
the digests of tokens and, where that is asked for, the key of the certificate authority. Encrypting the whole file, and
signing, are the caller's (`orchestrator/backups.py`).
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import gzip
import hashlib
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from sqlalchemy import Connection, MetaData, Table, func, select, text

from orchestrator.errors import AclflowError, BadInput, Missing, TryAgain
from orchestrator.store.acls.cache import AclCache
from orchestrator.store.migrate import VERSION_TABLE, revision
from orchestrator.store.policycache import PolicyCache, PopCache
from orchestrator.store.schema.core import HEAD, metadata
from orchestrator.store.sql.database import begin_reading, begin_writing, connect_pool
from orchestrator.store.sql.faults import translate_faults
from orchestrator.store.sql.keys import to_micros
from orchestrator.store.transaction import LAST_BACKUP, StoreSettings, Transaction

FORMAT = 2
_READABLE = (1, FORMAT)
"""Format 1 has no signature."""

Wrap = Callable[[BinaryIO], BinaryIO]
"""Wraps a stream: to encrypt what is written, or to decrypt what is read."""
Sign = Callable[[bytes], "Signature | None"]
"""Given a digest, who signed it, and how."""
Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""Given how many rows there are, a block that is told how many are done."""

_BUSY_TIMEOUT_S = 30.0
_AT_ONCE = 1000
_OCTETS = "octets"
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, orjson.JSONDecodeError)


@dataclass(frozen=True, slots=True)
class TableContents:
    """A table of a backup.

    `last` is the highest number that it ever gave out by itself; None: it gives none.
    """

    name: str
    columns: tuple[str, ...]
    rows: int
    last: int | None


@dataclass(frozen=True, slots=True)
class AuthorityFiles:
    """A certificate authority, in PEM."""

    key: str
    certificate: str


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature of a backup's digest, and the fingerprint of its certificate."""

    signer: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Contents:
    """A backup's description: schema, time, version, and tables."""

    schema: str
    program: str
    made: dt.datetime
    tables: tuple[TableContents, ...]
    authority: AuthorityFiles | None = None

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was read to its end and found whole."""

    contents: Contents
    raw: BinaryIO
    digest: bytes
    signature: Signature | None


def _plain_stream(raw: BinaryIO) -> BinaryIO:
    return raw


def _sign_nothing(_: bytes) -> Signature | None:
    return None


def back_up(
    url: str,
    file: Path,
    *,
    program: str,
    made: dt.datetime,
    authority: AuthorityFiles | None,
    progress: Progress,
    wrap: Wrap = _plain_stream,
    sign: Sign = _sign_nothing,
) -> Contents:
    """Write a backup of the store at an address, in one snapshot.

    Raises Missing where there is no store or the file cannot be written, say on a full disk, and Unreachable.
    """
    engine = connect_pool(url, _BUSY_TIMEOUT_S)
    try:
        with translate_faults(), engine.connect() as connection:
            begin_reading(connection)
            schema = revision(connection)
            if schema is None:
                raise Missing("there is nothing to back up: the database has no tables yet")
            tables = tables_of(connection)
            listed = tuple(_describe_table(connection, table) for table in tables)
            contents = Contents(schema, program, made, listed, authority)
            with _replacing(file) as raw, progress(contents.rows) as done:
                wrapped = wrap(raw)
                _write_stream(wrapped, contents, _read_rows(connection, tables), done, sign)
                if wrapped is not raw:
                    wrapped.close()
    finally:
        engine.dispose()
    return contents


def note_backup(url: str, made: dt.datetime) -> bool:
    """Record the time of a backup in the store; return whether that was possible.

    Raises nothing: the backup is whole without it.
    """
    engine = connect_pool(url, _BUSY_TIMEOUT_S)
    try:
        with translate_faults(), engine.connect() as connection:
            begin_writing(connection)
            if revision(connection) != HEAD:
                return False
            tx = Transaction(connection, made, True, StoreSettings(), AclCache(0), PolicyCache(), PopCache())
            tx.raise_highest(LAST_BACKUP, to_micros(made))
            connection.commit()
    except AclflowError:
        return False
    finally:
        engine.dispose()
    return True


def tables_of(connection: Connection) -> list[Table]:
    """Return the database's tables, referenced ones first, without the schema's version."""
    found = MetaData()
    found.reflect(connection)
    return [table for table in found.sorted_tables if table.name != VERSION_TABLE]


@contextmanager
def open_backup(file: Path, wrap: Wrap = _plain_stream) -> Iterator[Backup]:
    """Open a backup after checking it whole.

    Raises Missing, and BadInput for what is no backup or is damaged.
    """
    try:
        raw = file.open("rb")
    except OSError as error:
        raise Missing(f"cannot be read: {error.strerror}", place=str(file)) from None
    with raw:
        try:
            yield _verify_backup(wrap(raw))
        except AclflowError as error:
            error.place = error.place or str(file)
            raise


def rows_of(raw: BinaryIO, contents: Contents) -> Iterator[tuple[TableContents, Iterator[tuple[object, ...]]]]:
    """Yield a checked backup's tables with their rows, to be read in order."""
    raw.seek(0)
    with gzip.open(raw, "rb") as lines:
        lines.readline()
        for table in contents.tables:
            yield table, (_read_row(lines.readline()) for _ in range(table.rows))


# ------------------------------------------------------------------------------------------------------- writing


def _describe_table(connection: Connection, table: Table) -> TableContents:
    rows = connection.execute(select(func.count()).select_from(table)).scalar_one()
    return TableContents(table.name, tuple(table.columns.keys()), int(rows), _last_number(connection, table.name))


def numbered_column(table: str) -> str | None:
    """Return the column that the database numbers by itself, or None."""
    known = metadata.tables.get(table)
    if known is None or not known.dialect_options["sqlite"]["autoincrement"]:
        return None
    return str(known.primary_key.columns[0].name)


def _last_number(connection: Connection, table: str) -> int | None:
    column = numbered_column(table)
    if column is None:
        return None
    if connection.dialect.name == "sqlite":
        found = connection.execute(text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": table})
        return int(found.scalar_one_or_none() or 0)
    found = connection.execute(text("SELECT pg_get_serial_sequence(:name, :column)"), {"name": table, "column": column})
    last, is_used = connection.execute(text(f"SELECT last_value, is_called FROM {found.scalar_one()}")).one()  # noqa: S608 - ours
    return int(last) if is_used else 0


def _read_rows(connection: Connection, tables: Sequence[Table]) -> Iterator[Sequence[object]]:
    for table in tables:
        with connection.execution_options(yield_per=_AT_ONCE).execute(select(table)) as found:
            yield from found


def _write_stream(
    raw: BinaryIO, contents: Contents, rows: Iterator[Sequence[object]], done: Callable[[int], None], sign: Sign
) -> None:
    digest = hashlib.sha256()
    with gzip.GzipFile(fileobj=raw, mode="wb", filename="", compresslevel=6) as file:

        def put_line(value: object) -> None:
            line = orjson.dumps(value, default=_make_plain, option=orjson.OPT_APPEND_NEWLINE)
            digest.update(line)
            file.write(line)

        put_line({"aclflow_backup": FORMAT, **asdict(contents)})
        for number, row in enumerate(rows, 1):
            put_line(list(row))
            if number % _AT_ONCE == 0:
                done(number)
        signed = sign(digest.digest())
        last: dict[str, object] = {"sha256": digest.hexdigest()}
        if signed is not None:
            last |= {"signer": signed.signer, "signature": signed.value.hex()}
        file.write(orjson.dumps(last, option=orjson.OPT_APPEND_NEWLINE))


def _make_plain(value: object) -> object:
    if isinstance(value, (bytes, memoryview)):
        return {_OCTETS: base64.b64encode(value).decode()}
    raise TypeError(type(value).__name__)


@contextmanager
def _replacing(file: Path) -> Iterator[BinaryIO]:
    """Write a new private file that takes its name only once it is on disk."""
    beside = None
    try:
        descriptor, beside = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        with os.fdopen(descriptor, "wb") as raw:
            yield raw
            raw.flush()
            os.fsync(raw.fileno())
        Path(beside).replace(file)
        beside = None
        directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise Missing(f"cannot be written: {error.strerror}", place=str(file)) from error
    finally:
        if beside is not None:
            with suppress(OSError):
                os.unlink(beside)


# ------------------------------------------------------------------------------------------------------- reading


def _verify_backup(raw: BinaryIO) -> Backup:
    """Read a backup to its end and compare what it says with what it is."""
    try:
        with gzip.open(raw, "rb") as lines:
            first = lines.readline()
            contents = _read_contents(first)
            digest = hashlib.sha256(first)
            for _ in range(contents.rows):
                digest.update(lines.readline())
            last = orjson.loads(lines.readline())
            is_whole = isinstance(last, dict) and last.get("sha256") == digest.hexdigest() and not lines.read(1)
    except gzip.BadGzipFile as error:
        if "Not a gzipped" in str(error):
            raise BadInput("this is no backup of aclflow") from None
        raise BadInput(f"the backup is damaged: {error}") from None
    except _DAMAGED as error:
        raise BadInput(f"the backup is damaged: {error}") from None
    if not is_whole:
        raise BadInput("the backup is damaged: its checksum is another")
    try:
        signature = Signature(str(last["signer"]), bytes.fromhex(last["signature"])) if "signature" in last else None
    except (KeyError, TypeError, ValueError):
        raise BadInput("the backup is damaged: its signature cannot be read") from None
    return Backup(contents, raw, digest.digest(), signature)


def _read_contents(line: bytes) -> Contents:
    try:
        said = orjson.loads(line)
        version = said["aclflow_backup"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise BadInput("this is no backup of aclflow") from None
    if version not in _READABLE:
        raise Missing(f"the backup is in format {version}, this program reads up to {FORMAT}: take a newer one")
    try:
        return _contents_from(said)
    except (KeyError, TypeError, ValueError):
        raise BadInput("the backup is damaged: its first line does not say what it is") from None


def _contents_from(said: Mapping[str, Any]) -> Contents:
    tables = tuple(
        TableContents(each["name"], tuple(each["columns"]), int(each["rows"]), each["last"]) for each in said["tables"]
    )
    authority = None if said["authority"] is None else AuthorityFiles(**said["authority"])
    made = dt.datetime.fromisoformat(said["made"])
    return Contents(str(said["schema"]), str(said["program"]), made, tables, authority)


def _read_row(line: bytes) -> tuple[object, ...]:
    try:
        return tuple(base64.b64decode(each[_OCTETS]) if isinstance(each, dict) else each for each in orjson.loads(line))
    except (orjson.JSONDecodeError, KeyError, TypeError, binascii.Error):
        raise TryAgain("the backup was changed while it was read") from None
