"""Since which generation a domain lets replies in as it does.

Revision ID: 0022
Revises: 0021
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, and let it begin at each domain's present generation.

    Earlier generations are not known, so a domain may have done anything before it.
    """
    op.add_column("domains", sa.Column("returns_since", sa.BigInteger, nullable=False, server_default="0"))
    op.execute("UPDATE domains SET returns_since = generation")
