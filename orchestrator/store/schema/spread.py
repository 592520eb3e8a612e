"""The table of spreading switches: how a domain's traffic is spread over its firewalls.

`body` is the members and the owners of the buckets as JSON; `generation` grows with every change of them, and
`enforced` is the newest one that the spreading switch was read back at.
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Table, Text

from orchestrator.store.schema.core import COUNT, NAME, metadata

spreads = Table(
    "spreads",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("generation", COUNT, nullable=False),
    Column("enforced", COUNT, nullable=False),
    Column("trouble", Text),
    Column("body", Text, nullable=False),
    sqlite_with_rowid=False,
)
