"""The tables beside a tenant's list: expectations, shared drafts, and proposals.

All go with the tenant. A draft is known by a random id, is kept for some days, and holds a list in its native form. A
proposal goes out when another person has approved it; it is about the list of a tenant, or, without a tenant, about its
domain. Its `body` is the proposed content in its native form; one that was decided keeps its digest alone.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, LargeBinary, Table, Text

from orchestrator.store.schema.core import COUNT, NAME, TIME, metadata

proposals = Table(
    "proposals",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), index=True),
    Column("kind", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("person", Text, nullable=False),
    Column("maker", Text),
    Column("created", TIME, nullable=False),
    Column("expires", TIME, nullable=False),
    Column("base_version", COUNT, nullable=False),
    Column("comment", Text, nullable=False),
    Column("despite", COUNT, nullable=False),
    Column("confirm_s", COUNT),
    Column("digest", LargeBinary, nullable=False),
    Column("body", Text),
    Column("state", Text, nullable=False),
    Column("decided_by", Text),
    Column("decided", TIME),
    Column("reason", Text, nullable=False),
    Column("decided_by_name", Text, nullable=False, server_default=""),
    sqlite_with_rowid=False,
)
Index("proposals_by_domain", proposals.c.domain, proposals.c.created)


expectations = Table(
    "expectations",
    metadata,
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("text", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("created", TIME, nullable=False),
    Column("author_name", Text, nullable=False, server_default=""),
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
    Column("author_name", Text, nullable=False, server_default=""),
    sqlite_with_rowid=False,
)
Index("shared_drafts_by_tenant", shared_drafts.c.tenant, shared_drafts.c.created)
