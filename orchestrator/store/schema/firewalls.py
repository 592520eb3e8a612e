"""Tables of fleets: the firewall VNFs that aclflow itself makes and takes away.

    fleets ──┬── fleet_members     one row a VNF, from the moment that it is wanted until long after it is gone
             ├── fleet_samples     what the fleet carried, now and then
             └── fleet_decisions   every change of size, with its reason
    capacity_models                what one VNF carries; every version stays
    fleet_keeper                   which process works on the fleets, and until when it may

A member that is not on its end has a row in `hosts` under the same name. It counts for *enforced* once `served` is set:
nobody waits for a VNF that carries nothing yet.

`spreads` says how a domain's traffic is spread over its firewalls: `body` is the members and the owners of the buckets
as JSON; `generation` grows with every change of them, and `enforced` is the newest one that the spreading switch was
read back at; `down` are the interfaces that the switch finds down, as JSON.

**Points of presence**: edges, firewall servers, and which server serves each tenant.

    pops ──┬── pop_servers    one row a firewall server, by its number, which is never used again
           ├── pop_places     which server serves each tenant
           ├── pop_lines      the lines that stand, in each IP version (bytes of `edge/upkeep.py`)
           └── pop_heavy      the rules whose packets go past the servers

An edge switch is a row of `hosts` whose `plane` is EDGE: its reports are kept and waited for like every host's.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, LargeBinary, Table, Text, UniqueConstraint, literal_column

from orchestrator.store.schema.core import COUNT, NAME, SERIAL, TIME, metadata

spreads = Table(
    "spreads",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("generation", COUNT, nullable=False),
    Column("enforced", COUNT, nullable=False),
    Column("trouble", Text),
    Column("body", Text, nullable=False),
    Column("down", Text, nullable=False, server_default="[]"),
    sqlite_with_rowid=False,
)


fleets = Table(
    "fleets",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("version", COUNT, nullable=False),
    Column("body", Text, nullable=False),
    Column("next_number", COUNT, nullable=False),
    Column("looked", TIME),
    Column("size", COUNT),
    Column("because", Text, nullable=False),
    Column("model", COUNT),
    sqlite_with_rowid=False,
)

fleet_members = Table(
    "fleet_members",
    metadata,
    Column("domain", NAME, ForeignKey("fleets.domain", ondelete="CASCADE"), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("number", COUNT, nullable=False),
    Column("plane", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("since", TIME, nullable=False),
    Column("asked", TIME, nullable=False),
    Column("generation", COUNT, nullable=False),
    Column("because", Text, nullable=False),
    Column("progress", Text, nullable=False),
    Column("served", TIME),
    Column("drained", TIME),
    Column("failed", TIME),
    Column("sick_since", TIME),
    Column("well_since", TIME),
    Column("relapses", Text, nullable=False),
    Column("trial", Text),
    Column("place", Text),
    sqlite_with_rowid=False,
)
_IS_THERE = fleet_members.c.state != literal_column("'gone'")
Index(
    "fleet_members_there", fleet_members.c.domain, fleet_members.c.number,
    sqlite_where=_IS_THERE, postgresql_where=_IS_THERE,
)  # fmt: skip

fleet_samples = Table(
    "fleet_samples",
    metadata,
    Column("domain", NAME, ForeignKey("fleets.domain", ondelete="CASCADE"), primary_key=True),
    Column("at", TIME, primary_key=True),
    Column("packets_pps", COUNT, nullable=False),
    Column("bits_bps", COUNT, nullable=False),
    Column("connections", COUNT, nullable=False),
    Column("serving", COUNT, nullable=False),
    Column("most_pps", COUNT, nullable=False),
    Column("rules", COUNT, nullable=False),
    sqlite_with_rowid=False,
)

fleet_decisions = Table(
    "fleet_decisions",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("domain", NAME, ForeignKey("fleets.domain", ondelete="CASCADE"), nullable=False),
    Column("at", TIME, nullable=False),
    Column("before", COUNT, nullable=False),
    Column("size", COUNT, nullable=False),
    Column("because", Text, nullable=False),
    Column("by", Text, nullable=False),
    Index("fleet_decisions_of", "domain", "id"),
    sqlite_autoincrement=True,
)

capacity_models = Table(
    "capacity_models",
    metadata,
    Column("version", SERIAL, primary_key=True),
    Column("plane", Text, nullable=False, index=True),
    Column("created", TIME, nullable=False),
    Column("source", Text, nullable=False),
    Column("measured", Text, nullable=False),
    sqlite_autoincrement=True,
)

fleet_keeper = Table(
    "fleet_keeper",
    metadata,
    Column("id", COUNT, primary_key=True, autoincrement=False),
    Column("holder", Text, nullable=False),
    Column("until", TIME, nullable=False),
    sqlite_with_rowid=False,
)


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
