"""What the repositories of one unit share: the connection, the time, the memory of lists, and what was changed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from sqlalchemy import Connection, CursorResult, Delete, Executable, Row, Table, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from orchestrator.errors import BadInput, NotFound, Stale
from orchestrator.policy.formats.native import at, read_text
from orchestrator.store.aclcache import AclCache, CachedAcl, ListMoves
from orchestrator.store.faults import translated
from orchestrator.store.keys import to_micros
from orchestrator.store.policycache import PolicyCache
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.schema import counters, domains, enforcers, tenants, tokens

_T = TypeVar("_T")

_BEARERS = frozenset({tokens, tenants, enforcers})
"""Tables whose rows are tokens, or take theirs with them when they go."""

_TENANT = select(tenants).where(tenants.c.id == bindparam("called"))
_DOMAIN = select(domains).where(domains.c.id == bindparam("called"))
_MOVE = (
    update(domains)
    .where(domains.c.id == bindparam("called"))
    .values(generation=domains.c.generation + bindparam("by"))
    .returning(domains.c.generation)
)
_DRAW = (
    update(counters)
    .where(counters.c.name == bindparam("called"))
    .values(next=counters.c.next + bindparam("by"))
    .returning(counters.c.next)
)
"""What every change asks is built once: building a statement takes several times as long as executing it."""

Parameters = Mapping[str, object] | Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Limits of a store, with their defaults."""

    busy_timeout_s: float = 5.0
    events_kept: int = 10_000
    versions_kept: int = 1_000
    cached_rules: int = 100_000
    replies_kept_h: float = 24.0


@dataclass(slots=True)
class Transaction:
    """One transaction under way.

    `generations` holds the domains whose generation moved in it, `lists` the tenants whose access list was changed,
    `reshaped` the domains of which more than lists changed. `fresh` (the newest list of every tenant number that was
    read or written in it) and `snapshots` (the policies) are for the shared caches once it is committed; `moves` is
    what it did to the rows of a list, `takes_tokens` whether tokens may be gone with it. After a database error it is
    `spent` and cannot be committed, because SQLite may have rolled back by itself and would then commit every later
    statement on its own.
    """

    connection: Connection
    now: dt.datetime
    writing: bool
    settings: StoreSettings
    cache: AclCache
    policies: PolicyCache
    generations: dict[str, int] = field(default_factory=dict)
    lists: set[str] = field(default_factory=set)
    reshaped: set[str] = field(default_factory=set)
    fresh: dict[int, CachedAcl] = field(default_factory=dict)
    moves: dict[int, ListMoves] = field(default_factory=dict)
    snapshots: dict[str, PolicySnapshot] = field(default_factory=dict)
    _owners: dict[str, Row[Any]] = field(default_factory=dict)
    last_event: int | None = None
    spent: str | None = None
    stride: int = 1
    takes_tokens: bool = False

    @property
    def micros(self) -> int:
        """The time of the transaction as the tables keep it."""
        return to_micros(self.now)

    @property
    def on_postgres(self) -> bool:
        return self.connection.dialect.name == "postgresql"

    def read(self, statement: Executable, parameters: Parameters | None = None) -> CursorResult[Any]:
        """Execute a query."""
        return self._run(lambda: self.connection.execute(statement, parameters))

    def _run(self, work: Callable[[], _T]) -> _T:
        if self.spent is not None:
            raise RuntimeError(f"{self.spent}: begin a new unit")
        try:
            with translated():
                return work()
        except BaseException as error:
            self.spent = f"a statement of this unit of work failed ({type(error).__name__})"
            raise

    def write(self, statement: Executable, parameters: Parameters | None = None) -> CursorResult[Any]:
        """Execute a change; a list of parameters executes it in bulk."""
        self._must_write()
        table = getattr(statement, "table", None)
        if table is tenants:
            self._owners.clear()
        if isinstance(statement, Delete) and table in _BEARERS:
            self.takes_tokens = True
        return self.read(statement, parameters)

    def _must_write(self) -> None:
        if not self.writing:
            raise RuntimeError("this unit only reads: use store.write()")

    def insert_rows(self, table: Table, columns: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
        """Insert many rows, as tuples in the order of `columns`, by the shortest way that the driver has."""
        self._must_write()
        names = ", ".join(columns)
        if self.on_postgres:
            self._run(lambda: self._copy(f"COPY {table.name} ({names}) FROM STDIN", rows))
            return
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table.name} ({names}) VALUES ({marks})"  # noqa: S608 - names of ours
        listed = list(rows)
        if listed:
            self._run(lambda: self.connection.exec_driver_sql(statement, listed))

    def _copy(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        driver = self.connection.connection.driver_connection
        assert isinstance(driver, psycopg.Connection)
        with driver.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def upsert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that can say what to do where the row is there already."""
        return postgresql.insert(table) if self.on_postgres else sqlite.insert(table)

    def draw(self, counter: str, count: int = 1) -> int:
        """The first of `count` consecutive numbers that were never drawn before."""
        taken = self.write(_DRAW, {"called": counter, "by": count}).scalar_one_or_none()
        if taken is None:
            self.write(insert(counters).values(name=counter, next=1 + count))
            return 1
        return int(taken) - count

    def highest(self, counter: str) -> int:
        """The highest number ever noted under a name, or 0."""
        return self.read(select(counters.c.next).where(counters.c.name == counter)).scalar_one_or_none() or 0

    def raise_highest(self, counter: str, number: int) -> None:
        """Note a number under a name unless a higher one is noted there."""
        if number > self.highest(counter):
            noted = self.upsert(counters).values(name=counter, next=number)
            self.write(noted.on_conflict_do_update(index_elements=["name"], set_={"next": number}))

    def tenant(self, tenant: str) -> Row[Any]:
        """A tenant's row, as this transaction sees it. Raises NotFound."""
        row = self._owners.get(tenant)
        if row is None:
            row = self.read(_TENANT, {"called": tenant}).one_or_none()
            if row is None:
                raise NotFound(f"there is no tenant '{tenant}'")
            self._owners[tenant] = row
        return row

    def domain(self, domain: str) -> Row[Any]:
        """A domain's row. Raises NotFound."""
        row = self.read(_DOMAIN, {"called": domain}).one_or_none()
        if row is None:
            raise NotFound(f"there is no domain '{domain}'")
        return row

    def bump(self, domain: str) -> int:
        """Move a domain's generation, once a transaction, and return it: something in its policy has changed."""
        self.reshaped.add(domain)
        return self._moved(domain)

    def bump_for_list(self, owner: Row[Any]) -> int:
        """The same where nothing changed but the access list of a tenant, whose row this is."""
        self.lists.add(owner.id)
        return self._moved(owner.domain)

    def _moved(self, domain: str) -> int:
        if domain not in self.generations:
            self.generations[domain] = self.write(_MOVE, {"called": domain, "by": self.stride}).scalar_one()
        return self.generations[domain]


def expect(expected: int | None, actual: int) -> None:
    """Refuse a write that was made for another version. None expects nothing. Raises Stale."""
    if expected is not None and expected != actual:
        raise Stale(f"it is at version {actual}, not {expected}: read it again, then write")


def one_line(words: str, *, place: str, longest: int = 255) -> None:
    """Refuse free text that a database or a log line could not keep as it is. Raises BadInput."""
    at(place, read_text, words)
    if len(words) > longest:
        raise BadInput(f"longer than {longest} characters", place=place)
