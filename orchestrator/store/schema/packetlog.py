"""The tables of the packet log: packets decided by rules with `log`.

Enforcement points report them. `log_limits` has a domain's own measure of how much switches report, where it has one;
`packet_log_feeds` how far each enforcement point's reports were taken. A record without a tenant is of an operator's
rule.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Table, Text

from orchestrator.store.schema.core import COUNT, NAME, SERIAL, TIME, metadata

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
