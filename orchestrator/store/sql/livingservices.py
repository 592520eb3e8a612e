"""The services that share one PostgreSQL: which are alive, and which owns a domain.

    service ──┬── member session   "aclflow ID member"   asks who else has one, every half second
              └── its other sessions   "aclflow ID"      read and write

    gone (killed, stopped)         its member session is not there at the next look: its domains have other owners
    silent (paused, cut off)       its member session asks nothing while others look ten times: they end all of its
                                   sessions, and with these its open transactions and the locks that it holds

An owner follows from the set of living services alone, by rendezvous hashing: each service works it out for itself, and
one that comes or goes moves only its own share. No clock is compared with another one: whether a session moves is told
by its own last query, and how long it does not is counted in looks, so a clock that jumps changes nothing. They agree
on the time by the database's clock, which each look reads.

Ownership gives no right to write. Any service may write any domain in that domain's turn (`database.begin_writing`),
and what it finds there is what was committed last; so two services that take each other for dead do no harm. A service
that was paused in the middle of a write cannot commit it: the database has rolled it back by then.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy import URL

from orchestrator.store.sql.clock import DatabaseClock
from orchestrator.store.sql.database import LIVENESS, session_name

LOOK_S = 0.5
SILENT_LOOKS = 10
"""After so many looks at which a service has asked nothing, its sessions are ended."""
_GIVEN_UP = 4
"""After so many, others own its domains."""

_CHANNEL = "aclflow_members"
_MEMBER = " member"
_SESSIONS = (
    "SELECT application_name, pid, query_start, clock_timestamp() FROM pg_stat_activity "
    "WHERE datname = current_database() AND usename = current_user AND application_name LIKE 'aclflow % member'"
)
_END = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND usename = current_user AND application_name = ANY(%s)"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Membership:
    """The living services as one of them sees them, itself among them."""

    own: str
    living: frozenset[str]

    def owner(self, domain: str) -> str:
        """Return the service that owns a domain."""
        return max(self.living, key=lambda name: blake2b(f"{name} {domain}".encode(), digest_size=8).digest())

    def owns(self, domain: str) -> bool:
        """Return whether this service owns a domain."""
        return len(self.living) == 1 or self.owner(domain) == self.own


@dataclass(frozen=True, slots=True)
class _Seen:
    """A member session at its latest look.

    `unmoved` says at how many looks it had not moved.
    """

    session: tuple[object, object]
    unmoved: int = 0


class Silence:
    """How long each service has asked nothing, in looks of ours."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(self, sessions: dict[str, tuple[object, object]], *, counts: bool = True) -> dict[str, int]:
        """Note each service's session; return for how many looks each has not moved.

        A session is its process and its last query.
        """
        now: dict[str, _Seen] = {}
        for name, session in sessions.items():
            before = self._seen.get(name)
            is_unmoved = before is not None and before.session == session
            now[name] = _Seen(session, before.unmoved + counts if before is not None and is_unmoved else 0)
        self._seen = now
        return {name: seen.unmoved for name, seen in now.items()}


class Members:
    """This service among the others. Safe between threads.

    Each look at the others also sets `clock`, the database's.
    """

    def __init__(self, url: URL, name: str, clock: DatabaseClock | None = None) -> None:
        self.now = Membership(name, frozenset({name}))
        """The newest membership. While the database is away it stays as it was."""
        self._name = name
        self._clock = clock
        self._address = make_conninfo(
            url.set(drivername="postgresql").render_as_string(hide_password=False),
            connect_timeout=5,
            application_name=session_name(name) + _MEMBER,
            **LIVENESS,
        )
        self._silence = Silence()
        self._counted_at = 0.0
        self._stopping = threading.Event()
        self._looked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="members", daemon=True)
        self._changed: Callable[[], None] = lambda: None

    def join(self, changed: Callable[[], None]) -> None:
        """Become a member, and call `changed` whenever domains may have other owners.

        It is called on a thread of its own. Returns after the first look at the other members, at the latest after some
        seconds.
        """
        self._changed = changed
        self._thread.start()
        self._looked.wait(5.0)

    def leave(self) -> None:
        """End the membership: others own the domains at once."""
        if not self._thread.is_alive():
            return
        self._stopping.set()
        try:
            with psycopg.connect(self._address, autocommit=True, application_name="aclflow") as connection:
                connection.execute(f"NOTIFY {_CHANNEL}")  # wakes our own thread, too
        except psycopg.Error:
            _log.info("the store is away: others miss this service at their next look")
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._attend()
            except psycopg.Error as error:
                _log.warning("the membership among services is interrupted: %s", error)
                self._stopping.wait(LOOK_S)

    def _attend(self) -> None:
        """Be a member until the service stops or the connection breaks."""
        with psycopg.connect(self._address, autocommit=True) as connection:
            connection.execute(f"LISTEN {_CHANNEL}")
            connection.execute(f"NOTIFY {_CHANNEL}")
            while not self._stopping.is_set():
                self._look(connection)
                for _ in connection.notifies(timeout=LOOK_S, stop_after=1):
                    pass
            connection.execute("SET application_name = 'aclflow'")
            connection.execute(f"NOTIFY {_CHANNEL}")

    def _look(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        """Find the living services, and end the sessions of services silent for long."""
        sessions = {}
        for called, pid, asked, time_there in connection.execute(_SESSIONS):
            sessions[_service(str(called))] = (pid, asked)
            if self._clock is not None and isinstance(time_there, dt.datetime):
                self._clock.note(time_there)
        sessions.pop(self._name, None)
        now = time.monotonic()
        counts = now - self._counted_at >= LOOK_S / 2  # notices make further looks, as many as services come and go
        self._counted_at = now if counts else self._counted_at
        unmoved = self._silence.look(sessions, counts=counts)
        for name in [name for name, looks in unmoved.items() if looks >= SILENT_LOOKS]:
            called = session_name(name)
            row = connection.execute(_END, ([called, called + _MEMBER],)).fetchone()
            _log.warning("service %s is silent: %s of its sessions are ended", name, row[0] if row else 0)
        living = frozenset({self._name, *(name for name, looks in unmoved.items() if looks < _GIVEN_UP)})
        before, self.now = self.now, Membership(self._name, living)
        self._looked.set()
        if before.living != living:
            _log.info("services on this store: %d", len(living))
            self._changed()


def _service(called: str) -> str:
    """Return the service of a member session's name."""
    return called.removesuffix(_MEMBER).removeprefix(session_name(""))
