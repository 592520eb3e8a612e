"""The audit trail's repository: an entry is written in the transaction of its change.

`wire/audit.py` defines an entry. It is written where an event is logged, so that neither exists without the change. A
refused request has no transaction: `control/audit.py` counts refusals, and writes an entry a minute.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from sqlalchemy import Row, delete, func, insert, select

from orchestrator.errors import NotFound
from orchestrator.identity.trail import PRUNED
from orchestrator.store.chains import NO_ROWS, Head
from orchestrator.store.schema.logs import audit, audit_anchors
from orchestrator.store.sql.keys import from_micros, to_micros
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction
from orchestrator.wire.audit import AuditAnchor, AuditEntry, link

SERVICE = "service"
"""How the service itself is named, where nobody asked for what it does."""
LONGEST_DETAIL = 4096
"""Characters; of a longer detail the trail keeps its digest, and the event the words."""
_LONGEST_SUBJECT = 256

_SAID = "who", "address", "kind", "subject", "tenant", "domain", "result"
_APPEND = Prepared(insert(audit), [column.name for column in audit.c if column.name != "id"])


@dataclass(frozen=True, slots=True)
class Actor:
    """The principal of an action, and the address it comes from."""

    who: str
    address: str = ""


BY_ITSELF = Actor(SERVICE)


@dataclass(frozen=True, slots=True)
class Digests:
    """SHA-256 of the content before and after a change.

    None: there was no content, or it is not known.
    """

    before: bytes | None = None
    after: bytes | None = None


NO_DIGESTS = Digests()


def digest(document: object) -> bytes:
    """Return the SHA-256 of a document, whatever the order of its keys."""
    return hashlib.sha256(orjson.dumps(document, option=orjson.OPT_SORT_KEYS, default=str)).digest()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries are asked for; None: all."""

    tenant: int | None = None
    who: str | None = None
    kind: str | None = None
    subject: str | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None


class Audit:
    """The audit trail of a database."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def append(
        self,
        kind: str,
        subject: str,
        text: str,
        *,
        actor: Actor,
        tenant: int | None,
        domain: str | None,
        digests: Digests = NO_DIGESTS,
        result: str = "done",
    ) -> None:
        """Add an entry to this process's chain; `text` is its detail as JSON."""
        entry = self.prepare(
            kind, subject, text, actor=actor, tenant=tenant, domain=domain, digests=digests, result=result
        )
        self._tx.log(lambda: self.write(entry()))

    def prepare(
        self,
        kind: str,
        subject: str,
        text: str,
        *,
        actor: Actor,
        tenant: int | None,
        domain: str | None,
        digests: Digests = NO_DIGESTS,
        result: str = "done",
    ) -> Callable[[], Mapping[str, object]]:
        """Return a function that makes an entry's row when it is to be written.

        The entry then follows the newest of this process's chain.
        """
        before, after = self._with_rows(tenant, digests)
        if len(text) > LONGEST_DETAIL:
            text = orjson.dumps(
                {"bytes": len(text), "sha256": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()}
            ).decode()
        said = actor.who, actor.address, kind, subject[:_LONGEST_SUBJECT], tenant, domain, result
        return partial(self._link, said, before, after, text)

    def write(self, row: Mapping[str, object]) -> None:
        """Write the row of an entry."""
        self._tx.rows(_APPEND, **row)

    def _link(
        self, said: tuple[object, ...], before: bytes | None, after: bytes | None, text: str
    ) -> Mapping[str, object]:
        """Return the row of an entry, which becomes the newest of this process's chain."""
        head = self._head()
        number, micros, chain = head.number + 1, self._tx.micros, self._tx.chain.name
        shown = None if before is None else before.hex(), None if after is None else after.hex()
        hashed = link(head.hash, (chain, number, micros, *said, *shown, text))
        self._tx.head = Head(number, hashed)
        return {
            "chain": chain,
            "number": number,
            "time": micros,
            **dict(zip(_SAID, said, strict=True)),
            "before": before,
            "after": after,
            "detail": text,
            "hash": hashed,
        }

    def page(self, wanted: Wanted, *, marker: int | None, limit: int, newest: bool = False) -> tuple[AuditEntry, ...]:
        """Return entries after an id, oldest first; with `newest`, before it, newest first."""
        statement = select(audit)
        if marker is not None:
            statement = statement.where(audit.c.id < marker if newest else audit.c.id > marker)
        equal = {"tenant": wanted.tenant, "who": wanted.who, "kind": wanted.kind, "subject": wanted.subject}
        for name, value in equal.items():
            if value is not None:
                statement = statement.where(audit.c[name] == value)
        if wanted.since is not None:
            statement = statement.where(audit.c.time >= to_micros(wanted.since))
        if wanted.until is not None:
            statement = statement.where(audit.c.time < to_micros(wanted.until))
        ordered = statement.order_by(audit.c.id.desc() if newest else audit.c.id).limit(limit)
        return tuple(_read_entry(row) for row in self._tx.read(ordered))

    def entry(self, entry_id: int) -> AuditEntry:
        """Return one entry. Raises NotFound."""
        row = self._tx.read(select(audit).where(audit.c.id == entry_id)).first()
        if row is None:
            raise NotFound(f"the audit trail has no entry {entry_id}")
        return _read_entry(row)

    # ------------------------------------------------------------------------------------------------ anchors

    @property
    def chain(self) -> str:
        """The name of this process's chain."""
        return self._tx.chain.name

    def head(self) -> Head:
        """Return the newest entry of this process's chain."""
        return self._head()

    def keep_anchor(self, anchor: AuditAnchor) -> None:
        """Store an anchor, so that entries can be verified without the older ones."""
        values = {
            "chain": anchor.chain,
            "number": anchor.number,
            "hash": bytes.fromhex(anchor.hash),
            "time": to_micros(anchor.time),
            "key": bytes.fromhex(anchor.key),
            "signature": bytes.fromhex(anchor.signature),
        }
        self._tx.write(insert(audit_anchors).values(**values))

    def anchors(self, *, after: tuple[str, int] | None = None, limit: int = 1000) -> tuple[AuditAnchor, ...]:
        """Return anchors by chain name and number, those behind `after` only."""
        columns = audit_anchors.c
        statement = select(audit_anchors).order_by(columns.chain, columns.number).limit(limit)
        if after is not None:
            chain, number = after
            later = (columns.chain > chain) | ((columns.chain == chain) & (columns.number > number))
            statement = statement.where(columns.chain >= chain, later)
        return tuple(_read_anchor(row) for row in self._tx.read(statement))

    def prune(self, before: dt.datetime) -> int:
        """Take out entries that were anchored before a time; return how many.

        Of each chain the newest of these anchors stays, for it vouches for the entry that now is the first; and an
        entry says what was done. Nothing that no anchor vouches for is taken out.
        """
        micros, gone = to_micros(before), 0
        columns = audit_anchors.c
        old = select(columns.chain, func.max(columns.number).label("number")).where(columns.time <= micros)
        for row in self._tx.read(old.group_by(columns.chain)).all():
            mine = (audit.c.chain == row.chain) & (audit.c.number <= row.number)
            gone += int(self._tx.write(delete(audit).where(mine)).rowcount)
            self._tx.write(delete(audit_anchors).where(columns.chain == row.chain, columns.number < row.number))
        if gone:
            text = orjson.dumps({"before": before.isoformat(), "entries": gone}).decode()
            self.append(PRUNED, "audit", text, actor=BY_ITSELF, tenant=None, domain=None)
        return gone

    # ------------------------------------------------------------------------------------------------ steps

    def _head(self) -> Head:
        """Return the head that the next entry follows, as this transaction sees it."""
        head = self._tx.head or self._tx.chain.head
        if head is None:
            mine = select(audit.c.number, audit.c.hash).where(audit.c.chain == self._tx.chain.name)
            row = self._tx.read(mine.order_by(audit.c.number.desc()).limit(1)).first()
            head = self._tx.chain.first if row is None else Head(row.number, bytes(row.hash))
        return head

    def _with_rows(self, tenant: int | None, digests: Digests) -> tuple[bytes | None, bytes | None]:
        """Return digests, by default those of the list's rows edited since the last entry."""
        edited = None if tenant is None else self._tx.edited.pop(tenant, None)
        if edited is None or digests is not NO_DIGESTS:
            return digests.before, digests.after
        before, after = edited.ended.digest(), edited.begun.digest()
        return None if before == NO_ROWS else before, None if after == NO_ROWS else after


def _read_entry(row: Row[Any]) -> AuditEntry:
    return AuditEntry(
        id=row.id,
        chain=row.chain,
        number=row.number,
        time=from_micros(row.time),
        who=row.who,
        address=row.address,
        kind=row.kind,
        subject=row.subject,
        tenant=row.tenant,
        domain=row.domain,
        result=row.result,
        before=None if row.before is None else bytes(row.before).hex(),
        after=None if row.after is None else bytes(row.after).hex(),
        detail=orjson.loads(row.detail),
        text=row.detail,
        hash=bytes(row.hash).hex(),
    )


def _read_anchor(row: Row[Any]) -> AuditAnchor:
    return AuditAnchor(
        chain=row.chain,
        number=row.number,
        hash=bytes(row.hash).hex(),
        time=from_micros(row.time),
        key=bytes(row.key).hex(),
        signature=bytes(row.signature).hex(),
    )
