"""The tables, as SQLAlchemy metadata.

`migrations/` builds the same ones step by step (a test compares the two).

    domains ──┬── hosts ── points (latest report)          counters   the next number to give out
              │     └──── firewall_loads (latest)
              ├── spreads (how traffic is spread over firewalls)
              ├── pops (edges, firewall servers, lines: `schema/pops.py`)
              ├── log_limits, packet_log (what rules with `log` saw: `schema/packetlog.py`)
              ├── intersections, former_hosts (what goes out in two steps: below)
              ├── placement_settings, placements (lifted rules)
              ├── operator_rules                           events     the log
              ├── proposals (what another person must approve: `schema/drafts.py`)
              │                                            audit, audit_anchors (the trail: `schema/audit.py`)
              ├── enforcers ── tokens                      hit_* (what rules decided: `schema/hits.py`)
              ├── invitations (one-time enrolment tokens)
              └── tenants ──┬── prefixes (exclusive)
                            ├── endpoints ── endpoint_prefixes (exclusive)
                            ├── acl_* (lists and their versions), expiry_notices: `schema/acls.py`
                            ├── expectations, shared_drafts: `schema/drafts.py`
                            └── tokens ── replies

An event bears the number of the tenant that it is about, if it is about one, and the domain: who may see it is decided
by these, never by its words, so that a tenant made later under an old name does not inherit a past. Its `ring` says
with which others it shares the room that there is, so that nobody's events push out those of others.

A firewall VNF is a host too: its `plane` says what it filters with (NULL: the host is an Open vSwitch). It has neither
a datapath nor an uplink; in the place of its datapath id stands ``domain/name``, which no datapath id is. An edge
switch has both, and the plane `edge`.

A domain is `behind` what hosts may hold that were not read back at this generation or a later one: it was put back to
an earlier state, and they may hold lists that are nowhere here.

Times are microseconds since 1970 in UTC. Tenants are joined by their number, which is never reused. Texts that are
sorted compare byte by byte on both databases.

Overlapping prefixes are refused by the database itself: PostgreSQL by an exclusion constraint, which also holds
between two transactions under way, SQLite by a trigger, where writers stand in line anyway. Stored ranges are
disjoint, so the only one that can overlap a new one is the last that begins before the new one ends.

The tables of changes in two steps: contents of switches, and what is held back.

`intersections` has what the last change that took two steps holds back until switches hold less, with the generation of
its target; or that it is open what must be held back of a generation: the first service that publishes it decides.
`former_hosts` has since which generation a switch that was taken out of a domain may hold the domain's programs.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    event,
    literal_column,
)

HEAD = "0033"
"""The migration that leads to these tables."""

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "fk": "%(table_name)s_%(column_0_name)s_fk",
        "uq": "%(table_name)s_%(column_0_name)s_unique",
        "ck": "%(table_name)s_%(constraint_name)s",
        "ix": "%(table_name)s_by_%(column_0_name)s",
    }
)

NAME = Text().with_variant(Text(collation="C"), "postgresql")
COUNT = BigInteger()
SERIAL = BigInteger().with_variant(Integer(), "sqlite")  # SQLite counts rows up only under the name INTEGER
TIME = BigInteger()

counters = Table(
    "counters",
    metadata,
    Column("name", NAME, primary_key=True),
    Column("next", COUNT, nullable=False),
    sqlite_with_rowid=False,
)

domains = Table(
    "domains",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("return_traffic", Text, nullable=False),
    Column("generation", COUNT, nullable=False),
    Column("epoch", COUNT, nullable=False),
    Column("version", COUNT, nullable=False),
    Column("operator_version", COUNT, nullable=False),
    Column("created", TIME, nullable=False),
    Column("enforced", COUNT),
    Column("behind", COUNT, nullable=False, server_default="0"),
    Column("returns_since", COUNT, nullable=False, server_default="0"),
    Column("two_persons", COUNT, nullable=False, server_default="0"),
    Column("path_mtu_rate", COUNT, nullable=False, server_default="100"),
    sqlite_with_rowid=False,
)

tenants = Table(
    "tenants",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("id", NAME, nullable=False, unique=True),
    Column("domain", NAME, ForeignKey("domains.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("version", COUNT, nullable=False),
    Column("acl_version", COUNT, nullable=False),
    Column("created", TIME, nullable=False),
    Column("quota_rules", COUNT),
    Column("quota_flows", COUNT),
    Column("confirm_by", TIME, index=True),
    Column("confirm_base", COUNT),
    Column("quota_bytes", COUNT),
    Column("quota_versions", COUNT),
    Column("stored_bytes", COUNT, nullable=False, server_default="0"),
    Column("two_persons", COUNT, nullable=False, server_default="0"),
    Column("quota_streams", COUNT),
    Column("quota_analysis", COUNT),
    Column("confirm_s", COUNT),
    CheckConstraint("number BETWEEN 1 AND 4294967295", name="number_fits_a_register"),
    Index("tenants_by_domain", "domain", "id", unique=True),
    sqlite_with_rowid=False,
)

prefixes = Table(
    "prefixes",
    metadata,
    Column("first", LargeBinary, primary_key=True),
    Column("last", LargeBinary, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), nullable=False, index=True),
    CheckConstraint("first <= last", name="range"),
    sqlite_with_rowid=False,
)

hosts = Table(
    "hosts",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id"), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("datapath_id", Text, nullable=False, unique=True),
    Column("uplink", Text, nullable=False),
    Column("plane", Text),
    Column("since", COUNT, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

firewall_loads = Table(
    "firewall_loads",
    metadata,
    Column("domain", NAME, primary_key=True),
    Column("host", NAME, primary_key=True),
    Column("reported", TIME, nullable=False),
    Column("packets_pps", COUNT, nullable=False),
    Column("bits_bps", COUNT, nullable=False),
    Column("cpu_permille", COUNT, nullable=False),
    Column("connections", COUNT, nullable=False),
    Column("trouble", Text),
    ForeignKeyConstraint(["domain", "host"], ["hosts.domain", "hosts.name"], ondelete="CASCADE"),
    sqlite_with_rowid=False,
)

endpoints = Table(
    "endpoints",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id"), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("tenant", BigInteger, ForeignKey("tenants.number"), nullable=False, index=True),
    Column("port", Text, nullable=False),
    Column("mac", BigInteger, nullable=False),
    Column("version", COUNT, nullable=False),
    Column("generation", COUNT, nullable=False, server_default="0"),
    Column("shared", COUNT, nullable=False, server_default="0"),
    UniqueConstraint("domain", "port", "mac", name="endpoints_sender_unique"),
    sqlite_with_rowid=False,
)
_IS_ALONE = endpoints.c.shared == literal_column("0")
Index(
    "endpoints_port_unique", endpoints.c.domain, endpoints.c.port, unique=True,
    sqlite_where=_IS_ALONE, postgresql_where=_IS_ALONE,
)  # fmt: skip

endpoint_prefixes = Table(
    "endpoint_prefixes",
    metadata,
    Column("first", LargeBinary, primary_key=True),
    Column("last", LargeBinary, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("domain", NAME, nullable=False),
    Column("endpoint", NAME, nullable=False),
    ForeignKeyConstraint(["domain", "endpoint"], ["endpoints.domain", "endpoints.name"], ondelete="CASCADE"),
    CheckConstraint("first <= last", name="range"),
    Index("endpoint_prefixes_by_endpoint", "domain", "endpoint"),
    sqlite_with_rowid=False,
)

operator_rules = Table(
    "operator_rules",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("position", COUNT, primary_key=True),
    Column("number", COUNT, nullable=False),
    Column("rule_id", NAME, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("domain", "rule_id", name="operator_rules_rule_id_unique"),
    sqlite_with_rowid=False,
)

placement_settings = Table(
    "placement_settings",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("version", COUNT, nullable=False),
    Column("body", Text, nullable=False),
    Column("looked", TIME),
    Column("idle_permille", COUNT),
    Column("unused_permille", COUNT),
    sqlite_with_rowid=False,
)

placements = Table(
    "placements",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True, index=True),
    Column("rule_id", NAME, primary_key=True),
    Column("wish", Text),
    Column("chosen", TIME),
    Column("lifted", TIME),
    Column("because", Text, nullable=False),
    Column("saves", COUNT),
    sqlite_with_rowid=False,
)

invitations = Table(
    "invitations",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("author", Text, nullable=False),
    Column("created", TIME, nullable=False),
    Column("expires", TIME, nullable=False),
    Column("used", TIME),
    Column("name", NAME),
    Column("kind", NAME),
    Column("hosts", Text),
    sqlite_with_rowid=False,
)

enforcers = Table(
    "enforcers",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
    Column("name", NAME, nullable=False),
    Column("kind", Text, nullable=False),
    Column("epoch", COUNT, nullable=False),
    Column("sequence", COUNT),
    Column("created", TIME, nullable=False),
    Column("last_seen", TIME),
    Column("lost", TIME),
    Column("hosts", Text),
    UniqueConstraint("domain", "name", name="enforcers_name_unique"),
    sqlite_autoincrement=True,
)

points = Table(
    "points",
    metadata,
    Column("domain", NAME, primary_key=True),
    Column("host", NAME, primary_key=True),
    Column("enforcer", BigInteger, ForeignKey("enforcers.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("generation", COUNT, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("state", Text, nullable=False),
    Column("error", Text),
    Column("flows", COUNT, nullable=False),
    Column("reported", TIME, nullable=False),
    ForeignKeyConstraint(["domain", "host"], ["hosts.domain", "hosts.name"], ondelete="CASCADE"),
    sqlite_with_rowid=False,
)

host_ports = Table(
    "host_ports",
    metadata,
    Column("domain", NAME, primary_key=True),
    Column("host", NAME, primary_key=True),
    Column("ports", Text, nullable=False),
    ForeignKeyConstraint(["domain", "host"], ["hosts.domain", "hosts.name"], ondelete="CASCADE"),
    sqlite_with_rowid=False,
)
"""The interfaces of each host's switch, by lines: those with the rows of a report of the same host."""

tokens = Table(
    "tokens",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), index=True),
    Column("enforcer", BigInteger, ForeignKey("enforcers.id", ondelete="CASCADE"), index=True),
    Column("description", Text, nullable=False),
    Column("created", TIME, nullable=False),
    Column("expires", TIME),
    Column("person", Text),
    Column("maker", Text),
    sqlite_autoincrement=True,
)

events = Table(
    "events",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("time", TIME, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("tenant", BigInteger),
    Column("domain", NAME),
    Column("generation", COUNT),
    Column("ring", NAME, nullable=False, server_default=""),
    Index("events_by_ring", "ring", "id"),
    sqlite_autoincrement=True,
)

replies = Table(
    "replies",
    metadata,
    Column("token", BigInteger, ForeignKey("tokens.id", ondelete="CASCADE"), primary_key=True),
    Column("key", NAME, primary_key=True),
    Column("request", LargeBinary, nullable=False),
    Column("status", COUNT, nullable=False),
    Column("headers", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("created", TIME, nullable=False, index=True),
    sqlite_with_rowid=False,
)


def exclusion_sql(table: str, dialect: str) -> tuple[str, ...]:
    """The statements that let a database refuse overlapping ranges in a table of prefixes."""
    if dialect == "postgresql":
        meeting = "EXCLUDE USING gist ((prefix::inet) inet_ops WITH &&)"
        return (f"ALTER TABLE {table} ADD CONSTRAINT {table}_exclusive {meeting}",)
    meets = f"(SELECT last FROM {table} WHERE first <= NEW.last ORDER BY first DESC LIMIT 1) >= NEW.first"  # noqa: S608
    return (
        f"CREATE TRIGGER {table}_exclusive BEFORE INSERT ON {table} WHEN {meets} "
        f"BEGIN SELECT RAISE(ABORT, '{table}_exclusive'); END",
        f"CREATE TRIGGER {table}_fixed BEFORE UPDATE OF first, last ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table}_fixed'); END",
    )


def _hold_exclusive(table: Table, connection: Connection, **_options: object) -> None:
    for statement in exclusion_sql(table.name, connection.dialect.name):
        connection.exec_driver_sql(statement)


event.listen(prefixes, "after_create", _hold_exclusive)
event.listen(endpoint_prefixes, "after_create", _hold_exclusive)


intersections = Table(
    "intersections",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("generation", COUNT, nullable=False),
    Column("withheld", Text, nullable=False),
    sqlite_with_rowid=False,
)

former_hosts = Table(
    "former_hosts",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("datapath_id", Text, primary_key=True),
    Column("since", COUNT, nullable=False),
    sqlite_with_rowid=False,
)
