"""The tables beside a tenant's list: what is expected of it, and drafts that members show each other.

Both go with the tenant. A draft is known by a random id, is kept for some days, and holds a list in its native form.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Table, Text

from orchestrator.store.schema.core import COUNT, NAME, TIME, metadata

expectations = Table(
    "expectations",
    metadata,
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("text", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("created", TIME, nullable=False),
    sqlite_with_rowid=False,
)

shared_drafts = Table(
    "shared_drafts",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), nullable=False),
    Column("author", Text, nullable=False),
    Column("created", TIME, nullable=False),
    Column("expires", TIME, nullable=False),
    Column("base_version", COUNT, nullable=False),
    Column("message", Text, nullable=False),
    Column("body", Text, nullable=False),
    sqlite_with_rowid=False,
)
Index("shared_drafts_by_tenant", shared_drafts.c.tenant, shared_drafts.c.created)
