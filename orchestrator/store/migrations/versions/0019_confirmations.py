"""Add the deadline to confirm a change, and the version that returns without it.

Revision ID: 0019
Revises: 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; no list waits for a confirmation."""
    op.add_column("tenants", sa.Column("confirm_by", sa.BigInteger))
    op.add_column("tenants", sa.Column("confirm_base", sa.BigInteger))
    op.create_index("tenants_by_confirm_by", "tenants", ["confirm_by"])
