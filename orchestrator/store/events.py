"""The log of what happened, bounded in size: the oldest entries are forgotten a hundred at a time.

Entries are ordered by their ids, never by their times. There is one writer at a time, so ids are also the order of
commits: who has read up to an id has missed nothing below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from sqlalchemy import Row, delete, func, insert, select

from orchestrator.store.keys import from_micros
from orchestrator.store.records import Event, EventPage
from orchestrator.store.schema import events
from orchestrator.store.transaction import Transaction

_FORGET_EVERY = 100
_FORGOTTEN = "events_forgotten"


class Events:
    """The events' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def append(self, kind: str, subject: str, detail: Mapping[str, object]) -> Event:
        """Log an event in this transaction: it exists if and only if the change does. `detail` must be JSON."""
        body = orjson.dumps(dict(detail)).decode()
        new = insert(events).values(time=self._tx.micros, kind=kind, subject=subject, detail=body)
        event_id = int(self._tx.write(new.returning(events.c.id)).scalar_one())
        self._tx.last_event = event_id
        if event_id % _FORGET_EVERY == 0:
            oldest = event_id - self._tx.settings.events_kept
            self._tx.write(delete(events).where(events.c.id <= oldest))
            self._tx.raise_highest(_FORGOTTEN, oldest)
        return Event(event_id, self._tx.now, kind, subject, dict(detail))

    def since(self, event_id: int, *, limit: int = 100) -> EventPage:
        """Events after an id, oldest first."""
        rows = self._tx.read(select(events).where(events.c.id > event_id).order_by(events.c.id).limit(limit))
        return EventPage(tuple(_event(row) for row in rows), missed=event_id < self._tx.highest(_FORGOTTEN))

    def last_id(self) -> int:
        """The id of the newest event, 0 when there was none."""
        return self._tx.read(select(func.max(events.c.id))).scalar_one() or 0


def _event(row: Row[Any]) -> Event:
    return Event(row.id, from_micros(row.time), row.kind, row.subject, orjson.loads(row.detail))
