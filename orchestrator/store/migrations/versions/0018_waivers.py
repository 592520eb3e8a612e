"""Findings that somebody took responsibility for.

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "waivers",
        sa.Column("id", _SERIAL, primary_key=True),
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE"), nullable=False),
        sa.Column("kind", _NAME, nullable=False),
        sa.Column("rules", _NAME, nullable=False),
        sa.Column("group_name", _NAME, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("ends", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("waivers_by_subject", "waivers", ["tenant", "kind", "rules", "group_name"], unique=True)
