"""The event log, bounded in size: the oldest are forgotten a hundred at a time.

Entries are ordered by their ids, never by their times. There is one writer at a time, so ids are also the order of
commits: who has read up to an id has missed nothing below it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import orjson
from sqlalchemy import Row, delete, func, insert, select, update

from orchestrator.errors import NotFound
from orchestrator.eventkinds import About, about
from orchestrator.store.records import EventPage, LoggedEvent
from orchestrator.store.schema.core import events
from orchestrator.store.sql.keys import from_micros
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction

_FORGET_EVERY = 100
_FORGOTTEN = "events_forgotten"


_APPEND = Prepared(insert(events).returning(events.c.id), [column.name for column in events.c if column.name != "id"])


class Events:
    """The events' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def append(
        self, kind: str, subject: str, detail: Mapping[str, object], *, owner: Row[Any] | None = None
    ) -> LoggedEvent:
        """Log an event in this transaction, so that it exists only with the change.

        `detail` must be JSON.

        What it is about (`eventkinds.py`) is found by its subject, the generation by its detail. `owner` has the number
        and the domain of the tenant that it is about, where these are known.
        """
        body = orjson.dumps(dict(detail)).decode()
        tenant, domain = self._about(kind, subject) if owner is None else (owner.number, owner.domain)
        generation = detail.get("generation")
        [appended] = self._tx.rows(
            _APPEND,
            time=self._tx.micros,
            kind=kind,
            subject=subject,
            detail=body,
            tenant=tenant,
            domain=domain,
            generation=generation,
        )
        event_id = int(appended.id)
        self._tx.last_event = event_id
        if event_id % _FORGET_EVERY == 0:
            oldest = event_id - self._tx.settings.events_kept
            self._tx.write(delete(events).where(events.c.id <= oldest))
            self._tx.raise_highest(_FORGOTTEN, oldest)
        return LoggedEvent(event_id, self._tx.now, kind, subject, dict(detail), tenant)

    def since(self, event_id: int, *, limit: int = 100, tenant: int | None = None) -> EventPage:
        """Return events after an id, oldest first: all, or a tenant's by number."""
        statement = select(events).where(events.c.id > event_id).order_by(events.c.id).limit(limit)
        if tenant is not None:
            statement = statement.where(events.c.tenant == tenant)
        rows = self._tx.read(statement)
        return EventPage(tuple(_event(row) for row in rows), missed=event_id < self.forgotten())

    def newest_of(self, kind: str, tenant: int) -> dt.datetime | None:
        """Return when a kind of event was last logged about a tenant's number, or None."""
        mine = (events.c.tenant == tenant) & (events.c.kind == kind)
        found = self._tx.read(select(events.c.time).where(mine).order_by(events.c.id.desc()).limit(1)).first()
        return None if found is None else from_micros(found.time)

    def newest(self, *, before: int | None = None, limit: int = 100, tenant: int | None = None) -> EventPage:
        """Return the newest events, before an id if named, newest first.

        All, or those about the tenant of a number.
        """
        statement = select(events).order_by(events.c.id.desc()).limit(limit)
        if before is not None:
            statement = statement.where(events.c.id < before)
        if tenant is not None:
            statement = statement.where(events.c.tenant == tenant)
        return EventPage(tuple(_event(row) for row in self._tx.read(statement)), missed=False)

    def renumber(self, ahead: int, last: int) -> None:
        """Move every event's id by `ahead`; `last` is the last id given out.

        Readers of the old ids are told that they missed something, and none of those comes again.
        """
        first = self._tx.read(select(func.min(events.c.id))).scalar_one()
        self._tx.write(update(events).values(id=events.c.id + ahead))
        self._tx.raise_highest(_FORGOTTEN, (last + 1 if first is None else first) + ahead - 1)

    def forgotten(self) -> int:
        """The highest id of which the event may be forgotten; 0 while none is."""
        return self._tx.highest(_FORGOTTEN)

    def last_id(self) -> int:
        """The id of the newest event, 0 when there was none."""
        return self._tx.read(select(func.max(events.c.id))).scalar_one() or 0

    def _about(self, kind: str, subject: str) -> tuple[int | None, str | None]:
        """Return the tenant's number and the domain of an event, where there are such."""
        match about(kind):
            case About.TENANT:
                try:
                    row = self._tx.tenant(subject)
                except NotFound:
                    return None, None
                return row.number, row.domain
            case About.DOMAIN:
                return None, subject
            case About.SERVICE:
                return None, None


def _event(row: Row[Any]) -> LoggedEvent:
    return LoggedEvent(row.id, from_micros(row.time), row.kind, row.subject, orjson.loads(row.detail), row.tenant)
