"""Tables of points of presence: edges, firewall servers, and which server serves each tenant.

    pops ──┬── pop_servers    one row a firewall server, by its number, which is never used again
           ├── pop_places     which server serves each tenant
           ├── pop_lines      the lines that stand, in each IP version (bytes of `edge/upkeep.py`)
           └── pop_heavy      the rules whose packets go past the servers

An edge switch is a row of `hosts` whose `plane` is EDGE: its reports are kept and waited for like every host's.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, LargeBinary, Table, Text, UniqueConstraint

from orchestrator.store.schema.core import COUNT, NAME, TIME, metadata

EDGE = "edge"
"""The `plane` of a host that is an edge switch."""

pops = Table(
    "pops",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), nullable=False, unique=True),
    Column("version", COUNT, nullable=False),
    Column("body", Text, nullable=False),
    Column("next_server", COUNT, nullable=False),
    Column("chosen", TIME, nullable=False),
    sqlite_with_rowid=False,
)

pop_servers = Table(
    "pop_servers",
    metadata,
    Column("pop", NAME, ForeignKey("pops.name", ondelete="CASCADE"), primary_key=True),
    Column("number", COUNT, primary_key=True),
    Column("name", NAME, nullable=False),
    Column("port", Text, nullable=False),
    Column("mac", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    UniqueConstraint("pop", "name"),
    sqlite_with_rowid=False,
)

pop_places = Table(
    "pop_places",
    metadata,
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("pop", NAME, ForeignKey("pops.name", ondelete="CASCADE"), nullable=False, index=True),
    Column("server", COUNT, nullable=False),
)

pop_lines = Table(
    "pop_lines",
    metadata,
    Column("pop", NAME, ForeignKey("pops.name", ondelete="CASCADE"), primary_key=True),
    Column("family", COUNT, primary_key=True),
    Column("digest", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("because", Text, nullable=False),
    Column("built", TIME, nullable=False),
)

pop_heavy = Table(
    "pop_heavy",
    metadata,
    Column("pop", NAME, ForeignKey("pops.name", ondelete="CASCADE"), primary_key=True),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("rule_id", NAME, primary_key=True),
    Column("since", TIME, nullable=False),
    Column("packets", COUNT, nullable=False),
    Column("because", Text, nullable=False),
)
