"""State that the repositories of one unit share: connection, time, memory of lists, and changes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, ParamSpec, TypeVar

import psycopg
from sqlalchemy import Connection, CursorResult, Delete, Executable, Row, Table, bindparam, insert, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from orchestrator.errors import BadInput, NotFound, Stale
from orchestrator.policy.formats.native_values import at, read_text
from orchestrator.store.acls.cache import AclCache, CachedAcl, ListMoves, NameCache
from orchestrator.store.chains import Chain, EditedRows, Head
from orchestrator.store.policycache import KnownPop, PolicyCache, PopCache
from orchestrator.store.records import ListsChanged, PolicySnapshot
from orchestrator.store.schema.core import counters, domains, enforcers, hosts, tenants, tokens
from orchestrator.store.schema.firewalls import fleet_members
from orchestrator.store.sql.faults import translate_faults
from orchestrator.store.sql.keys import to_micros
from orchestrator.store.sql.prepared import Prepared, Rows, driver_of

_P = ParamSpec("_P")
_T = TypeVar("_T")

_ROWS_AT_ONCE = 100
"""So many rows go into one INSERT on SQLite: a quarter faster than one by one, and far from its limit of values."""

_BEARERS = frozenset({tokens, tenants, enforcers})
"""Tables whose rows are tokens, or take theirs with them when they go."""

LAST_BACKUP = "last_backup"
"""The counter that notes when the store was backed up last, in microseconds."""
_TENANT = Prepared(select(tenants).where(tenants.c.id == bindparam("called")))
_DOMAIN = Prepared(select(domains).where(domains.c.id == bindparam("called")))
_MOVE = Prepared(
    update(domains)
    .where(domains.c.id == bindparam("called"))
    .values(generation=domains.c.generation + bindparam("by"))
    .returning(*domains.c)
)
_DRAW = Prepared(
    update(counters)
    .where(counters.c.name == bindparam("called"))
    .values(next=counters.c.next + bindparam("by"))
    .returning(counters.c.next)
)

Parameters = Mapping[str, object] | Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """How much history of counts is kept.

    `moments_s`, `minutes_s` and `hours_s` are the seconds that each resolution is kept, `limit_bytes` is what a
    domain's may take up in all.
    """

    moments_s: float = 900.0
    minutes_s: float = 2 * 86400.0
    hours_s: float = 400 * 86400.0
    limit_bytes: int = 256 << 20
    losses_kept: int = 10_000


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Limits of a store, with their defaults."""

    busy_timeout_s: float = 5.0
    connections: int = 40
    """To the database, at most."""
    events_kept: int = 10_000
    """Of each ring; of a tenant's at most 2,000."""
    packets_kept: int = 10_000
    """Records of the packet log, of every tenant."""
    packets_key: bytes | None = field(default=None, repr=False)
    """32 bytes that headers of the packet log are encrypted with; none: they are kept as they are."""
    versions_kept: int = 1_000
    stored_bytes_kept: int = 256 << 20
    """The storage for a tenant's list and its history, where its quota does not say; the oldest versions go first."""
    cached_rules: int = 2_000_000
    """The policy of a domain holds its current rules anyway, so a cache of them costs little more."""
    replies_kept_h: float = 24.0
    token_lasts: dt.timedelta = dt.timedelta(days=365)
    """How long a token lasts at most, and where nothing is said."""
    history: HistorySettings = HistorySettings()


NO_TIME = dt.timedelta()


class Elsewhere(Exception):
    """A transaction came to move a domain outside the part that it may write."""


def domain_part(domain: str) -> str:
    """Return the part of the store that holds a domain.

    That is its policy, its tenants and what they have.
    """
    return f"domain {domain}"


@dataclass(slots=True)
class Touched:
    """The tenants and endpoints of a domain, by name, that came, went or changed."""

    tenants: set[str] = field(default_factory=set)
    endpoints: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Writes one log entry; one that `locks` takes the lock of the log itself."""

    write: Callable[[], None]
    locks: bool = False


@dataclass
class Transaction:
    """One transaction under way.

    `generations` holds the domains whose generation moved in it (`moving` those that the piece of work under way has
    moved), `lists` the tenants whose access list was changed, with its version before, `touched` the tenants and
    endpoints that came, went or changed otherwise, `reshaped` the domains of which still more changed, `placed` those
    whose lifted rules did, `replaced` those with other places or lines. `fresh` (the newest list of every tenant number
    that was read or written in it), `snapshots` (the policies) and `pops` are for the shared caches once it is
    committed; `moves` is what it did to the rows of a list, `takes_tokens` whether tokens may be gone with it,
    `moves_hosts` whether hosts came or went, or what was read back of them went, `sets_times` whether rules that expire
    may have come in. After a database error it is `spent` and cannot be committed, because SQLite may have rolled back
    by itself and would then commit every later statement on its own.
    """

    connection: Connection
    now: dt.datetime
    writing: bool
    settings: StoreSettings
    cache: AclCache
    policies: PolicyCache
    known_pops: PopCache
    names: NameCache = field(default_factory=lambda: NameCache(0))
    jumped: dt.timedelta = NO_TIME
    """By how much the clock has jumped forward since the store was opened (`SteadyClock`)."""
    generations: dict[str, int] = field(default_factory=dict)
    moving: dict[str, int] = field(default_factory=dict)
    lists: dict[str, int] = field(default_factory=dict)
    rules_before: dict[str, int] = field(default_factory=dict)
    """How many rules those lists had, where their version before is forgotten by now."""
    reverted: set[str] = field(default_factory=set)
    rehearses: bool = False
    """Whether it is undone in any case, so that it may do what another person must approve."""
    touched: dict[str, Touched] = field(default_factory=dict)
    reshaped: set[str] = field(default_factory=set)
    placed: set[str] = field(default_factory=set)
    fresh: dict[int, CachedAcl] = field(default_factory=dict)
    moves: dict[int, ListMoves] = field(default_factory=dict)
    snapshots: dict[str, PolicySnapshot] = field(default_factory=dict)
    steps: dict[str, str] = field(default_factory=dict)
    """By domain, what other services are passed with the notice of the commit."""
    pops: dict[str, KnownPop] = field(default_factory=dict)
    replaced: set[str] = field(default_factory=set)
    _tenants: dict[str, Row[Any]] = field(default_factory=dict)
    _domains: dict[str, Row[Any]] = field(default_factory=dict)
    last_event: int | None = None
    spent: str | None = None
    stride: int = 1
    takes_tokens: bool = False
    moves_hosts: bool = False
    sets_times: bool = False
    part: str | None = None
    """The part of the store that it may write, where others write the rest meanwhile; None: all of it."""
    draw_apart: Callable[[str, int], int] | None = None
    """Draws numbers in a transaction of its own: a row of counters would be held until this one ends."""
    to_log: list[LogEntry] = field(default_factory=list)
    """Events that are logged at the end, because others log meanwhile."""
    chain: Chain = field(default_factory=Chain)
    """The audit trail's, of this process; `head` is its newest entry where this transaction wrote one."""
    head: Head | None = None
    edited: dict[int, EditedRows] = field(default_factory=dict)
    """The rows of lists, by tenant number, that were edited since the last audit entry about the tenant."""

    def __post_init__(self) -> None:
        self._driver = driver_of(self.connection)
        self._dialect = self.connection.dialect
        self.on_postgres = self._dialect.name == "postgresql"
        self.micros = to_micros(self.now)
        """The time of the transaction as the tables keep it."""

    def read(self, statement: Executable, parameters: Parameters | None = None) -> CursorResult[Any]:
        """Execute a query."""
        return self._run_guarded(self.connection.execute, statement, parameters)

    def rows(self, statement: Prepared, /, **parameters: object) -> Rows:
        """Carry out a prepared statement, query or change; what it returns."""
        if statement.changes is not None:
            self._may_change(statement.changes)
        return self._run_guarded(statement.carry_out, self._driver, self._dialect, parameters)

    def each(self, statement: Prepared, many: Sequence[Mapping[str, object]]) -> None:
        """Carry out a prepared change for each of many parameters."""
        if len(many) == 1:
            self.rows(statement, **many[0])
        elif many:
            self._may_change(statement.changes)
            self._run_guarded(statement.carry_out_each, self._driver, self._dialect, many)

    def row(self, statement: Prepared, /, **parameters: object) -> Row[Any] | None:
        """The one row that a prepared statement returns, or None."""
        found = self.rows(statement, **parameters)
        return found[0] if found else None

    def _run_guarded(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if self.spent is not None:
            raise RuntimeError(f"{self.spent}: begin a new unit")
        try:
            return work(*args, **kwargs)
        except BaseException as error:
            self.spent = f"a statement of this unit of work failed ({type(error).__name__})"
            with translate_faults():
                raise

    def write(self, statement: Executable, parameters: Parameters | None = None) -> CursorResult[Any]:
        """Execute a change; a list of parameters executes it in bulk."""
        table = getattr(statement, "table", None)
        self._may_change(table)
        if isinstance(statement, Delete) and table in _BEARERS:
            self.takes_tokens = True
        result = self.read(statement, parameters)
        if isinstance(statement, Delete) and table is enforcers and result.rowcount:
            self.moves_hosts = True  # what was read back by them goes with them
        return result

    def _may_change(self, table: object) -> None:
        """Forget remembered rows of a table that is about to change.

        They are read again when they are needed.
        """
        self._check_writing()
        if table is tenants:
            self._tenants.clear()
        elif table is domains:
            self._domains.clear()
        elif table is hosts or table is fleet_members:  # a VNF counts as a host when it has served
            self.moves_hosts = True

    def _check_writing(self) -> None:
        if not self.writing:
            raise RuntimeError("this unit only reads: use store.write()")

    def insert_rows(self, table: Table, columns: Sequence[str], rows: Iterable[tuple[object, ...]]) -> None:
        """Insert many rows by the driver's shortest way.

        Rows are tuples in the order of `columns`.
        """
        self._check_writing()
        names = ", ".join(columns)
        if self.on_postgres:
            self._run_guarded(lambda: self._copy_rows(f"COPY {table.name} ({names}) FROM STDIN", rows))
            return
        marks = f"({', '.join('?' * len(columns))})"
        statement = f"INSERT INTO {table.name} ({names}) VALUES "  # noqa: S608 - names of ours
        listed = list(rows)
        for start in range(0, len(listed), _ROWS_AT_ONCE):
            part = listed[start : start + _ROWS_AT_ONCE]
            values = list(chain.from_iterable(part))
            self._run_guarded(partial(self._driver.execute, statement + ", ".join([marks] * len(part)), values))

    def _copy_rows(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        assert isinstance(self._driver, psycopg.Connection)
        with self._driver.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for row in rows:
                copy.write_row(row)

    def upsert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that can say what to do where the row is there already."""
        return postgresql.insert(table) if self.on_postgres else sqlite.insert(table)

    def edit(self, tenant: int) -> EditedRows:
        """Audit entries of the rows of a tenant's list that are edited."""
        return self.edited.setdefault(tenant, EditedRows())

    def draw(self, counter: str, count: int = 1) -> int:
        """The first of `count` consecutive numbers that were never drawn before."""
        self._check_writing()
        if self.draw_apart is not None:
            return self.draw_apart(counter, count)
        taken = self.row(_DRAW, called=counter, by=count)
        if taken is None:
            self.write(insert(counters).values(name=counter, next=1 + count))
            return 1
        return int(taken.next) - count

    def database_micros(self) -> int:
        """Return the time of the clock that all services on the database share.

        It is in microseconds. On SQLite it is the transaction's time.
        """
        if not self.on_postgres:
            return self.micros
        return int(self.read(text("SELECT extract(epoch FROM clock_timestamp()) * 1000000")).scalar_one())

    def log(self, write: Callable[[], None], *, locks: bool = False) -> None:
        """Write a log entry: now, or before the commit where others may log meanwhile.

        Ids of entries are in the order of commits either way.
        """
        if self.part is None:
            write()
        else:
            self.to_log.append(LogEntry(write, locks))

    def write_log(self, lock: Callable[[], None]) -> None:
        """Write the log entries that were put off, after `lock`.

        The lock is left out where the first entry takes it.
        """
        entries, self.to_log = self.to_log, []
        if entries and not entries[0].locks:
            lock()
        for entry in entries:
            entry.write()

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
        row = self._tenants.get(tenant)
        if row is None:
            row = self.row(_TENANT, called=tenant)
            if row is None:
                raise NotFound(f"there is no tenant '{tenant}'")
            self._tenants[tenant] = row
        return row

    def domain(self, domain: str) -> Row[Any]:
        """A domain's row, as this transaction sees it. Raises NotFound."""
        row = self._domains.get(domain)
        if row is None:
            row = self.row(_DOMAIN, called=domain)
            if row is None:
                raise NotFound(f"there is no domain '{domain}'")
            self._domains[domain] = row
        return row

    def change_tenant(self, statement: Prepared, /, **parameters: object) -> None:
        """Change a tenant's row by a prepared statement that returns it, and remember it."""
        for row in self.rows(statement, **parameters):
            self._tenants[row.id] = row

    def bump(self, domain: str) -> int:
        """Move a domain's generation after a change of its policy, and return it.

        It moves once a transaction.
        """
        self.reshaped.add(domain)
        return self._raise_generation(domain)

    def bump_for_tenant(self, domain: str, tenant: str) -> int:
        """Bump the generation where a tenant came, went, or has other prefixes."""
        self.touched.setdefault(domain, Touched()).tenants.add(tenant)
        return self._raise_generation(domain)

    def bump_for_endpoint(self, domain: str, endpoint: str) -> int:
        """Bump the generation where an endpoint came, went or changed."""
        self.touched.setdefault(domain, Touched()).endpoints.add(endpoint)
        return self._raise_generation(domain)

    def bump_for_hosts(self, domain: str) -> int:
        """Bump it where hosts came or went, which the policy does not name."""
        self.touched.setdefault(domain, Touched())
        return self._raise_generation(domain)

    def bump_for_list(self, owner: Row[Any]) -> int:
        """Move a domain's generation after a change of one tenant's list only.

        `owner` is the tenant's row, at the first change with the version before it. Returns the generation.
        """
        self.lists.setdefault(owner.id, int(owner.acl_version))
        return self._raise_generation(owner.domain)

    def bump_for_placement(self, domain: str) -> int:
        """Bump the generation where nothing changed but which rules are lifted."""
        self.placed.add(domain)
        return self._raise_generation(domain)

    def lists_changed(self) -> Mapping[str, ListsChanged]:
        """Return the moved domain and its changed lists, where nothing else changed.

        It is empty in all other cases.
        """
        if len(self.generations) != 1 or not self.lists or self.touched or self.moves_hosts:
            return {}
        if self.reshaped or self.placed or self.replaced:
            return {}
        ((domain, generation),) = self.generations.items()
        return {domain: ListsChanged(generation - self.stride, tuple(sorted(self.lists)))}

    def _raise_generation(self, domain: str) -> int:
        if self.part is not None and self.part != domain_part(domain):
            raise Elsewhere(f"domain '{domain}' moves in a transaction that writes '{self.part}' only")
        if domain not in self.generations:
            row = self.row(_MOVE, called=domain, by=self.stride)
            if row is None:
                raise NotFound(f"there is no domain '{domain}'")
            self._domains[domain] = row
            self.generations[domain] = row.generation
        self.moving[domain] = self.generations[domain]
        return self.generations[domain]


def expect(expected: int | None, actual: int) -> None:
    """Refuse a write that was made for another version. None expects nothing. Raises Stale."""
    if expected is not None and expected != actual:
        raise Stale(f"it is at version {actual}, not {expected}: read it again, then write")


def one_line(words: str, *, place: str, longest: int = 255) -> None:
    """Refuse free text that a database or log line cannot keep. Raises BadInput."""
    at(place, read_text, words)
    if len(words) > longest:
        raise BadInput(f"longer than {longest} characters", place=place)
