"""Add certificates of machines, bound enrolment tokens, and groups of machines that enrol.

An enrolment token is bound to a name and a kind.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.BigInteger()


def upgrade() -> None:
    """Add the columns and the tables."""
    op.add_column("invitations", sa.Column("name", _NAME))
    op.add_column("invitations", sa.Column("kind", _NAME))
    op.create_table(
        "certificates",
        sa.Column("serial", sa.Text, primary_key=True),
        sa.Column("fingerprint", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("key", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("usage", sa.Text, nullable=False),
        sa.Column("domain", _NAME, nullable=False),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("token", sa.BigInteger, sa.ForeignKey("tokens.id", ondelete="SET NULL"), index=True),
        sa.Column("pem", sa.Text, nullable=False),
        sa.Column("issued", _TIME, nullable=False),
        sa.Column("ends", _TIME, nullable=False),
        sa.Column("revoked", _TIME),
        sqlite_with_rowid=False,
    )
    op.create_index("certificates_domain", "certificates", ["domain", "name"])
    op.create_table(
        "enrolment_groups",
        sa.Column("id", _SERIAL, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("kind", _NAME, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("expires", _TIME, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "group_members",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("instance", _NAME, primary_key=True),
        sa.Column(
            "enforcer", sa.BigInteger, sa.ForeignKey("enforcers.id", ondelete="CASCADE"), nullable=False, index=True
        ),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("admitted", _TIME, nullable=False),
        sqlite_with_rowid=False,
    )
