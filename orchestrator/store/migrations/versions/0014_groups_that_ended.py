"""Index address groups that came or went, so that no query scans all ever made.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index."""
    ended = sa.text("until_version IS NOT NULL")
    op.create_index(
        "acl_groups_ended", "acl_groups", ["tenant", "until_version"], sqlite_where=ended, postgresql_where=ended
    )
