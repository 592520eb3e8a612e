"""Add quotas of a tenant's open streams and of the time to analyse its list.

Revision ID: 0027
Revises: 0026
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; nothing is limited beyond what every tenant is."""
    op.add_column("tenants", sa.Column("quota_streams", sa.BigInteger))
    op.add_column("tenants", sa.Column("quota_analysis", sa.BigInteger))
