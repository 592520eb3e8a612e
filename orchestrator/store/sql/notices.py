"""Notify listeners of commits: by calls, and between processes by PostgreSQL's NOTIFY.

A notice is sent inside the transaction, so PostgreSQL delivers it if and only if that commits. The process that
committed tells its own listeners directly and passes over its own notice when it comes back; unless the commit's answer
was lost, for then the notice is the only word that it was done, whenever that was.
"""

from __future__ import annotations

import enum
import itertools
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MappingProxyType

import orjson
import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy import Engine, bindparam, func, select

from orchestrator.store.records import Committed, ListsChanged
from orchestrator.store.sql.database import LIVENESS
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction

Listener = Callable[[Committed], None]

CHANNEL = "aclflow"
_NOTIFY = Prepared(select(func.pg_notify(bindparam("channel"), bindparam("payload")).label("told")))
UNKNOWN = Committed(MappingProxyType({}), None)
"""Notices may have been lost: look for yourself."""

_LOOK_UP_S = 1.0
_RETRY_S = 1.0
_LONGEST_NOTICE = 7900  # PostgreSQL takes 8000 bytes

_log = logging.getLogger(__name__)


class _Fate(enum.Enum):
    """The fate of our commit whose answer was lost."""

    OPEN = "open"
    CAME = "its notice has come"
    LOST = "it will not be answered"


class Notices:
    """The listeners of one store. `note` is given what other processes committed, before any listener."""

    def __init__(self, engine: Engine, note: Listener = lambda _: None) -> None:
        self._engine = engine
        self._note = note
        self._shared = engine.dialect.name == "postgresql"
        self._self = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._listeners: dict[int, Listener] = {}
        self._next = 0
        self._sent = itertools.count()
        self.unanswered: dict[int, _Fate] = {}
        """Our commits without an answer so far, or for good."""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; returns how to take it out."""
        with self._lock:
            key, self._next = self._next, self._next + 1
            self._listeners[key] = listener
            if self._shared and self._thread is None:
                self._thread = threading.Thread(target=self._listen, name="store-notices", daemon=True)
                self._thread.start()
        return lambda: self._drop_listener(key)

    def announce(self, tx: Transaction, committed: Committed) -> AbstractContextManager[None]:
        """Announce a commit inside its transaction.

        Other processes are told; our own listeners, if the answer is lost.
        """
        return self._announce_commit(tx, committed) if self._shared else nullcontext()

    @contextmanager
    def _announce_commit(self, tx: Transaction, committed: Committed) -> Iterator[None]:
        number = next(self._sent)
        notice = {"from": self._self, "number": number}
        told = {**notice, "domains": dict(committed.domains), "event": committed.last_event}
        lists = {domain: [changed.before, *changed.tenants] for domain, changed in committed.lists.items()}
        without = {**told, "lists": lists}, {**notice, "domains": {}, "event": None}
        forms = (orjson.dumps(form).decode() for form in ({**without[0], "steps": dict(committed.steps)}, *without))
        payload = next(form for form in forms if len(form.encode()) <= _LONGEST_NOTICE)
        tx.rows(_NOTIFY, channel=CHANNEL, payload=payload)
        self.unanswered[number] = _Fate.OPEN
        try:
            yield
        except BaseException:
            with self._lock:
                came, self.unanswered[number] = self.unanswered[number], _Fate.LOST
            if came is _Fate.CAME:
                self._tell_late(number, committed)
            raise
        with self._lock:  # who hears of it looks first, and then notes that it came
            del self.unanswered[number]

    def tell(self, committed: Committed, *, besides: Listener | None = None) -> None:
        """Call every listener but one.

        One that fails does not keep the others from hearing.
        """
        with self._lock:
            listeners = tuple(self._listeners.values())
        for listener in listeners:
            if listener == besides:
                continue
            try:
                listener(committed)
            except Exception:  # noqa: BLE001 - whatever a listener raises must not look like a failed commit
                _log.exception("a listener of the store failed")

    def close(self) -> None:
        """Stop hearing."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _drop_listener(self, key: int) -> None:
        with self._lock:
            self._listeners.pop(key, None)

    def _listen(self) -> None:
        """Listen until closed.

        A broken connection is made anew, and listeners are told that they may have missed.
        """
        while not self._stopping.is_set():
            try:
                self._listen_once()
            except psycopg.Error as error:
                _log.warning("the store's notices are interrupted: %s", error)
                self._stopping.wait(_RETRY_S)

    def _listen_once(self) -> None:
        url = self._engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        address = make_conninfo(url, connect_timeout=5, **LIVENESS)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            self.tell(UNKNOWN)
            while not self._stopping.is_set():
                for notice in connection.notifies(timeout=_LOOK_UP_S):
                    self.hear(notice.payload)

    def hear(self, payload: str) -> None:
        """Tell listeners of a notice that PostgreSQL delivered."""
        try:
            notice = orjson.loads(payload)
            sender, number = notice["from"], notice["number"]
            lists = {
                domain: ListsChanged(int(before), tuple(map(str, tenants)))
                for domain, (before, *tenants) in notice.get("lists", {}).items()
            }
            steps = {str(domain): str(step) for domain, step in notice.get("steps", {}).items()}
            committed = Committed(MappingProxyType(notice["domains"]), notice["event"], lists=lists, steps=steps)
        except (ValueError, TypeError, KeyError, AttributeError):
            self.tell(UNKNOWN)  # it is of another version of this program, or of anybody else
            return
        if sender != self._self:
            self._note(committed)
            self.tell(committed)
            return
        with self._lock:
            is_lost = self.unanswered.get(number) is _Fate.LOST
            if number in self.unanswered and not is_lost:
                self.unanswered[number] = _Fate.CAME
        if is_lost:
            self._tell_late(number, committed)

    def _tell_late(self, number: int, committed: Committed) -> None:
        """Tell listeners now of a commit whose answer was lost."""
        self.unanswered.pop(number, None)
        self.tell(committed)
