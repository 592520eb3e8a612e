"""Add names of authors, and past rule ids; a returning id keeps its counts.

Revision ID: 0020
Revises: 0019
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and the index; versions that were made before have no name."""
    op.add_column("acl_versions", sa.Column("author_name", sa.Text, nullable=False, server_default=""))
    ended = sa.text("until_version IS NOT NULL")
    columns = ["tenant", "rule_id", "number"]
    op.create_index("acl_rules_ended_id", "acl_rules", columns, sqlite_where=ended, postgresql_where=ended)
