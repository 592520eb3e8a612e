"""Find current rules by number, and a domain's tenants by name.

Revision ID: 0033
Revises: 0032
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the indexes; that of tenants takes the place of one by domain alone."""
    holds = sa.text("until_version IS NULL")
    op.create_index(
        "acl_rules_current_number", "acl_rules", ["number"], unique=True, sqlite_where=holds, postgresql_where=holds
    )
    op.drop_index("tenants_by_domain", "tenants")
    op.create_index("tenants_by_domain", "tenants", ["domain", "id"], unique=True)
