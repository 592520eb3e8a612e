"""Which interfaces hosts' switches have, and since which generation an endpoint is as it is.

Revision ID: 0024
Revises: 0023
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NOW = "UPDATE endpoints SET generation = (SELECT generation FROM domains d WHERE d.id = endpoints.domain)"


def upgrade() -> None:
    """Add the table and the column.

    Endpoints that are there count as of their domain's present generation.
    """
    op.create_table(
        "host_ports",
        sa.Column("domain", _NAME, primary_key=True),
        sa.Column("host", _NAME, primary_key=True),
        sa.Column("ports", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(["domain", "host"], ["hosts.domain", "hosts.name"], ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.add_column("endpoints", sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(_NOW)
