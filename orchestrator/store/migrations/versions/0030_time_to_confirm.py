"""Add for how long a change waits to be confirmed.

Revision ID: 0030
Revises: 0029
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; changes that wait already have their deadline only."""
    op.add_column("tenants", sa.Column("confirm_s", sa.BigInteger))
