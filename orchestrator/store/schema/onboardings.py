"""The table of machines that are joining or leaving a domain.

`body` is the request (`orchestrator.hosts.request`) as JSON. A process that works on a row holds it until `until`, and
holds it longer as it goes; a process that was killed lets go by that time.
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Table, Text

from orchestrator.store.schema.core import NAME, TIME, metadata

onboardings = Table(
    "onboardings",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("host", NAME, primary_key=True),
    Column("state", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("error", Text),
    Column("body", Text, nullable=False),
    Column("changed", TIME, nullable=False),
    Column("holder", Text),
    Column("until", TIME),
    sqlite_with_rowid=False,
)
