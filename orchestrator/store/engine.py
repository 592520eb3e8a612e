"""Opening a store, and its units of work.

    open_store(url) ── Store ──┬── write() ── Unit     one at a time; on PostgreSQL one for each part of the store
                               ├── turn()  ── Turn     the same, for callers that commit and publish step by step
                               ├── read()  ── Unit     any number, each sees one state
                               └── subscribe()         a listener is called after each commit

A writer that names its part (`domain_part`) shares the store with writers of other parts, where the database is
PostgreSQL; one that names none waits for all of them, and they for it. Tables that parts have in common are written so
that nobody waits long: numbers are drawn in transactions of their own, and logs are written right before the commit.

The memory of access lists and the listeners learn of a change only after it is committed.
"""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from sqlalchemy import Connection, Engine, text

from orchestrator.errors import Busy, Unreachable
from orchestrator.store.acls.cache import AclCache, NameCache
from orchestrator.store.chains import Chain
from orchestrator.store.migrate import prepare
from orchestrator.store.policycache import PolicyCache, PopCache
from orchestrator.store.records import Committed, Principal
from orchestrator.store.sql.clock import DatabaseClock, SteadyClock, utc_now
from orchestrator.store.sql.database import begin_reading, begin_writing, connect_pool, lock_log, sync_log
from orchestrator.store.sql.faults import translate_faults
from orchestrator.store.sql.keys import certificate_digest, digest_of, to_micros
from orchestrator.store.sql.livingservices import Members
from orchestrator.store.sql.notices import Listener, Notices
from orchestrator.store.tokens import PrincipalCache
from orchestrator.store.transaction import StoreSettings, Transaction
from orchestrator.store.unit import Unit


@dataclass(frozen=True, slots=True)
class Turn:
    """A writer's turn: its unit of work, and the commit, which returns what was committed."""

    unit: Unit
    commit: Callable[[], Committed]


class Store:
    """A database, shared by all threads of a process.

    `is_alone`: no other process may write to it.
    """

    def __init__(
        self,
        engine: Engine,
        settings: StoreSettings,
        clock: SteadyClock,
        name: str = "",
        shared: DatabaseClock | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self._clock = clock
        self._cache = AclCache(settings.cached_rules)
        self.policies = PolicyCache()
        self._pops = PopCache()
        self._names = NameCache(settings.cached_rules)
        self._principals = PrincipalCache()
        self._chain = Chain()
        self.is_alone = engine.dialect.name == "sqlite"
        self.members = None if self.is_alone else Members(engine.url, name, shared)
        """The services that share the store; None where there is one."""
        self._counting = threading.Lock()
        self.host_changes = 0
        """Grows in every turn that commits hosts that came or went."""
        self._turn = threading.Lock()
        """Of the one writer; on PostgreSQL, the database's locks are enough."""
        self._logging = threading.Lock()
        """Held around a commit that adds to this process's audit trail, until its head is noted here."""
        self._writers: deque[Connection] = deque()
        self._numbers = _Numbers(engine)
        self._notices = Notices(engine, lambda committed: self.policies.note(committed.domains, committed.lists))

    @property
    def patience_s(self) -> float:
        """How long a writer waits for others."""
        return self.settings.busy_timeout_s

    def now(self) -> dt.datetime:
        """Return the time as units of work bear it."""
        return self._clock()

    def part(self, name: str) -> str | None:
        """Return a part's name as writers must give it; None with a single writer.

        A store with one writer at a time (SQLite) has no parts.
        """
        return None if self.is_alone else name

    @contextmanager
    def write(
        self, *, stride: int = 1, part: str | None = None, shown: Callable[[], None] | None = None
    ) -> Iterator[Unit]:
        """One transaction that may write; commits at the end, rolls back on any exception.

        `shown` is called as soon as readers see the change, which on SQLite is before it is on the disk: for what is
        true whether or not it is remembered. Listeners are told, and the block is left, when it is on the disk.

        Generations move by `stride`: 2 leaves one free before the new one, for what is to be enforced first.
        Raises Busy when another writer holds the store for longer than `busy_timeout_s`; nothing was changed then.
        Where the connection breaks during the commit itself, Unreachable is raised and the change may be there.
        """
        with self.turn(stride=stride, synced=shown is None, part=part) as turn:
            yield turn.unit
            committed = turn.commit()
            if shown is not None:
                shown()
        if shown is not None:
            sync_log(self.engine)
        self.tell(committed)

    @contextmanager
    def turn(
        self, *, stride: int = 1, synced: bool = True, part: str | None = None, rehearses: bool = False
    ) -> Iterator[Turn]:
        """One transaction that may write, which its `commit` ends; left without that, nothing was changed.

        `part` is all that it writes, as `Store.part` returns it. One that `rehearses` may do what another person must
        approve; it cannot be committed. Raises Elsewhere where it moves a domain of another part. Listeners are not
        told: `tell` does. Raises as `write` does.
        """
        if self.is_alone and not self._turn.acquire(timeout=self.settings.busy_timeout_s):
            raise Busy("another writer holds the store: try again")
        try:
            with self._transaction(writing=True, synced=synced, part=self.part(part) if part else None) as tx:
                tx.stride, tx.rehearses = stride, rehearses
                yield Turn(Unit(tx), partial(self._commit, tx))
        finally:
            if self.is_alone:
                self._turn.release()

    def tell(self, committed: Committed, *, besides: Listener | None = None) -> None:
        """Tell listeners of a commit, but for one that knows of it already."""
        if not committed.is_nothing:
            self._notices.tell(committed, besides=besides)

    @contextmanager
    def read(self) -> Iterator[Unit]:
        """One snapshot; a unit from here refuses to write."""
        with self._transaction(writing=False) as tx:
            yield Unit(tx)
            self._remember_written(tx)

    def known_bearer(self, secret: str) -> Principal | None:
        """Return a token's bearer, if known without a look into the database.

        For callers that must not wait.
        """
        return self._known_principal(digest_of(secret))

    def bearer(self, secret: str) -> Principal:
        """Return a token's bearer.

        Raises Unauthenticated: unknown, revoked and expired look the same.
        """
        return self._read_principal(digest_of(secret))

    def known_certified(self, fingerprint: bytes) -> Principal | None:
        """Return a certificate's bearer by its fingerprint (SHA-256), if known without the database."""
        return self._known_principal(certificate_digest(fingerprint))

    def certificate_bearer(self, fingerprint: bytes) -> Principal:
        """Return a certificate's bearer.

        Raises Unauthenticated: unknown, revoked and expired look the same.
        """
        return self._read_principal(certificate_digest(fingerprint))

    @property
    def bearers_gone(self) -> int | None:
        """A number that grows when bearers may be gone; None with other processes."""
        return self._principals.cleared if self.is_alone else None

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after every commit that moved a generation or logged an event.

        Returns how to stop it.

        Called on the thread that committed, and on PostgreSQL also, on a thread of its own, for other processes'
        commits: hand over to your own loop (`loop.call_soon_threadsafe`) and return at once. A `Committed` that names
        nothing says that notices may have been lost: look for yourself.
        """
        return self._notices.subscribe(listener)

    def check(self) -> None:
        """Raise (Busy, Unreachable) unless the database answers: for readiness probes."""
        with translate_faults(), self.engine.connect() as connection:
            connection.execute(text("SELECT 1"))

    def close(self) -> None:
        """Stop listening and give all connections back. Units still open end first."""
        if self.members is not None:
            self.members.leave()
        self._notices.close()
        with self._turn:
            while self._writers:
                self._writers.pop().close()
            self.engine.dispose()

    def _known_principal(self, digest: bytes) -> Principal | None:
        bearer = self._principals.get(digest) if self.is_alone else None
        return bearer.principal if bearer is not None and bearer.holds(to_micros(self._clock())) else None

    def _read_principal(self, digest: bytes) -> Principal:
        cleared = self._principals.cleared
        with self.read() as unit:
            bearer = unit.tokens.bearer(digest)
        self._principals.put(digest, bearer, cleared)
        return bearer.principal

    @contextmanager
    def _transaction(self, *, writing: bool, synced: bool = True, part: str | None = None) -> Iterator[Transaction]:
        """Open a transaction; one that writes may lock only a part of the store."""
        connection = self._writing(synced, part) if writing else _begin(self._connect(), begin_reading)
        if writing and part is None and not self.is_alone:
            with self._logging:  # the commit before is in the database, and its head may not be noted here yet
                pass
        caches = self._cache, self.policies, self._pops, self._names
        draw = None if part is None else self._numbers.draw
        tx = Transaction(
            connection,
            self._clock(),
            writing,
            self.settings,
            *caches,
            jumped=self._clock.jumped,
            chain=self._chain,
            part=part,
            draw_apart=draw,
        )
        try:
            yield tx
        except Unreachable:
            connection.invalidate()
            raise
        finally:
            tx.spent = tx.spent or "this unit of work is over"
            if writing and connection.get_transaction() is None:  # a commit that broke leaves one behind
                self._writers.append(connection)
            else:
                _give_back(connection)

    def _writing(self, synced: bool, part: str | None) -> Connection:
        """Return a connection that wrote before, if it is good, else a new one."""
        begin = partial(begin_writing, synced=synced, part=part)
        try:
            kept = self._writers.pop()
        except IndexError:
            return _begin(self._connect(), begin)
        with suppress(Unreachable):  # the database was away meanwhile
            return _begin(kept, begin)
        return _begin(self._connect(), begin)

    def _connect(self) -> Connection:
        """A connection of the pool. Raises Busy, Unreachable."""
        with translate_faults():
            return self.engine.connect()

    def _commit(self, tx: Transaction) -> Committed:
        """Commit the transaction. Raises Unreachable where the connection broke: the change may be there then."""
        if tx.spent is not None or tx.rehearses:
            raise RuntimeError(f"{tx.spent or 'this was a rehearsal'}, so it cannot be committed")
        with self._logging if tx.to_log or tx.head else nullcontext():
            tx.write_log(partial(lock_log, tx.connection))
            committed = Committed(
                MappingProxyType(dict(tx.generations)), tx.last_event, tx.moves_hosts, tx.lists_changed(), tx.steps
            )
            try:
                announced = nullcontext() if committed.is_nothing else self._notices.announce(tx, committed)
                with announced, translate_faults():
                    tx.connection.commit()
            except BaseException:
                self._chain.doubt(tx.head)
                raise
            else:
                self._chain.commit(tx.head)
            finally:
                if tx.takes_tokens:
                    self._principals.clear()
        if committed.hosts:
            with self._counting:
                self.host_changes += 1
        self._remember_written(tx)
        return committed

    def _remember_written(self, tx: Transaction) -> None:
        for tenant, entry in tx.fresh.items():
            self._cache.put(tenant, entry)
        for domain, snapshot in tx.snapshots.items():
            self.policies.put(domain, snapshot)
        for domain, known in tx.pops.items():
            self._pops.put(domain, known)


class _Numbers:
    """Numbers drawn in transactions of their own, so that no writer waits for another's counters.

    Numbers that a failing writer has drawn are lost. A draw is on the disk no later than what was made with it: both
    are in the database's log, in this order.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def draw(self, counter: str, count: int) -> int:
        """Return the first of `count` consecutive numbers that nobody else draws. Raises Busy, Unreachable."""
        with translate_faults(), self._engine.begin() as connection:
            connection.execute(text("SET LOCAL synchronous_commit = off"))
            next_number = connection.execute(_DRAW, {"name": counter, "first": 1 + count, "count": count}).scalar_one()
        return int(next_number) - count


_DRAW = text(
    "INSERT INTO counters (name, next) VALUES (:name, :first) "
    "ON CONFLICT (name) DO UPDATE SET next = counters.next + :count RETURNING next"
)


def _begin(connection: Connection, begin: Callable[[Connection], None]) -> Connection:
    """A connection with a transaction begun. Raises Busy, Unreachable; the connection is given up then."""
    with translate_faults():
        try:
            begin(connection)
        except BaseException:
            connection.invalidate()
            connection.close()
            raise
    return connection


def _give_back(connection: Connection) -> None:
    """End a connection's transaction and return it to the pool.

    One that breaks at that has nothing left to lose.
    """
    with suppress(Unreachable), translate_faults():
        connection.close()
    if not connection.closed:
        connection.invalidate()
        connection.close()


def open_store(
    url: str, *, settings: StoreSettings | None = None, clock: Callable[[], dt.datetime] | None = None
) -> Store:
    """Open ``sqlite:///path`` or ``postgresql+psycopg://user@host/name``.

    Without a `clock`, the time is this machine's on SQLite, and the database's on PostgreSQL.

    A fresh database gets the schema; one of another schema raises Missing and names `aclflow db upgrade`.
    Raises also BadInput (the address), Unreachable and Busy.
    """
    chosen, name = settings or StoreSettings(), uuid.uuid4().hex[:12]
    engine = connect_pool(url, chosen.busy_timeout_s, name, chosen.connections)
    try:
        prepare(engine)
        shared = _read_clock(engine) if clock is None and engine.dialect.name == "postgresql" else None
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, chosen, SteadyClock(clock or shared or utc_now), name, shared)


def _read_clock(engine: Engine) -> DatabaseClock:
    """Read the database's clock. Raises Busy, Unreachable."""
    with translate_faults(), engine.connect() as connection:
        return DatabaseClock(connection.execute(text("SELECT clock_timestamp()")).scalar_one())
