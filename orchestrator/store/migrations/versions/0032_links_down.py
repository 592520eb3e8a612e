"""Add the interfaces that a spreading switch finds down.

Revision ID: 0032
Revises: 0031
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; nothing is known until the switch's controller tells."""
    op.add_column("spreads", sa.Column("down", sa.Text, nullable=False, server_default="[]"))
