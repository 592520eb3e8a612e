"""The tables of the audit trail: entries in hash chains, and anchors of heads.

`wire/audit.py` defines both. Nothing is ever changed in `audit`, and nothing taken out but the oldest entries of a
chain, up to an anchor that stays.

**The packet log**: packets decided by rules with `log`, which enforcement points report. `log_limits` has a domain's
own measure of how much switches report, where it has one; `packet_log_feeds` how far each enforcement point's reports
were taken. A record without a tenant is of an operator's rule.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, LargeBinary, Table, Text

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


log_limits = Table(
    "log_limits",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("rate", COUNT, nullable=False),
    Column("burst", COUNT, nullable=False),
    sqlite_with_rowid=False,
)

packet_log = Table(
    "packet_log",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE")),
    Column("at", TIME, nullable=False),
    Column("host", NAME, nullable=False),
    Column("rule", NAME, nullable=False),
    Column("action", Text, nullable=False),
    Column("body", Text, nullable=False),
    sqlite_autoincrement=True,
)
Index("packet_log_by_tenant", packet_log.c.tenant, packet_log.c.id)
Index("packet_log_by_domain", packet_log.c.domain, packet_log.c.id)

packet_log_feeds = Table(
    "packet_log_feeds",
    metadata,
    Column("enforcer", BigInteger, ForeignKey("enforcers.id", ondelete="CASCADE"), primary_key=True),
    Column("number", COUNT, nullable=False),
    Column("lost", COUNT, nullable=False),
    sqlite_with_rowid=False,
)
