"""Add changes that another person must approve, the marks for it, and persons of tokens.

Lists and rules of a domain are marked where they ask for approval; a token says whose it is.

Revision ID: 0025
Revises: 0024
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table and the columns, without requiring any approval.

    Each token is a person of its own.
    """
    op.add_column("domains", sa.Column("two_persons", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("tenants", sa.Column("two_persons", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("tokens", sa.Column("person", sa.Text))
    op.add_column("tokens", sa.Column("maker", sa.Text))
    op.create_table(
        "proposals",
        sa.Column("id", _NAME, primary_key=True),
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE")),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("maker", sa.Text),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.Column("base_version", sa.BigInteger, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("despite", sa.BigInteger, nullable=False),
        sa.Column("confirm_s", sa.BigInteger),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("decided_by", sa.Text),
        sa.Column("decided", sa.BigInteger),
        sa.Column("reason", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("proposals_by_tenant", "proposals", ["tenant"])
    op.create_index("proposals_by_domain", "proposals", ["domain", "created"])
