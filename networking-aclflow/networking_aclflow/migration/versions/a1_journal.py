"""The journal.

Revision ID: aclflow_a1
Revises: None
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from neutron.db.migration import cli

revision = "aclflow_a1"
down_revision = None
branch_labels = (cli.EXPAND_BRANCH,)


def upgrade() -> None:
    """Make the journal."""
    op.create_table(
        "aclflow_journal",
        sa.Column("id", sa.BigInteger(), primary_key=True, autoincrement=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("resource", sa.String(255), nullable=False, index=True),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("due", sa.DateTime(), nullable=False),
        sa.Column("error", sa.String(1000)),
    )
