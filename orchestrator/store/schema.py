"""The tables, as SQLAlchemy metadata. `migrations/` builds the same ones step by step (a test compares the two).

    domains ──┬── hosts ── points (latest report)          counters   the next number to give out
              │     └──── firewall_loads (latest)
              ├── spreads (how traffic is spread over firewalls)
              ├── pops (edges, firewall servers, lines: `schema_pops.py`)
              ├── log_limits, packet_log (what rules with `log` saw: `schema_packetlog.py`)
              ├── placement_settings, placements (lifted rules)
              ├── operator_rules                           events     the log
              ├── enforcers ── tokens                      hit_* (what rules decided)
              ├── invitations (one-time enrolment tokens)
              └── tenants ──┬── prefixes (exclusive)
                            ├── endpoints ── endpoint_prefixes (exclusive)
                            ├── acl_versions               one row a version
                            ├── acl_rules, acl_groups      one row a rule and span of versions
                            ├── acl_group_members          one row an address and span of versions
                            ├── expiry_notices             what was announced to be about to expire
                            └── tokens ── replies

Access lists are *temporal*: a row of `acl_rules`, `acl_groups` or `acl_group_members` holds from `since_version` up to,
not including, `until_version` (NULL: it still holds). Changing one rule ends one row and begins another; every older
version can still be read.

An event bears the number of the tenant that it is about, if it is about one, and the domain: who may see it is decided
by these, never by its words, so that a tenant made later under an old name does not inherit a past.

A firewall VNF is a host too: its `plane` says what it filters with (NULL: the host is an Open vSwitch). It has neither
a datapath nor an uplink; in the place of its datapath id stands ``domain/name``, which no datapath id is. An edge
switch has both, and the plane `edge`.

Times are microseconds since 1970 in UTC. Tenants are joined by their number, which is never reused. Texts that are
sorted compare byte by byte on both databases.

Overlapping prefixes are refused by the database itself: PostgreSQL by an exclusion constraint, which also holds
between two transactions under way, SQLite by a trigger, where writers stand in line anyway. Stored ranges are
disjoint, so the only one that can overlap a new one is the last that begins before the new one ends.
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
)

HEAD = "0011"
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

_NAME = Text().with_variant(Text(collation="C"), "postgresql")
_COUNT = BigInteger()
_SERIAL = BigInteger().with_variant(Integer(), "sqlite")  # SQLite counts rows up only under the name INTEGER
_TIME = BigInteger()
NAME, COUNT, SERIAL, TIME = _NAME, _COUNT, _SERIAL, _TIME
"""The same, for the modules beside this one: `schema_*.py`."""

counters = Table(
    "counters",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("next", _COUNT, nullable=False),
    sqlite_with_rowid=False,
)

domains = Table(
    "domains",
    metadata,
    Column("id", _NAME, primary_key=True),
    Column("return_traffic", Text, nullable=False),
    Column("generation", _COUNT, nullable=False),
    Column("epoch", _COUNT, nullable=False),
    Column("version", _COUNT, nullable=False),
    Column("operator_version", _COUNT, nullable=False),
    Column("created", _TIME, nullable=False),
    Column("enforced", _COUNT),
    sqlite_with_rowid=False,
)

tenants = Table(
    "tenants",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("id", _NAME, nullable=False, unique=True),
    Column("domain", _NAME, ForeignKey("domains.id"), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("version", _COUNT, nullable=False),
    Column("acl_version", _COUNT, nullable=False),
    Column("created", _TIME, nullable=False),
    Column("quota_rules", _COUNT),
    Column("quota_flows", _COUNT),
    CheckConstraint("number BETWEEN 1 AND 4294967295", name="number_fits_a_register"),
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

acl_versions = Table(
    "acl_versions",
    metadata,
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("version", _COUNT, primary_key=True),
    Column("author", Text, nullable=False),
    Column("created", _TIME, nullable=False),
    Column("ingress_default", Text, nullable=False),
    Column("egress_default", Text, nullable=False),
    Column("rules", _COUNT, nullable=False),
    Column("generation", _COUNT, index=True),
    sqlite_with_rowid=False,
)

acl_rules = Table(
    "acl_rules",
    metadata,
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("since_version", _COUNT, primary_key=True),
    Column("order_key", _COUNT, primary_key=True),
    Column("until_version", _COUNT),
    Column("number", _COUNT, nullable=False),
    Column("rule_id", _NAME, nullable=False),
    Column("expires", _TIME),
    Column("body", Text, nullable=False),
    CheckConstraint("until_version > since_version", name="span"),
    CheckConstraint("number BETWEEN 1 AND 1099511627775", name="number_fits_a_cookie"),
    sqlite_with_rowid=False,
)
_STILL_HOLDS = acl_rules.c.until_version.is_(None)
Index(
    "acl_rules_current_id", acl_rules.c.tenant, acl_rules.c.rule_id, unique=True,
    sqlite_where=_STILL_HOLDS, postgresql_where=_STILL_HOLDS,
)  # fmt: skip
Index(
    "acl_rules_current_order", acl_rules.c.tenant, acl_rules.c.order_key, unique=True,
    sqlite_where=_STILL_HOLDS, postgresql_where=_STILL_HOLDS,
)  # fmt: skip
Index(
    "acl_rules_ended", acl_rules.c.tenant, acl_rules.c.until_version,
    sqlite_where=~_STILL_HOLDS, postgresql_where=~_STILL_HOLDS,
)  # fmt: skip
_EXPIRES = _STILL_HOLDS & acl_rules.c.expires.is_not(None)
Index("acl_rules_expiring", acl_rules.c.expires, sqlite_where=_EXPIRES, postgresql_where=_EXPIRES)

acl_groups = Table(
    "acl_groups",
    metadata,
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("since_version", _COUNT, primary_key=True),
    Column("name", _NAME, primary_key=True),
    Column("until_version", _COUNT),
    Column("description", Text, nullable=False),
    CheckConstraint("until_version > since_version", name="span"),
    sqlite_with_rowid=False,
)
_GROUP_HOLDS = acl_groups.c.until_version.is_(None)
Index(
    "acl_groups_current", acl_groups.c.tenant, acl_groups.c.name, unique=True,
    sqlite_where=_GROUP_HOLDS, postgresql_where=_GROUP_HOLDS,
)  # fmt: skip

acl_group_members = Table(
    "acl_group_members",
    metadata,
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("since_version", _COUNT, primary_key=True),
    Column("name", _NAME, primary_key=True),
    Column("order_key", _COUNT, primary_key=True),
    Column("until_version", _COUNT),
    Column("prefix", _NAME, nullable=False),
    CheckConstraint("until_version > since_version", name="span"),
    sqlite_with_rowid=False,
)
_MEMBER_HOLDS = acl_group_members.c.until_version.is_(None)
Index(
    "acl_group_members_current", acl_group_members.c.tenant, acl_group_members.c.name, acl_group_members.c.prefix,
    sqlite_where=_MEMBER_HOLDS, postgresql_where=_MEMBER_HOLDS,
)  # fmt: skip
Index(
    "acl_group_members_ended", acl_group_members.c.tenant, acl_group_members.c.until_version,
    sqlite_where=~_MEMBER_HOLDS, postgresql_where=~_MEMBER_HOLDS,
)  # fmt: skip

expiry_notices = Table(
    "expiry_notices",
    metadata,
    Column("number", _COUNT, primary_key=True, autoincrement=False),
    Column("expires", _TIME, primary_key=True),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), nullable=False, index=True),
    sqlite_with_rowid=False,
)

hosts = Table(
    "hosts",
    metadata,
    Column("domain", _NAME, ForeignKey("domains.id"), primary_key=True),
    Column("name", _NAME, primary_key=True),
    Column("datapath_id", Text, nullable=False, unique=True),
    Column("uplink", Text, nullable=False),
    Column("plane", Text),
    sqlite_with_rowid=False,
)

firewall_loads = Table(
    "firewall_loads",
    metadata,
    Column("domain", _NAME, primary_key=True),
    Column("host", _NAME, primary_key=True),
    Column("reported", _TIME, nullable=False),
    Column("packets_pps", _COUNT, nullable=False),
    Column("bits_bps", _COUNT, nullable=False),
    Column("cpu_permille", _COUNT, nullable=False),
    Column("connections", _COUNT, nullable=False),
    Column("trouble", Text),
    ForeignKeyConstraint(["domain", "host"], ["hosts.domain", "hosts.name"], ondelete="CASCADE"),
    sqlite_with_rowid=False,
)

endpoints = Table(
    "endpoints",
    metadata,
    Column("domain", _NAME, ForeignKey("domains.id"), primary_key=True),
    Column("name", _NAME, primary_key=True),
    Column("tenant", BigInteger, ForeignKey("tenants.number"), nullable=False, index=True),
    Column("port", Text, nullable=False),
    Column("mac", BigInteger, nullable=False),
    Column("version", _COUNT, nullable=False),
    UniqueConstraint("domain", "port", name="endpoints_port_unique"),
    sqlite_with_rowid=False,
)

endpoint_prefixes = Table(
    "endpoint_prefixes",
    metadata,
    Column("first", LargeBinary, primary_key=True),
    Column("last", LargeBinary, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("domain", _NAME, nullable=False),
    Column("endpoint", _NAME, nullable=False),
    ForeignKeyConstraint(["domain", "endpoint"], ["endpoints.domain", "endpoints.name"], ondelete="CASCADE"),
    CheckConstraint("first <= last", name="range"),
    Index("endpoint_prefixes_by_endpoint", "domain", "endpoint"),
    sqlite_with_rowid=False,
)

operator_rules = Table(
    "operator_rules",
    metadata,
    Column("domain", _NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("position", _COUNT, primary_key=True),
    Column("number", _COUNT, nullable=False),
    Column("rule_id", _NAME, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("domain", "rule_id", name="operator_rules_rule_id_unique"),
    sqlite_with_rowid=False,
)

placement_settings = Table(
    "placement_settings",
    metadata,
    Column("domain", _NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("version", _COUNT, nullable=False),
    Column("body", Text, nullable=False),
    Column("looked", _TIME),
    Column("idle_permille", _COUNT),
    Column("unused_permille", _COUNT),
    sqlite_with_rowid=False,
)

placements = Table(
    "placements",
    metadata,
    Column("domain", _NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True, index=True),
    Column("rule_id", _NAME, primary_key=True),
    Column("wish", Text),
    Column("chosen", _TIME),
    Column("lifted", _TIME),
    Column("because", Text, nullable=False),
    Column("saves", _COUNT),
    sqlite_with_rowid=False,
)

invitations = Table(
    "invitations",
    metadata,
    Column("digest", LargeBinary, primary_key=True),
    Column("domain", _NAME, ForeignKey("domains.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("author", Text, nullable=False),
    Column("created", _TIME, nullable=False),
    Column("expires", _TIME, nullable=False),
    Column("used", _TIME),
    Column("name", _NAME),
    Column("kind", _NAME),
    sqlite_with_rowid=False,
)

enforcers = Table(
    "enforcers",
    metadata,
    Column("id", _SERIAL, primary_key=True),
    Column("domain", _NAME, ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
    Column("name", _NAME, nullable=False),
    Column("kind", Text, nullable=False),
    Column("epoch", _COUNT, nullable=False),
    Column("sequence", _COUNT),
    Column("created", _TIME, nullable=False),
    Column("last_seen", _TIME),
    Column("lost", _TIME),
    UniqueConstraint("domain", "name", name="enforcers_name_unique"),
    sqlite_autoincrement=True,
)

points = Table(
    "points",
    metadata,
    Column("domain", _NAME, primary_key=True),
    Column("host", _NAME, primary_key=True),
    Column("enforcer", BigInteger, ForeignKey("enforcers.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("generation", _COUNT, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("state", Text, nullable=False),
    Column("error", Text),
    Column("flows", _COUNT, nullable=False),
    Column("reported", _TIME, nullable=False),
    ForeignKeyConstraint(["domain", "host"], ["hosts.domain", "hosts.name"], ondelete="CASCADE"),
    sqlite_with_rowid=False,
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", _SERIAL, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), index=True),
    Column("enforcer", BigInteger, ForeignKey("enforcers.id", ondelete="CASCADE"), index=True),
    Column("description", Text, nullable=False),
    Column("created", _TIME, nullable=False),
    Column("expires", _TIME),
    sqlite_autoincrement=True,
)

hit_feeds = Table(
    "hit_feeds",
    metadata,
    Column("domain", _NAME, primary_key=True),
    Column("host", _NAME, primary_key=True),
    Column("epoch", _COUNT, nullable=False),
    Column("sequence", _COUNT, nullable=False),
    Column("since", _TIME, nullable=False),
    Column("heard", _TIME, nullable=False),
    ForeignKeyConstraint(["domain", "host"], ["hosts.domain", "hosts.name"], ondelete="CASCADE"),
    sqlite_with_rowid=False,
)

hit_bookmarks = Table(
    "hit_bookmarks",
    metadata,
    Column("domain", _NAME, primary_key=True),
    Column("host", _NAME, primary_key=True),
    Column("sequence", _COUNT, primary_key=True),
    Column("chunk", LargeBinary, nullable=False),
    ForeignKeyConstraint(["domain", "host"], ["hosts.domain", "hosts.name"], ondelete="CASCADE"),
)

hit_losses = Table(
    "hit_losses",
    metadata,
    Column("id", _SERIAL, primary_key=True),
    Column("domain", _NAME, ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
    Column("host", _NAME, nullable=False),
    Column("at", _TIME, nullable=False),
    Column("kind", Text, nullable=False),
    Column("entries", _COUNT, nullable=False),
    Column("within_ms", _COUNT, nullable=False),
    Index("hit_losses_by_time", "domain", "at"),
    sqlite_autoincrement=True,
)

hit_totals = Table(
    "hit_totals",
    metadata,
    Column("domain", _NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("chunk", _COUNT, primary_key=True),
    Column("counts", LargeBinary, nullable=False),
)

hit_history = Table(
    "hit_history",
    metadata,
    Column("domain", _NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("resolution", _COUNT, primary_key=True),
    Column("start", _TIME, primary_key=True),
    Column("size", _COUNT, nullable=False),
    Column("counts", LargeBinary, nullable=False),
)

hit_marks = Table(
    "hit_marks",
    metadata,
    Column("domain", _NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    *(
        Column(name, _TIME, nullable=False)
        for name in ("latest", "minutes_until", "hours_until", "moments_since", "minutes_since", "hours_since")
    ),
    sqlite_with_rowid=False,
)

events = Table(
    "events",
    metadata,
    Column("id", _SERIAL, primary_key=True),
    Column("time", _TIME, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("tenant", BigInteger),
    Column("domain", _NAME),
    Column("generation", _COUNT),
    sqlite_autoincrement=True,
)

replies = Table(
    "replies",
    metadata,
    Column("token", BigInteger, ForeignKey("tokens.id", ondelete="CASCADE"), primary_key=True),
    Column("key", _NAME, primary_key=True),
    Column("request", LargeBinary, nullable=False),
    Column("status", _COUNT, nullable=False),
    Column("headers", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("created", _TIME, nullable=False, index=True),
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
