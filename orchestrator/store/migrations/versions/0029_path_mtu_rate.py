"""Add a domain's rate of messages about path MTU.

Revision ID: 0029
Revises: 0028
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; domains that stand keep the rate that they had."""
    op.add_column("domains", sa.Column("path_mtu_rate", sa.BigInteger, nullable=False, server_default="100"))
