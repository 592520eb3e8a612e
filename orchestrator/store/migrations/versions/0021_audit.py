"""Add the audit trail: entries in hash chains, anchors of their heads; events in rings.

Revision ID: 0021
Revises: 0020
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables and the column; the trail begins with this schema."""
    op.create_table(
        "audit",
        sa.Column("id", _SERIAL, primary_key=True),
        sa.Column("chain", _NAME, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("time", sa.BigInteger, nullable=False),
        sa.Column("who", _NAME, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("kind", _NAME, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("tenant", sa.BigInteger),
        sa.Column("domain", _NAME),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("before", sa.LargeBinary),
        sa.Column("after", sa.LargeBinary),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("audit_by_chain", "audit", ["chain", "number"], unique=True)
    op.create_index("audit_by_tenant", "audit", ["tenant", "id"])
    op.create_table(
        "audit_anchors",
        sa.Column("chain", _NAME, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("time", sa.BigInteger, nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("signature", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("audit_anchors_by_time", "audit_anchors", ["time"])
    op.add_column("events", sa.Column("ring", _NAME, nullable=False, server_default=""))
    op.create_index("events_by_ring", "events", ["ring", "id"])
