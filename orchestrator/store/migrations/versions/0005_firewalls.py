"""Add firewall VNFs, which are hosts without Open vSwitch, and their reported load.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COUNT = sa.BigInteger()
_TIME = sa.BigInteger()


def upgrade() -> None:
    """Add the column and the table."""
    op.add_column("hosts", sa.Column("plane", sa.Text))
    op.create_table(
        "firewall_loads",
        sa.Column("domain", _NAME, primary_key=True),
        sa.Column("host", _NAME, primary_key=True),
        sa.Column("reported", _TIME, nullable=False),
        sa.Column("packets_pps", _COUNT, nullable=False),
        sa.Column("bits_bps", _COUNT, nullable=False),
        sa.Column("cpu_permille", _COUNT, nullable=False),
        sa.Column("connections", _COUNT, nullable=False),
        sa.Column("trouble", sa.Text),
        sa.ForeignKeyConstraint(["domain", "host"], ["hosts.domain", "hosts.name"], ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
