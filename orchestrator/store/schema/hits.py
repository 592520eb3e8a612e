"""The tables of counts: reporters and their progress, sums, and history.

`hit_bookmarks` say how far the counting of each host came, piece by piece; `hit_losses` say what was not counted.
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, ForeignKeyConstraint, Index, LargeBinary, Table, Text

from orchestrator.store.schema.core import COUNT, NAME, SERIAL, TIME, metadata

hit_feeds = Table(
    "hit_feeds",
    metadata,
    Column("domain", NAME, primary_key=True),
    Column("host", NAME, primary_key=True),
    Column("epoch", COUNT, nullable=False),
    Column("sequence", COUNT, nullable=False),
    Column("since", TIME, nullable=False),
    Column("heard", TIME, nullable=False),
    ForeignKeyConstraint(["domain", "host"], ["hosts.domain", "hosts.name"], ondelete="CASCADE"),
    sqlite_with_rowid=False,
)

hit_bookmarks = Table(
    "hit_bookmarks",
    metadata,
    Column("domain", NAME, primary_key=True),
    Column("host", NAME, primary_key=True),
    Column("sequence", COUNT, primary_key=True),
    Column("chunk", LargeBinary, nullable=False),
    ForeignKeyConstraint(["domain", "host"], ["hosts.domain", "hosts.name"], ondelete="CASCADE"),
)

hit_losses = Table(
    "hit_losses",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
    Column("host", NAME, nullable=False),
    Column("at", TIME, nullable=False),
    Column("kind", Text, nullable=False),
    Column("entries", COUNT, nullable=False),
    Column("within_ms", COUNT, nullable=False),
    Index("hit_losses_by_time", "domain", "at"),
    sqlite_autoincrement=True,
)

hit_totals = Table(
    "hit_totals",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("chunk", COUNT, primary_key=True),
    Column("counts", LargeBinary, nullable=False),
)

hit_history = Table(
    "hit_history",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("resolution", COUNT, primary_key=True),
    Column("start", TIME, primary_key=True),
    Column("size", COUNT, nullable=False),
    Column("counts", LargeBinary, nullable=False),
)

hit_marks = Table(
    "hit_marks",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    *(
        Column(name, TIME, nullable=False)
        for name in ("latest", "minutes_until", "hours_until", "moments_since", "minutes_since", "hours_since")
    ),
    sqlite_with_rowid=False,
)
