"""The comment of a version's author.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; versions that were made before have no comment."""
    op.add_column("acl_versions", sa.Column("comment", sa.Text, nullable=False, server_default=""))
