"""Points of presence: edges, firewall servers, places, lines and heavy hitters.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COUNT = sa.BigInteger()
_TIME = sa.BigInteger()


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "pops",
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), nullable=False, unique=True),
        sa.Column("version", _COUNT, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("next_server", _COUNT, nullable=False),
        sa.Column("chosen", _TIME, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "pop_servers",
        _of_pop(is_key=True),
        sa.Column("number", _COUNT, primary_key=True),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("port", sa.Text, nullable=False),
        sa.Column("mac", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.UniqueConstraint("pop", "name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "pop_places",
        _of_tenant(),
        _of_pop(is_key=False),
        sa.Column("server", _COUNT, nullable=False),
    )
    op.create_table(
        "pop_lines",
        _of_pop(is_key=True),
        sa.Column("family", _COUNT, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("because", sa.Text, nullable=False),
        sa.Column("built", _TIME, nullable=False),
    )
    op.create_table(
        "pop_heavy",
        _of_pop(is_key=True),
        _of_tenant(),
        sa.Column("rule_id", _NAME, primary_key=True),
        sa.Column("since", _TIME, nullable=False),
        sa.Column("packets", _COUNT, nullable=False),
        sa.Column("because", sa.Text, nullable=False),
    )


def _of_pop(*, is_key: bool) -> sa.Column[str]:
    key = sa.ForeignKey("pops.name", ondelete="CASCADE")
    return sa.Column("pop", _NAME, key, primary_key=is_key, nullable=False, index=None if is_key else True)


def _of_tenant() -> sa.Column[int]:
    return sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True)
