"""The first schema.

Revision ID: 0001
Revises: nothing
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COUNT = sa.BigInteger()
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.BigInteger()


def upgrade() -> None:
    """Make every table."""
    _tenants()
    _access_lists()
    _sites()
    _enforcers()
    _tokens_and_logs()


def _tenants() -> None:
    """Create the tables of domains, tenants and their prefixes."""
    op.create_table(
        "counters",
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("next", _COUNT, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "domains",
        sa.Column("id", _NAME, primary_key=True),
        sa.Column("return_traffic", sa.Text, nullable=False),
        sa.Column("generation", _COUNT, nullable=False),
        sa.Column("epoch", _COUNT, nullable=False),
        sa.Column("version", _COUNT, nullable=False),
        sa.Column("operator_version", _COUNT, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tenants",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", _NAME, nullable=False, unique=True),
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("version", _COUNT, nullable=False),
        sa.Column("acl_version", _COUNT, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.CheckConstraint("number BETWEEN 1 AND 4294967295", name="number_fits_a_register"),
        sqlite_with_rowid=False,
    )
    op.create_index("tenants_by_domain", "tenants", ["domain"])
    op.create_table(
        "prefixes",
        sa.Column("first", sa.LargeBinary, primary_key=True),
        sa.Column("last", sa.LargeBinary, nullable=False),
        sa.Column("prefix", sa.Text, nullable=False),
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE"), nullable=False),
        sa.CheckConstraint("first <= last", name="range"),
        sqlite_with_rowid=False,
    )
    op.create_index("prefixes_by_tenant", "prefixes", ["tenant"])
    _hold_exclusive("prefixes")


def _access_lists() -> None:
    """Create the tables of lists, their versions and rules."""
    op.create_table(
        "acl_versions",
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
        sa.Column("version", _COUNT, primary_key=True),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("ingress_default", sa.Text, nullable=False),
        sa.Column("egress_default", sa.Text, nullable=False),
        sa.Column("rules", _COUNT, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "acl_rules",
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
        sa.Column("since_version", _COUNT, primary_key=True),
        sa.Column("order_key", _COUNT, primary_key=True),
        sa.Column("until_version", _COUNT),
        sa.Column("number", _COUNT, nullable=False),
        sa.Column("rule_id", _NAME, nullable=False),
        sa.Column("expires", _TIME),
        sa.Column("body", sa.Text, nullable=False),
        sa.CheckConstraint("until_version > since_version", name="span"),
        sa.CheckConstraint("number BETWEEN 1 AND 1099511627775", name="number_fits_a_cookie"),
        sqlite_with_rowid=False,
    )
    holds, ended = sa.text("until_version IS NULL"), sa.text("until_version IS NOT NULL")
    expires = sa.text("until_version IS NULL AND expires IS NOT NULL")
    _index("acl_rules_current_id", "acl_rules", ["tenant", "rule_id"], holds, unique=True)
    _index("acl_rules_current_order", "acl_rules", ["tenant", "order_key"], holds, unique=True)
    _index("acl_rules_ended", "acl_rules", ["tenant", "until_version"], ended)
    _index("acl_rules_expiring", "acl_rules", ["expires"], expires)
    op.create_table(
        "acl_groups",
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
        sa.Column("since_version", _COUNT, primary_key=True),
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("until_version", _COUNT),
        sa.Column("body", sa.Text, nullable=False),
        sa.CheckConstraint("until_version > since_version", name="span"),
        sqlite_with_rowid=False,
    )
    _index("acl_groups_current", "acl_groups", ["tenant", "name"], holds, unique=True)


def _sites() -> None:
    """Create the tables of hosts and endpoints."""
    op.create_table(
        "hosts",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id"), primary_key=True),
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("datapath_id", sa.Text, nullable=False, unique=True),
        sa.Column("uplink", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "endpoints",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id"), primary_key=True),
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number"), nullable=False),
        sa.Column("port", sa.Text, nullable=False),
        sa.Column("mac", sa.BigInteger, nullable=False),
        sa.Column("version", _COUNT, nullable=False),
        sa.UniqueConstraint("domain", "port", name="endpoints_port_unique"),
        sqlite_with_rowid=False,
    )
    op.create_index("endpoints_by_tenant", "endpoints", ["tenant"])
    op.create_table(
        "endpoint_prefixes",
        sa.Column("first", sa.LargeBinary, primary_key=True),
        sa.Column("last", sa.LargeBinary, nullable=False),
        sa.Column("prefix", sa.Text, nullable=False),
        sa.Column("domain", _NAME, nullable=False),
        sa.Column("endpoint", _NAME, nullable=False),
        sa.ForeignKeyConstraint(["domain", "endpoint"], ["endpoints.domain", "endpoints.name"], ondelete="CASCADE"),
        sa.CheckConstraint("first <= last", name="range"),
        sqlite_with_rowid=False,
    )
    op.create_index("endpoint_prefixes_by_endpoint", "endpoint_prefixes", ["domain", "endpoint"])
    _hold_exclusive("endpoint_prefixes")
    op.create_table(
        "operator_rules",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", _COUNT, primary_key=True),
        sa.Column("number", _COUNT, nullable=False),
        sa.Column("rule_id", _NAME, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.UniqueConstraint("domain", "rule_id", name="operator_rules_rule_id_unique"),
        sqlite_with_rowid=False,
    )


def _enforcers() -> None:
    """Create the tables of enforcement points and their reports."""
    op.create_table(
        "invitations",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("expires", _TIME, nullable=False),
        sa.Column("used", _TIME),
        sqlite_with_rowid=False,
    )
    op.create_index("invitations_by_domain", "invitations", ["domain"])
    op.create_table(
        "enforcers",
        sa.Column("id", _SERIAL, primary_key=True),
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("epoch", _COUNT, nullable=False),
        sa.Column("sequence", _COUNT),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("last_seen", _TIME),
        sa.UniqueConstraint("domain", "name", name="enforcers_name_unique"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "points",
        sa.Column("domain", _NAME, primary_key=True),
        sa.Column("host", _NAME, primary_key=True),
        sa.Column("enforcer", sa.BigInteger, sa.ForeignKey("enforcers.id", ondelete="CASCADE"), nullable=False),
        sa.Column("generation", _COUNT, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("flows", _COUNT, nullable=False),
        sa.Column("reported", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["domain", "host"], ["hosts.domain", "hosts.name"], ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("points_by_enforcer", "points", ["enforcer"])


def _tokens_and_logs() -> None:
    """Create the tables of tokens, hits, events and kept answers."""
    op.create_table(
        "tokens",
        sa.Column("id", _SERIAL, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE")),
        sa.Column("enforcer", sa.BigInteger, sa.ForeignKey("enforcers.id", ondelete="CASCADE")),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("expires", _TIME),
        sqlite_autoincrement=True,
    )
    op.create_index("tokens_by_tenant", "tokens", ["tenant"])
    op.create_index("tokens_by_enforcer", "tokens", ["enforcer"])
    op.create_table(
        "hits",
        sa.Column("cookie", _COUNT, primary_key=True, autoincrement=False),
        sa.Column("packets", _COUNT, nullable=False),
        sa.Column("bytes", _COUNT, nullable=False),
        sa.Column("resets", _COUNT, nullable=False),
        sa.Column("last_hit", _TIME),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "hit_baselines",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("host", _NAME, primary_key=True),
        sa.Column("cookie", _COUNT, primary_key=True),
        sa.Column("packets", _COUNT, nullable=False),
        sa.Column("bytes", _COUNT, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "events",
        sa.Column("id", _SERIAL, primary_key=True),
        sa.Column("time", _TIME, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "replies",
        sa.Column("token", sa.BigInteger, sa.ForeignKey("tokens.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("key", _NAME, primary_key=True),
        sa.Column("request", sa.LargeBinary, nullable=False),
        sa.Column("status", _COUNT, nullable=False),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("replies_by_created", "replies", ["created"])


def _index(name: str, table: str, columns: list[str], where: sa.TextClause, *, unique: bool = False) -> None:
    """An index over the rows that a condition chooses."""
    op.create_index(name, table, columns, unique=unique, sqlite_where=where, postgresql_where=where)


def _hold_exclusive(table: str) -> None:
    """Let the database refuse overlapping ranges."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            f"ALTER TABLE {table} ADD CONSTRAINT {table}_exclusive EXCLUDE USING gist ((prefix::inet) inet_ops WITH &&)"
        )
        return
    meets = f"(SELECT last FROM {table} WHERE first <= NEW.last ORDER BY first DESC LIMIT 1) >= NEW.first"  # noqa: S608
    op.execute(
        f"CREATE TRIGGER {table}_exclusive BEFORE INSERT ON {table} WHEN {meets} "
        f"BEGIN SELECT RAISE(ABORT, '{table}_exclusive'); END"
    )
    op.execute(
        f"CREATE TRIGGER {table}_fixed BEFORE UPDATE OF first, last ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table}_fixed'); END"
    )
