"""Add what switches may hold, and what is held back until they hold less.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables, and to each host since when it may hold programs.

    For hosts that are there, this is the present or earlier.
    """
    op.create_table(
        "intersections",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("withheld", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "former_hosts",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("datapath_id", sa.Text, primary_key=True),
        sa.Column("since", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.add_column("hosts", sa.Column("since", sa.BigInteger, nullable=False, server_default="0"))
