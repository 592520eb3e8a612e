"""Which rules are lifted above their lists, why, and how a domain chooses them.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COUNT = sa.BigInteger()
_TIME = sa.BigInteger()


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "placement_settings",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("version", _COUNT, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("looked", _TIME),
        sa.Column("idle_permille", _COUNT),
        sa.Column("unused_permille", _COUNT),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "placements",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
        sa.Column("rule_id", _NAME, primary_key=True),
        sa.Column("wish", sa.Text),
        sa.Column("chosen", _TIME),
        sa.Column("lifted", _TIME),
        sa.Column("because", sa.Text, nullable=False),
        sa.Column("saves", _COUNT),
        sqlite_with_rowid=False,
    )
    op.create_index("placements_by_tenant", "placements", ["tenant"])
