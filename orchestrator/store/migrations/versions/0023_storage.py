"""Add the bytes that a tenant's list and its history take up, and their quota.

Revision ID: 0023
Revises: 0022
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_COUNTED = """
    UPDATE tenants SET stored_bytes =
        (SELECT coalesce(sum(length(body) + 128), 0) FROM acl_rules r WHERE r.tenant = tenants.number)
      + (SELECT coalesce(sum(length(prefix) + 128), 0) FROM acl_group_members m WHERE m.tenant = tenants.number)
"""


def upgrade() -> None:
    """Add the columns, and count what is there."""
    op.add_column("tenants", sa.Column("quota_bytes", sa.BigInteger))
    op.add_column("tenants", sa.Column("quota_versions", sa.BigInteger))
    op.add_column("tenants", sa.Column("stored_bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(_COUNTED)
