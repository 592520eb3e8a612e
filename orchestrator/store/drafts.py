"""Data beside a tenant's list: its expectations, and drafts that members share."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, bindparam, delete, func, insert, select

from orchestrator.errors import BadInput, NotFound, TooLarge
from orchestrator.policy.formats.native import acl_text
from orchestrator.policy.model import Acl
from orchestrator.store.schema.acls import expectations, shared_drafts
from orchestrator.store.sql.keys import from_micros, to_micros
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.tokens import name_of_author
from orchestrator.store.transaction import Transaction, one_line
from orchestrator.wire.expectations import KeptExpectations, SharedDraft

MOST_DRAFTS, MOST_BYTES, MOST_DAYS = 20, 4 << 20, 30
"""Drafts that a tenant may share at a time, the size of one, and how long it is kept at most."""


_OF_TENANT = Prepared(select(expectations).where(expectations.c.tenant == bindparam("called")))
"""Asked at every change of a list."""


class Expectations:
    """The repository of what is expected of tenants' lists."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def get(self, tenant: str) -> KeptExpectations:
        """Return the expectations of a tenant's list; an empty text expects nothing.

        Raises NotFound (tenant).
        """
        number = self._tx.tenant(tenant).number
        row = self._tx.row(_OF_TENANT, called=number)
        return _NOTHING if row is None else _kept_expectations(row.text, row.author, row.created, row.author_name)

    def keep(self, tenant: str, text: str, author: str) -> KeptExpectations:
        """Expect this from now on, in the place of what was expected. Raises NotFound."""
        name = name_of_author(self._tx, author)
        values = {"text": text, "author": author, "created": self._tx.micros, "author_name": name}
        row = self._tx.upsert(expectations).values({"tenant": self._tx.tenant(tenant).number, **values})
        self._tx.write(row.on_conflict_do_update(index_elements=["tenant"], set_=values))
        return _kept_expectations(text, author, self._tx.micros, name)

    def forget(self, tenant: str) -> None:
        """Expect nothing any more. Raises NotFound."""
        self._tx.write(delete(expectations).where(expectations.c.tenant == self._tx.tenant(tenant).number))


class Drafts:
    """The repository of drafts that are shared."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def share(self, tenant: str, acl: Acl, *, base: int, author: str, message: str, days: int) -> SharedDraft:
        """Keep a draft for some days. Raises NotFound (tenant), BadInput, TooLarge."""
        number = self._tx.tenant(tenant).number
        one_line(message, place="message")
        if not 1 <= days <= MOST_DAYS:
            raise BadInput(f"{days} is not in 1..{MOST_DAYS}", place="days")
        body = acl_text(acl)
        if len(body) > MOST_BYTES:
            raise TooLarge(f"the draft has {len(body)} bytes; at most {MOST_BYTES} are kept", place="acl")
        mine = shared_drafts.c.tenant == number
        self._tx.write(delete(shared_drafts).where(mine, shared_drafts.c.expires <= self._tx.micros))
        if self._tx.read(select(func.count()).select_from(shared_drafts).where(mine)).scalar_one() >= MOST_DRAFTS:
            raise TooLarge(f"{MOST_DRAFTS} drafts are shared already: delete one of them")
        row = {
            "id": secrets.token_hex(16),
            "tenant": number,
            "author": author,
            "created": self._tx.micros,
            "expires": to_micros(self._tx.now + dt.timedelta(days=days)),
            "base_version": base,
            "message": message,
            "body": body.decode(),
            "author_name": name_of_author(self._tx, author),
        }
        self._tx.write(insert(shared_drafts).values(row))
        return self.get(tenant, row["id"])[0]

    def get(self, tenant: str, draft: str) -> tuple[SharedDraft, str]:
        """Return a draft with its list as native text.

        Raises NotFound, also for one whose time is over.
        """
        for row in self._read_rows(tenant, shared_drafts.c.id == draft):
            return _read_draft(row), row.body
        raise NotFound(f"the tenant shares no draft '{draft}', or its time is over", place="draft")

    def list(self, tenant: str) -> Sequence[SharedDraft]:
        """The drafts that a tenant shares, newest first. Raises NotFound."""
        return [*map(_read_draft, self._read_rows(tenant))]

    def delete(self, tenant: str, draft: str) -> None:
        """Delete a shared draft. Raises NotFound."""
        self.get(tenant, draft)
        self._tx.write(delete(shared_drafts).where(shared_drafts.c.id == draft))

    def _read_rows(self, tenant: str, *more: Any) -> Sequence[Row[Any]]:
        number, now = self._tx.tenant(tenant).number, self._tx.micros
        mine = (shared_drafts.c.tenant == number, shared_drafts.c.expires > now, *more)
        return self._tx.read(select(shared_drafts).where(*mine).order_by(shared_drafts.c.created.desc())).all()


_NOTHING = KeptExpectations("", "", None, 0)


def _kept_expectations(text: str, author: str, micros: int, name: str) -> KeptExpectations:
    """Expectations, whose version is the time that they were written at."""
    return KeptExpectations(text, author, from_micros(micros), micros, name)


def _read_draft(row: Row[Any]) -> SharedDraft:
    return SharedDraft(
        row.id,
        row.author,
        from_micros(row.created),
        from_micros(row.expires),
        row.base_version,
        row.message,
        row.author_name,
    )
