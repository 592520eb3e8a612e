"""Names of the authors of waivers, shared drafts and expectations.

Revision ID: 0026
Revises: 0025
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; what was made before has no name."""
    for table in ("waivers", "shared_drafts", "expectations"):
        op.add_column(table, sa.Column("author_name", sa.Text, nullable=False, server_default=""))
