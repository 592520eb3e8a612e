"""Fleets of firewall VNFs, their members and decisions, and what one VNF carries.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COUNT = sa.BigInteger()
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.BigInteger()


def upgrade() -> None:
    """Add the tables."""
    _fleets()
    _history()
    op.create_table(
        "capacity_models",
        sa.Column("version", _SERIAL, primary_key=True),
        sa.Column("plane", sa.Text, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("measured", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("capacity_models_by_plane", "capacity_models", ["plane"])
    op.create_table(
        "fleet_keeper",
        sa.Column("id", _COUNT, primary_key=True, autoincrement=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("until", _TIME, nullable=False),
        sqlite_with_rowid=False,
    )


def _fleets() -> None:
    """Create the tables of fleets."""
    op.create_table(
        "fleets",
        sa.Column("domain", _NAME, sa.ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("version", _COUNT, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("next_number", _COUNT, nullable=False),
        sa.Column("looked", _TIME),
        sa.Column("size", _COUNT),
        sa.Column("because", sa.Text, nullable=False),
        sa.Column("model", _COUNT),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "fleet_members",
        sa.Column("domain", _NAME, sa.ForeignKey("fleets.domain", ondelete="CASCADE"), primary_key=True),
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("number", _COUNT, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("plane", "state")),
        *(sa.Column(name, _TIME, nullable=False) for name in ("since", "asked")),
        sa.Column("generation", _COUNT, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("because", "progress")),
        *(sa.Column(name, _TIME) for name in ("served", "drained", "failed", "sick_since", "well_since")),
        sa.Column("relapses", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text) for name in ("trial", "place")),
        sqlite_with_rowid=False,
    )
    there = sa.text("state != 'gone'")
    op.create_index(
        "fleet_members_there", "fleet_members", ["domain", "number"], sqlite_where=there, postgresql_where=there
    )


def _history() -> None:
    """Create the tables of what fleets have done."""
    op.create_table(
        "fleet_samples",
        sa.Column("domain", _NAME, sa.ForeignKey("fleets.domain", ondelete="CASCADE"), primary_key=True),
        sa.Column("at", _TIME, primary_key=True),
        *(
            sa.Column(name, _COUNT, nullable=False)
            for name in ("packets_pps", "bits_bps", "connections", "serving", "most_pps", "rules")
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "fleet_decisions",
        sa.Column("id", _SERIAL, primary_key=True),
        sa.Column("domain", _NAME, sa.ForeignKey("fleets.domain", ondelete="CASCADE"), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        *(sa.Column(name, _COUNT, nullable=False) for name in ("before", "size")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("because", "by")),
        sqlite_autoincrement=True,
    )
    op.create_index("fleet_decisions_of", "fleet_decisions", ["domain", "id"])
