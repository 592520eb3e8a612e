"""Machines on their way into a domain, or out of it.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_TIME = sa.BigInteger()


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "onboardings",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("host", _NAME, primary_key=True),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("changed", _TIME, nullable=False),
        sa.Column("holder", sa.Text),
        sa.Column("until", _TIME),
        sqlite_with_rowid=False,
    )
