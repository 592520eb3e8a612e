"""Add the hosts that an enrolment token and its enforcement point are bound to.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; who is enrolled already is bound by kind and name alone."""
    for table in ("invitations", "enforcers"):
        op.add_column(table, sa.Column("hosts", sa.Text))
