"""Rows of prefixes that must not overlap: those of tenants and those of endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Row, Select, Table, bindparam, insert, select

from orchestrator.policy.addresses import Prefix
from orchestrator.store.schema.core import prefixes
from orchestrator.store.sql.keys import first_bytes, last_bytes
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction

_OWNED = Prepared(
    select(prefixes.c.prefix).where(prefixes.c.tenant == bindparam("of_tenant")).order_by(prefixes.c.first)
)


def owned_prefixes(tx: Transaction, tenant: int) -> tuple[Prefix, ...]:
    """Prefixes that a tenant owns, in the order of addresses, IPv4 first."""
    return tuple([Prefix.parse(row.prefix) for row in tx.rows(_OWNED, of_tenant=tenant)])


def prefixes_of_tenants(tx: Transaction, numbers: Select[Any]) -> Mapping[int, tuple[Prefix, ...]]:
    """Prefixes of the tenants whose numbers a query gives, each in the order of addresses."""
    owned: dict[int, list[Prefix]] = {}
    mine = select(prefixes).where(prefixes.c.tenant.in_(select(numbers.subquery()))).order_by(prefixes.c.first)
    for row in tx.read(mine):
        owned.setdefault(row.tenant, []).append(Prefix.parse(row.prefix))
    return {number: tuple(found) for number, found in owned.items()}


def overlapping(tx: Transaction, table: Table, prefix: Prefix) -> Row[Any] | None:
    """Return the row whose range overlaps a prefix, the one with the highest addresses.

    Stored ranges are disjoint, so one row has to be looked at.
    """
    statement = select(table).where(table.c.first <= last_bytes(prefix)).order_by(table.c.first.desc()).limit(1)
    row = tx.read(statement).one_or_none()
    return row if row is not None and row.last >= first_bytes(prefix) else None


def insert_prefixes(tx: Transaction, table: Table, new: Iterable[Prefix], **owner: object) -> None:
    """Add rows of prefixes that overlap nothing (the database refuses them otherwise)."""
    rows = [
        {"first": first_bytes(prefix), "last": last_bytes(prefix), "prefix": str(prefix), **owner} for prefix in new
    ]
    if rows:
        tx.write(insert(table), rows)
