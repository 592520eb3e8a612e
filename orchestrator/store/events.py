"""The event log, bounded in size: the oldest are forgotten a hundred at a time.

An event belongs to a ring, and pushes out events of that ring alone:

    tenant 5            what is about that tenant
    domain d            what is about that domain, but for
    generations d       what every change causes: generations published and enforced
    refusals            machines that were not let in
    service             tokens, restores, measurements

So nobody can make the log forget what others did by doing much; and what was done stays in the audit trail anyway.

Entries are ordered by their ids, never by their times. There is one writer of the log at a time (`Transaction.log`), so
ids are also the order of commits: a reader that has read up to an id has missed nothing below it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson
from sqlalchemy import Row, Select, bindparam, cast, delete, func, insert, select, update

from orchestrator.errors import NotFound
from orchestrator.eventkinds import OBSERVED, About, about
from orchestrator.store.audit import BY_ITSELF, NO_DIGESTS, Actor, Audit, Digests
from orchestrator.store.records import EventPage, LoggedEvent
from orchestrator.store.schema.core import events
from orchestrator.store.schema.logs import audit
from orchestrator.store.sql.database import LOG_LOCK
from orchestrator.store.sql.keys import from_micros, to_micros
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction

_FORGET_EVERY = 100
_OF_A_TENANT = 2_000
"""So many events of a tenant are kept, or fewer where fewer are kept of others: there may be many tenants."""
_FORGOTTEN = "events_forgotten"
_RENUMBERED = "events_renumbered"
"""Up to which id events of every ring are forgotten or have others."""
_TENANT_RING = "tenant "
_GENERATIONS = frozenset({"generation.published", "generation.enforced"})
_REFUSALS = frozenset({"enrolment.refused"})

_APPEND = Prepared(insert(events).returning(events.c.id), [column.name for column in events.c if column.name != "id"])


def _append_audited() -> Select[Any]:
    """Return the statement that appends an event and its audit entry.

    It locks the log, inserts both, and selects the event's id. Each part reads the one before, so ids are drawn under
    the lock.
    """
    locked = select(func.pg_advisory_xact_lock(bindparam("lock")).label("held")).cte("locked")
    columns = [column for column in events.c if column.name != "id"]
    said = select(*[cast(bindparam(f"event_{each.name}"), each.type) for each in columns]).select_from(locked)
    event = insert(events).from_select([each.name for each in columns], said).returning(events.c.id).cte("event")
    columns = [column for column in audit.c if column.name != "id"]
    said = select(*[cast(bindparam(f"audit_{each.name}"), each.type) for each in columns]).select_from(event)
    entry = insert(audit).from_select([each.name for each in columns], said).returning(audit.c.id).cte("entry")
    return select(event.c.id).select_from(event).add_cte(entry)


_APPEND_AUDITED = Prepared(_append_audited(), changes=events)


class Events:
    """The events' repository."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def append(
        self,
        kind: str,
        subject: str,
        detail: Mapping[str, object],
        *,
        owner: Row[Any] | None = None,
        actor: Actor = BY_ITSELF,
        digests: Digests = NO_DIGESTS,
    ) -> None:
        """Log an event in this transaction, so that it exists only with the change.

        `detail` must be JSON. An act gets an entry in the audit trail, by `actor` and with digests.

        The object (`eventkinds.py`) is found by its subject, the generation by its detail. `owner` has the number
        and the domain of the tenant that it is about, where these are known.
        """
        body = orjson.dumps(dict(detail)).decode()
        tenant, domain = self._about(kind, subject) if owner is None else (owner.number, owner.domain)
        row = {
            "time": self._tx.micros,
            "kind": kind,
            "subject": subject,
            "detail": body,
            "tenant": tenant,
            "domain": domain,
            "generation": detail.get("generation"),
            "ring": _ring(kind, tenant, domain),
        }
        if kind in OBSERVED:
            self._tx.log(partial(self._insert_row, row))
            return
        entry = Audit(self._tx).prepare(kind, subject, body, actor=actor, tenant=tenant, domain=domain, digests=digests)
        self._tx.log(partial(self._insert_audited, row, entry), locks=self._tx.on_postgres)

    def _insert_row(self, row: Mapping[str, object]) -> None:
        [appended] = self._tx.rows(_APPEND, **row)
        self._note_inserted(int(appended.id))

    def _insert_audited(self, row: Mapping[str, object], entry: Callable[[], Mapping[str, object]]) -> None:
        """Log an event with its entry in the audit trail.

        In PostgreSQL that is one statement, which locks the log first.
        """
        if self._tx.on_postgres:
            both = {f"event_{name}": value for name, value in row.items()}
            both |= {f"audit_{name}": value for name, value in entry().items()}
            [appended] = self._tx.rows(_APPEND_AUDITED, lock=LOG_LOCK, **both)
            self._note_inserted(int(appended.id))
        else:
            self._insert_row(row)
            Audit(self._tx).write(entry())

    def _note_inserted(self, event_id: int) -> None:
        self._tx.last_event = event_id
        if event_id % _FORGET_EVERY == 0:
            self._forget(event_id)

    def _forget(self, newest: int) -> None:
        """Forget the oldest events of the rings that grew lately."""
        lately = select(events.c.ring).distinct().where(events.c.id > newest - _FORGET_EVERY)
        for ring in self._tx.read(lately).scalars().all():
            of_ring = select(events.c.id).where(events.c.ring == ring).order_by(events.c.id.desc())
            kept = self._tx.settings.events_kept
            kept = min(kept, _OF_A_TENANT) if ring.startswith(_TENANT_RING) else kept
            oldest = self._tx.read(of_ring.offset(kept).limit(1)).scalar_one_or_none()
            if oldest is not None:
                self._tx.write(delete(events).where(events.c.ring == ring, events.c.id <= oldest))
                self._tx.raise_highest(_FORGOTTEN, oldest)
                self._tx.raise_highest(f"{_FORGOTTEN} {ring}", oldest)

    def forget_before(self, time: dt.datetime) -> None:
        """Forget all events before a time.

        Only events of tenants that are gone need this: their rings do not grow any more.
        """
        old = events.c.time < to_micros(time)
        last = self._tx.read(select(func.max(events.c.id)).where(old)).scalar_one()
        if last is not None:
            self._tx.write(delete(events).where(old))
            self._tx.raise_highest(_FORGOTTEN, last)
            self._tx.raise_highest(_RENUMBERED, last)

    def since(self, event_id: int, *, limit: int = 100, tenant: int | None = None) -> EventPage:
        """Return events after an id, oldest first: all, or a tenant's by number."""
        statement = select(events).where(events.c.id > event_id).order_by(events.c.id).limit(limit)
        if tenant is not None:
            statement = statement.where(events.c.tenant == tenant)
        rows = self._tx.read(statement)
        return EventPage(tuple(_read_event(row) for row in rows), missed=event_id < self.forgotten(tenant))

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
        return EventPage(tuple(_read_event(row) for row in self._tx.read(statement)), missed=False)

    def renumber(self, ahead: int, last: int) -> None:
        """Move every event's id by `ahead`; `last` is the last id given out.

        Readers of the old ids are told that they missed something, and none of those comes again.
        """
        first = self._tx.read(select(func.min(events.c.id))).scalar_one()
        self._tx.write(update(events).values(id=events.c.id + ahead))
        highest = (last + 1 if first is None else first) + ahead - 1
        self._tx.raise_highest(_FORGOTTEN, highest)
        self._tx.raise_highest(_RENUMBERED, highest)

    def forgotten(self, tenant: int | None = None) -> int:
        """Return the highest event id that may be forgotten, of all or of a tenant.

        0 while none is forgotten.
        """
        if tenant is None:
            return self._tx.highest(_FORGOTTEN)
        return max(self._tx.highest(f"{_FORGOTTEN} {_TENANT_RING}{tenant}"), self._tx.highest(_RENUMBERED))

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


def _ring(kind: str, tenant: int | None, domain: str | None) -> str:
    """Return the ring of an event."""
    if tenant is not None:
        return f"{_TENANT_RING}{tenant}"
    if domain is not None:
        return f"generations {domain}" if kind in _GENERATIONS else f"domain {domain}"
    return "refusals" if kind in _REFUSALS else "service"


def _read_event(row: Row[Any]) -> LoggedEvent:
    return LoggedEvent(row.id, from_micros(row.time), row.kind, row.subject, orjson.loads(row.detail), row.tenant)
