"""Add columns for contents of hosts that the store never had, and for open decisions.

An open decision is one about what must be held back, which nobody has made yet.

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
    """Add the column, and mark decisions about each domain's latest change as open.

    A decision says what the change holds back. It is not open where it was kept with the change. Before it was kept, a
    service that was stopped in the middle of two steps left the second one to be taken at once.
    """
    op.add_column("domains", sa.Column("behind", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(
        "DELETE FROM intersections WHERE generation <> "
        "(SELECT generation FROM domains WHERE domains.id = intersections.domain)"
    )
    op.execute(
        "INSERT INTO intersections (domain, generation, withheld) SELECT id, generation, 'null' FROM domains "
        "WHERE id NOT IN (SELECT domain FROM intersections)"
    )
