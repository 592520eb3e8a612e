"""Waivers: findings on a tenant's list that somebody took responsibility for, until a day."""

from __future__ import annotations

import datetime as dt
from typing import Any

import orjson
from sqlalchemy import Row, delete, func, insert, select

from orchestrator.errors import BadInput, NotFound, TooLarge
from orchestrator.policy.findings import Subject
from orchestrator.store.schema.acls import waivers
from orchestrator.store.sql.keys import from_micros, to_micros
from orchestrator.store.tokens import name_of_author
from orchestrator.store.transaction import Transaction, one_line
from orchestrator.wire.lists import AddedWaiver, Waiver

MOST_WAIVERS = 1000
"""Of one tenant."""
LONGEST_REASON = 1000


class Waivers:
    """The repository of waivers.

    They change nothing that is enforced, and no version of a list.
    """

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def list(self, tenant: str) -> tuple[Waiver, ...]:
        """All of a tenant's, oldest first; those whose time is over, too. Raises NotFound."""
        mine = waivers.c.tenant == self._tx.tenant(tenant).number
        return tuple(map(_read_waiver, self._tx.read(select(waivers).where(mine).order_by(waivers.c.id))))

    def get(self, tenant: str, waiver: int) -> Waiver:
        """One waiver. Raises NotFound."""
        found = next((each for each in self.list(tenant) if each.id == waiver), None)
        if found is None:
            raise NotFound(f"there is no waiver {waiver}")
        return found

    def add(self, tenant: str, subject: Subject, *, author: str, reason: str, ends: dt.datetime) -> AddedWaiver:
        """Waive a finding until `ends`.

        An older waiver of it is replaced, and returned with the new one. Raises BadInput, NotFound, TooLarge.
        """
        number = self._tx.tenant(tenant).number
        one_line(reason, place="reason", longest=LONGEST_REASON)
        if not reason.strip():
            raise BadInput("say why: a waiver has a reason", place="reason")
        if ends <= self._tx.now:
            raise BadInput(f"{ends.isoformat()} is in the past", place="ends")
        values = {
            "tenant": number,
            "kind": subject.kind.value,
            "rules": orjson.dumps(subject.rules).decode(),
            "group_name": subject.group or "",
            "author": author,
            "reason": reason,
            "created": self._tx.micros,
            "ends": to_micros(ends),
            "author_name": name_of_author(self._tx, author),
        }
        same = [waivers.c[name] == values[name] for name in ("tenant", "kind", "rules", "group_name")]
        older = self._tx.write(delete(waivers).where(*same).returning(*waivers.c)).one_or_none()
        if self._tx.read(select(func.count()).where(waivers.c.tenant == number)).scalar_one() >= MOST_WAIVERS:
            raise TooLarge(f"a tenant has at most {MOST_WAIVERS} waivers")
        made = self._tx.write(insert(waivers).values(values).returning(*waivers.c)).one()
        return AddedWaiver(**_read_members(made), replaced=_read_waiver(older) if older is not None else None)

    def remove(self, tenant: str, waiver: int) -> None:
        """Take a waiver back. Raises NotFound."""
        mine = waivers.c.tenant == self._tx.tenant(tenant).number
        self._tx.write(delete(waivers).where(mine, waivers.c.id == self.get(tenant, waiver).id))


def _read_waiver(row: Row[Any]) -> Waiver:
    return Waiver(**_read_members(row))


def _read_members(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "rules": tuple(orjson.loads(row.rules)),
        "group": row.group_name or None,
        "author": row.author,
        "reason": row.reason,
        "created": from_micros(row.created),
        "ends": from_micros(row.ends),
        "author_name": row.author_name,
    }
