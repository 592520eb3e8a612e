"""Bringing a database to this program's schema.

A fresh database gets the declared tables, an older one the migrations that it lacks; both lead to the same schema. That
happens in one transaction with the writer's lock held, on both databases: a crash in the middle leaves the schema as it
was, and of two processes that open a fresh database one makes the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Column, Connection, Engine, MetaData, PrimaryKeyConstraint, String, Table, inspect, text

from orchestrator.errors import Missing
from orchestrator.store.schema.core import HEAD, metadata
from orchestrator.store.sql.database import begin_reading, begin_writing, connect_pool
from orchestrator.store.sql.faults import translate_faults

_SCRIPTS = Path(__file__).with_name("migrations")
VERSION_TABLE = "alembic_version"
_VERSIONS = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""As Alembic would make it."""
_BUSY_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The revisions before (None: a fresh database) and after an upgrade."""

    before: str | None
    after: str


def upgrade(url: str) -> Upgrade:
    """Migrate a database to this program's schema; safe to repeat.

    Raises Missing for one made by a newer program.
    """
    engine = connect_pool(url, _BUSY_TIMEOUT_S)
    try:
        with translate_faults(), engine.connect() as connection:
            begin_writing(connection)
            before = _complete(connection)
            connection.commit()
    finally:
        engine.dispose()
    return Upgrade(before, HEAD)


def prepare(engine: Engine) -> None:
    """Give a fresh database its tables; refuse one of another schema. Raises Missing."""
    with translate_faults(), engine.connect() as connection:
        begin_reading(connection)
        found = revision(connection)
    if found is None:
        with translate_faults(), engine.connect() as connection:
            begin_writing(connection)
            _complete(connection)  # does nothing where another process was faster
            connection.commit()
        return
    if found != HEAD:
        raise Missing(f"the store has schema {found}, this program needs {HEAD}: run `aclflow db upgrade`")


def _complete(connection: Connection) -> str | None:
    """Make a fresh database's tables, or migrate an older one; return its revision before."""
    before = revision(connection)
    if before is None:
        metadata.create_all(connection, checkfirst=False)
        _VERSIONS.create(connection, checkfirst=True)
        connection.execute(_VERSIONS.insert().values(version_num=HEAD))
    elif before != HEAD:
        run(connection)
    return before


def revision(connection: Connection) -> str | None:
    """Return a database's revision; None without our tables.

    Raises Missing for a foreign one.
    """
    tables = inspect(connection).get_table_names()
    if VERSION_TABLE in tables:
        found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()  # noqa: S608
        return None if found is None else str(found)
    if tables:
        raise Missing(f"the database holds tables of something else ('{tables[0]}'): give the store one of its own")
    return None


def run(connection: Connection, to: str = "head") -> None:
    """Run the migrations up to a revision in the transaction under way.

    Raises Missing for a database of a newer program.
    """
    from alembic import command  # noqa: PLC0415 -- a fifth of a second that most starts spare
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util.exc import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, to)
    except CommandError as error:
        raise Missing(f"the store was made by a newer program: {error}") from None
