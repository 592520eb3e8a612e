"""Which temporal rows hold, asked so that what has ended costs nothing.

A tenant's tables hold up to a thousand versions of its list, and a query for the newest must not look through them all.
There are indexes of the rows that still hold and of those that have ended, but SQLite, which keeps no statistics here,
prefers the primary key to an index of which it can use no more columns. So the conditions below name one more column,
with what holds for every row; and ``+ 0`` keeps a column of the primary key from being searched by.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BindParameter, Column, ColumnElement, CompoundSelect, Table, literal_column, select

from orchestrator.store.schema.acls import acl_group_members, acl_groups, acl_rules
from orchestrator.store.sql.keys import LOWEST_KEY

_ANY: Final[dict[Table, tuple[ColumnElement[bool], ...]]] = {
    acl_rules: (acl_rules.c.order_key >= literal_column(str(LOWEST_KEY)),),
    acl_groups: (acl_groups.c.name >= literal_column("''"),),
    acl_group_members: (
        acl_group_members.c.name >= literal_column("''"),
        acl_group_members.c.prefix >= literal_column("''"),
    ),
}
"""Of each table's index of the rows that still hold, what is true of every row. Written out, so that statements with it
may be prepared."""

_ZERO: ColumnElement[int] = literal_column("0")

Tenant = int | Column[Any] | BindParameter[Any]
Version = int | BindParameter[Any]


def holds_now(table: Table, tenant: Tenant) -> ColumnElement[bool]:
    """The rows of a tenant's current list."""
    found = (table.c.tenant == tenant) & table.c.until_version.is_(None)
    for condition in _ANY[table]:
        found &= condition
    return found


def ended_after(table: Table, tenant: Tenant, version: Version) -> ColumnElement[bool]:
    """The rows that held at a version and do so no more."""
    return (table.c.tenant == tenant) & (table.c.until_version > version) & (table.c.since_version + _ZERO <= version)


def held_at(table: Table, tenant: Tenant, version: Version, *columns: Column[Any]) -> CompoundSelect[Any]:
    """Select columns of the rows that held at a version.

    Newer rows are examined; rows that had ended by then are not.
    """
    return (
        select(*columns)
        .where(holds_now(table, tenant), table.c.since_version + _ZERO <= version)
        .union_all(select(*columns).where(ended_after(table, tenant, version)))
    )
