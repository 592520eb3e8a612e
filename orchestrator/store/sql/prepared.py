"""SQL of the hot path, compiled once per dialect and run by its driver.

SQLAlchemy takes forty microseconds to carry out what SQLite does in three, and a change of one rule asks fifteen
things. So the statements on that way are written with SQLAlchemy as all others are, but of its output only the text is
kept. A parameter that a driver cannot be given as it is (lists of values, types that are converted) does not belong
here; numbers, texts and bytes do.
"""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from sqlalchemy import BindParameter, Connection, Dialect, Row, Table, Text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import CompoundSelect, Insert, Select
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import TableValuedAlias

Driver = sqlite3.Connection | psycopg.Connection[Any]
"""A connection as the driver knows it."""

Rows = list[Row[Any]]
"""As far as anybody looks: they are named tuples, with a row's columns by name."""

Insertion = Callable[[Table], "sqlite.Insert | postgresql.Insert"]
"""Begins an INSERT that can say what to do where the row is there already."""


def driver_of(connection: Connection) -> Driver:
    """A connection as its driver knows it."""
    driver: Driver = connection.connection.dbapi_connection  # type: ignore[assignment]  # known by its protocol only
    return driver


_SQLITE = sqlite.dialect(paramstyle="named")
"""So SQLite's driver takes parameters by their names, as PostgreSQL's does anyway."""


@dataclass(frozen=True, slots=True)
class _Words:
    """A statement in one dialect; `row` makes a row of the driver's value."""

    text: str | bytes
    row: Callable[[Sequence[object]], Any] | None


class Prepared:
    """One statement. Its parameters are its `bindparam` names; those of an INSERT are `columns`.

    `statement` may also be a function, for what each kind of database says in its own way.
    """

    def __init__(
        self,
        statement: Select[Any] | CompoundSelect[Any] | UpdateBase | Callable[[Insertion], Insert],
        columns: Sequence[str] | None = None,
        changes: Table | None = None,
    ) -> None:
        self.statement = statement
        self._columns = columns
        self._words: dict[str, _Words] = {}
        example = statement(sqlite.insert) if callable(statement) else statement
        self.changes: object = example.table if isinstance(example, UpdateBase) else changes
        """The table that it changes, by default that of an INSERT, UPDATE or DELETE; None for a query."""

    def carry_out(self, driver: Driver, dialect: Dialect, parameters: Mapping[str, object]) -> Rows:
        """Ask it, and give back what it returns."""
        words = self._words.get(dialect.name) or self.compile(dialect)
        answer = driver.execute(words.text, parameters)  # type: ignore[arg-type]  # each has words of its own
        return [] if words.row is None else list(map(words.row, answer.fetchall()))

    def carry_out_each(self, driver: Driver, dialect: Dialect, many: Sequence[Mapping[str, object]]) -> None:
        """Ask it once for each of many parameters."""
        words = self._words.get(dialect.name) or self.compile(dialect)
        driver.cursor().executemany(words.text, many)  # type: ignore[arg-type]

    def compile(self, dialect: Dialect) -> _Words:
        """Return it in a dialect, as it is kept from now on.

        Raises ValueError where it has values of its own.
        """
        on_postgres = dialect.name == "postgresql"
        statement = self.statement
        if callable(statement):
            statement = statement(postgresql.insert if on_postgres else sqlite.insert)
        compiled = statement.compile(dialect=dialect if on_postgres else _SQLITE, column_keys=self._columns)
        constants = [name for name, bind in compiled.binds.items() if not bind.required]
        if constants:
            raise ValueError(f"{', '.join(constants)}: a prepared statement has no values of its own, only parameters")
        names = [str(name) for name in statement.exported_columns.keys()]  # noqa: SIM118 -- not a dictionary
        row: Any = namedtuple("Row", names) if names else None
        text = compiled.string.encode() if on_postgres else compiled.string
        words = _Words(text, partial(tuple.__new__, row) if row else None)
        self._words[dialect.name] = words
        return words


class _Texts(FunctionElement[str]):
    type = Text()
    inherit_cache = True


def table_of_texts(parameter: BindParameter[str]) -> TableValuedAlias:
    """Return a table of a JSON list of texts, with the column `value`."""
    return _Texts(parameter).table_valued("value")


@compiles(_Texts, "sqlite")
def _write_for_sqlite(texts: _Texts, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(texts.clauses, **options)})"


@compiles(_Texts, "postgresql")
def _write_for_postgresql(texts: _Texts, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_array_elements_text(CAST({compiler.process(texts.clauses, **options)} AS JSON))"
