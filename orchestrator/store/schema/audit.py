"""The tables of the audit trail: entries in hash chains, and anchors of heads.

`wire/audit.py` defines both. Nothing is ever changed in `audit`, and nothing taken out but the oldest entries of a
chain, up to an anchor that stays.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, LargeBinary, Table, Text

from orchestrator.store.schema.core import COUNT, NAME, SERIAL, TIME, metadata

audit = Table(
    "audit",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("chain", NAME, nullable=False),
    Column("number", COUNT, nullable=False),
    Column("time", TIME, nullable=False),
    Column("who", NAME, nullable=False),
    Column("address", Text, nullable=False),
    Column("kind", NAME, nullable=False),
    Column("subject", Text, nullable=False),
    Column("tenant", BigInteger),
    Column("domain", NAME),
    Column("result", Text, nullable=False),
    Column("before", LargeBinary),
    Column("after", LargeBinary),
    Column("detail", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
Index("audit_by_chain", audit.c.chain, audit.c.number, unique=True)
Index("audit_by_tenant", audit.c.tenant, audit.c.id)

audit_anchors = Table(
    "audit_anchors",
    metadata,
    Column("chain", NAME, primary_key=True),
    Column("number", COUNT, primary_key=True),
    Column("hash", LargeBinary, nullable=False),
    Column("time", TIME, nullable=False, index=True),
    Column("key", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
