"""Expectations of lists, and drafts that members of a tenant show each other.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "expectations",
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "shared_drafts",
        sa.Column("id", _NAME, primary_key=True),
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE"), nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.Column("base_version", sa.BigInteger, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("shared_drafts_by_tenant", "shared_drafts", ["tenant", "created"])
