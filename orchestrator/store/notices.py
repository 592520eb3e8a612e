"""Telling listeners of commits: in this process by a call, between processes by PostgreSQL's LISTEN and NOTIFY.

A notice is sent inside the transaction, so PostgreSQL delivers it if and only if that commits. The process that
committed tells its own listeners directly and passes over its own notice when it comes back.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from types import MappingProxyType

import orjson
import psycopg
from sqlalchemy import Engine, bindparam, func, select

from orchestrator.store.prepared import Prepared
from orchestrator.store.records import Committed
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


class Notices:
    """The listeners of one store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._shared = engine.dialect.name == "postgresql"
        self._self = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._listeners: dict[int, Listener] = {}
        self._next = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; returns how to take it out."""
        with self._lock:
            key, self._next = self._next, self._next + 1
            self._listeners[key] = listener
            if self._shared and self._thread is None:
                self._thread = threading.Thread(target=self._hear, name="store-notices", daemon=True)
                self._thread.start()
        return lambda: self._drop(key)

    def announce(self, tx: Transaction, committed: Committed) -> None:
        """Within the transaction that is about to commit: tell other processes."""
        if not self._shared:
            return
        notice = {"from": self._self, "domains": dict(committed.domains), "event": committed.last_event}
        payload = orjson.dumps(notice).decode()
        if len(payload) > _LONGEST_NOTICE:
            payload = orjson.dumps({"from": self._self, "domains": {}, "event": None}).decode()
        tx.rows(_NOTIFY, channel=CHANNEL, payload=payload)

    def tell(self, committed: Committed) -> None:
        """Call every listener. One that fails does not keep the others from hearing."""
        with self._lock:
            listeners = tuple(self._listeners.values())
        for listener in listeners:
            try:
                listener(committed)
            except Exception:  # noqa: BLE001 - whatever a listener raises must not look like a failed commit
                _log.exception("a listener of the store failed")

    def close(self) -> None:
        """Stop hearing."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _drop(self, key: int) -> None:
        with self._lock:
            self._listeners.pop(key, None)

    def _hear(self) -> None:
        """Listen until closed; a broken connection is made anew, and listeners are told that they may have missed."""
        while not self._stopping.is_set():
            try:
                self._hear_once()
            except psycopg.Error as error:
                _log.warning("the store's notices are interrupted: %s", error)
                self._stopping.wait(_RETRY_S)

    def _hear_once(self) -> None:
        url = self._engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            self.tell(UNKNOWN)
            while not self._stopping.is_set():
                for notice in connection.notifies(timeout=_LOOK_UP_S):
                    self._heard(notice.payload)

    def _heard(self, payload: str) -> None:
        notice = orjson.loads(payload)
        if notice["from"] != self._self:
            self.tell(Committed(MappingProxyType(notice["domains"]), notice["event"]))
