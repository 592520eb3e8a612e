"""Add rows of group members, quotas, owners of events, expiry notices, generations of versions.

Members of address groups become rows of their own; events say whose they are; announced expiries are kept; each version
of a list has the generation that came with it.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COUNT = sa.BigInteger()
_TIME = sa.BigInteger()
_STRIDE = 1 << 40

_groups = sa.table(
    "acl_groups",
    sa.column("tenant", sa.BigInteger),
    sa.column("since_version", _COUNT),
    sa.column("until_version", _COUNT),
    sa.column("name", sa.Text),
    sa.column("description", sa.Text),
)
_members = sa.table(
    "acl_group_members",
    *(sa.column(name, _COUNT) for name in ("tenant", "since_version", "order_key", "until_version")),
    sa.column("name", sa.Text),
    sa.column("prefix", sa.Text),
)


def upgrade() -> None:
    """Add the tables and columns, and take groups apart into their members."""
    _add_members()
    _take_groups_apart()
    _add_notices()
    op.add_column("acl_versions", sa.Column("generation", _COUNT))
    op.create_index("acl_versions_by_generation", "acl_versions", ["generation"])
    op.add_column("domains", sa.Column("enforced", _COUNT))
    op.add_column("tenants", sa.Column("quota_rules", _COUNT))
    op.add_column("tenants", sa.Column("quota_flows", _COUNT))
    op.add_column("enforcers", sa.Column("lost", _TIME))
    op.add_column("events", sa.Column("tenant", sa.BigInteger))
    op.add_column("events", sa.Column("domain", _NAME))
    op.add_column("events", sa.Column("generation", _COUNT))


def _add_members() -> None:
    op.create_table(
        "acl_group_members",
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
        sa.Column("since_version", _COUNT, primary_key=True),
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("order_key", _COUNT, primary_key=True),
        sa.Column("until_version", _COUNT),
        sa.Column("prefix", _NAME, nullable=False),
        sa.CheckConstraint("until_version > since_version", name="span"),
        sqlite_with_rowid=False,
    )
    for name, columns, holds in (
        ("acl_group_members_current", ["tenant", "name", "prefix"], sa.text("until_version IS NULL")),
        ("acl_group_members_ended", ["tenant", "until_version"], sa.text("until_version IS NOT NULL")),
    ):
        op.create_index(name, "acl_group_members", columns, sqlite_where=holds, postgresql_where=holds)


def _take_groups_apart() -> None:
    """The body of a group was a JSON document of its description and its prefixes."""
    op.alter_column("acl_groups", "body", new_column_name="description")
    connection = op.get_bind()
    for row in connection.execute(sa.select(_groups)).all():
        body = json.loads(row.description)
        members = list(_members_of(row, body["prefixes"]))
        if members:
            connection.execute(sa.insert(_members), members)
        here = (_groups.c.tenant == row.tenant) & (_groups.c.since_version == row.since_version)
        connection.execute(
            sa.update(_groups).where(here, _groups.c.name == row.name).values(description=body["description"])
        )


def _members_of(row: sa.Row[tuple[object, ...]], prefixes: list[str]) -> Iterator[dict[str, object]]:
    span = {name: getattr(row, name) for name in ("tenant", "since_version", "until_version", "name")}
    for index, prefix in enumerate(prefixes, 1):
        yield {**span, "order_key": index * _STRIDE, "prefix": prefix}


def _add_notices() -> None:
    op.create_table(
        "expiry_notices",
        sa.Column("number", _COUNT, primary_key=True, autoincrement=False),
        sa.Column("expires", _TIME, primary_key=True),
        sa.Column("tenant", sa.BigInteger, sa.ForeignKey("tenants.number", ondelete="CASCADE"), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("expiry_notices_by_tenant", "expiry_notices", ["tenant"])
