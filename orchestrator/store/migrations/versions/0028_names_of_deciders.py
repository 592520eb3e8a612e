"""Add the name of the one who decided about a proposal.

Revision ID: 0028
Revises: 0027
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of what was decided before nobody's name is known."""
    op.add_column("proposals", sa.Column("decided_by_name", sa.Text, nullable=False, server_default=""))
