"""Columns for what hosts hold that the store has never had, and what nobody has decided to hold back yet.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; what the latest change of each domain holds back is open, unless that was kept with it: before it
    was kept, a service that was stopped in the middle of two steps left the second one to be taken at once."""
    op.add_column("domains", sa.Column("behind", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(
        "DELETE FROM intersections WHERE generation <> "
        "(SELECT generation FROM domains WHERE domains.id = intersections.domain)"
    )
    op.execute(
        "INSERT INTO intersections (domain, generation, withheld) SELECT id, generation, 'null' FROM domains "
        "WHERE id NOT IN (SELECT domain FROM intersections)"
    )
