"""Packets that rules with `log` decided.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "log_limits",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("rate", sa.BigInteger, nullable=False),
        sa.Column("burst", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "packet_log",
        sa.Column("id", _SERIAL, primary_key=True),
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE")),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("host", _NAME, nullable=False),
        sa.Column("rule", _NAME, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("packet_log_by_tenant", "packet_log", ["tenant", "id"])
    op.create_index("packet_log_by_domain", "packet_log", ["domain", "id"])
    op.create_table(
        "packet_log_feeds",
        sa.Column("enforcer", sa.BigInteger, sa.ForeignKey("enforcers.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("lost", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
