"""Let several endpoints of a tenant live behind one port, where each says so.

Revision ID: 0031
Revises: 0030
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Hold the uniqueness of ports for endpoints that are not shared: all that there are."""
    if op.get_bind().dialect.name == "sqlite":
        _make_table_anew()
    else:
        op.drop_constraint("endpoints_port_unique", "endpoints")
        op.add_column("endpoints", sa.Column("shared", sa.BigInteger, nullable=False, server_default="0"))
        op.create_unique_constraint("endpoints_sender_unique", "endpoints", ["domain", "port", "mac"])
    alone = sa.text("shared = 0")
    op.create_index(
        "endpoints_port_unique", "endpoints", ["domain", "port"],
        unique=True, sqlite_where=alone, postgresql_where=alone,
    )  # fmt: skip


def _make_table_anew() -> None:
    """Make the table without its old constraint, which SQLite cannot drop.

    Endpoints' prefixes go with the old table, so they are put aside and put back.
    """
    op.execute("CREATE TEMP TABLE kept_endpoints AS SELECT * FROM endpoints")
    op.execute("CREATE TEMP TABLE kept_prefixes AS SELECT * FROM endpoint_prefixes")
    op.drop_table("endpoints")
    op.create_table(
        "endpoints",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id"), primary_key=True),
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number"), nullable=False),
        sa.Column("port", sa.Text, nullable=False),
        sa.Column("mac", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("shared", sa.BigInteger, nullable=False, server_default="0"),
        sa.UniqueConstraint("domain", "port", "mac", name="endpoints_sender_unique"),
        sqlite_with_rowid=False,
    )
    op.create_index("endpoints_by_tenant", "endpoints", ["tenant"])
    op.execute(
        "INSERT INTO endpoints (domain, name, tenant, port, mac, version, generation) "
        "SELECT domain, name, tenant, port, mac, version, generation FROM kept_endpoints"
    )
    op.execute(
        "INSERT INTO endpoint_prefixes (first, last, prefix, domain, endpoint) "
        "SELECT first, last, prefix, domain, endpoint FROM kept_prefixes"
    )
    op.execute("DROP TABLE kept_endpoints")
    op.execute("DROP TABLE kept_prefixes")
