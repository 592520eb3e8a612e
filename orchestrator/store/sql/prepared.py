"""Statements that every change asks: built once, put into each database's words once, carried out by its driver itself.

SQLAlchemy takes forty microseconds to carry out what SQLite does in three, and a change of one rule asks fifteen
things. So the statements on that way are written with SQLAlchemy as all others are, but of what it makes of them only
the text is kept. What a driver cannot be given as it is (lists of values, types that are converted) does not belong
here; numbers, texts and octets do.
"""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from sqlalchemy import Dialect, Row, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import Insert, Select
from sqlalchemy.sql.dml import UpdateBase

Driver = sqlite3.Connection | psycopg.Connection[Any]
"""A connection as the driver knows it."""

Rows = list[Row[Any]]
"""As far as anybody looks: they are named tuples, with a row's columns by name."""

Insertion = Callable[[Table], "sqlite.Insert | postgresql.Insert"]
"""Begins an INSERT that can say what to do where the row is there already."""


@dataclass(frozen=True, slots=True)
class _Words:
    """A statement as one kind of database is asked it; `places` are its parameters in order, `row` makes a row."""

    text: str
    octets: bytes
    places: tuple[str, ...]
    row: Callable[[Sequence[object]], Any] | None


class Prepared:
    """One statement. Its parameters are its `bindparam` names; those of an INSERT are `columns`.

    `statement` may also be a function, for what each kind of database says in its own way.
    """

    def __init__(
        self, statement: Select[Any] | UpdateBase | Callable[[Insertion], Insert], columns: Sequence[str] | None = None
    ) -> None:
        self._statement = statement
        self._columns = columns
        self._words: dict[str, _Words] = {}
        example = statement(sqlite.insert) if callable(statement) else statement
        self.changes: object = example.table if isinstance(example, UpdateBase) else None
        """The table that it changes; None for a query."""

    def carry_out(self, driver: Driver, dialect: Dialect, parameters: Mapping[str, object]) -> Rows:
        """Ask it, and give back what it returns."""
        words = self._words.get(dialect.name) or self._put(dialect)
        if isinstance(driver, sqlite3.Connection):
            answer: Any = driver.execute(words.text, [parameters[name] for name in words.places])
        else:
            answer = driver.execute(words.octets, parameters)
        return [] if words.row is None else [words.row(row) for row in answer.fetchall()]

    def carry_out_each(self, driver: Driver, dialect: Dialect, many: Sequence[Mapping[str, object]]) -> None:
        """Ask it once for each of many parameters."""
        words = self._words.get(dialect.name) or self._put(dialect)
        if isinstance(driver, sqlite3.Connection):
            driver.executemany(words.text, [[each[name] for name in words.places] for each in many])
            return
        with driver.cursor() as cursor:
            cursor.executemany(words.octets, many)

    def _put(self, dialect: Dialect) -> _Words:
        statement = self._statement
        if callable(statement):
            statement = statement(postgresql.insert if dialect.name == "postgresql" else sqlite.insert)
        compiled = statement.compile(dialect=dialect, column_keys=self._columns)
        constants = [name for name, bind in compiled.binds.items() if not bind.required]
        if constants:
            raise ValueError(f"{', '.join(constants)}: a prepared statement has no values of its own, only parameters")
        names = [str(name) for name in statement.exported_columns.keys()]  # noqa: SIM118 -- not a dictionary
        row: Any = namedtuple("Row", names) if names else None
        words = _Words(
            compiled.string, compiled.string.encode(), tuple(compiled.positiontup or ()), row._make if row else None
        )
        self._words[dialect.name] = words
        return words
