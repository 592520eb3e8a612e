"""The tables of access lists: versioned rows of lists, and announced expiries.

Access lists are *temporal*: a row of `acl_rules`, `acl_groups` or `acl_group_members` holds from `since_version` up to,
not including, `until_version` (NULL: it still holds). Changing one rule ends one row and begins another; every older
version can still be read. `acl_versions` has one row a version.

**Beside a list**: expectations, shared drafts, and proposals. All go with the tenant. A draft is known by a random id,
is kept for some days, and holds a list in its native form. A proposal goes out when another person has approved it; it
is about the list of a tenant, or, without a tenant, about its domain. Its `body` is the proposed content in its native
form; one that was decided keeps its digest alone.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, LargeBinary, Table, Text

from orchestrator.store.schema.core import COUNT, NAME, SERIAL, TIME, metadata

acl_versions = Table(
    "acl_versions",
    metadata,
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("version", COUNT, primary_key=True),
    Column("author", Text, nullable=False),
    Column("created", TIME, nullable=False),
    Column("ingress_default", Text, nullable=False),
    Column("egress_default", Text, nullable=False),
    Column("rules", COUNT, nullable=False),
    Column("generation", COUNT, index=True),
    Column("comment", Text, nullable=False, server_default=""),
    Column("author_name", Text, nullable=False, server_default=""),
    sqlite_with_rowid=False,
)

acl_rules = Table(
    "acl_rules",
    metadata,
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("since_version", COUNT, primary_key=True),
    Column("order_key", COUNT, primary_key=True),
    Column("until_version", COUNT),
    Column("number", COUNT, nullable=False),
    Column("rule_id", NAME, nullable=False),
    Column("expires", TIME),
    Column("body", Text, nullable=False),
    CheckConstraint("until_version > since_version", name="span"),
    CheckConstraint("number BETWEEN 1 AND 1099511627775", name="number_fits_a_cookie"),
    sqlite_with_rowid=False,
)
_STILL_HOLDS = acl_rules.c.until_version.is_(None)
Index(
    "acl_rules_current_id", acl_rules.c.tenant, acl_rules.c.rule_id, unique=True,
    sqlite_where=_STILL_HOLDS, postgresql_where=_STILL_HOLDS,
)  # fmt: skip
Index(
    "acl_rules_current_order", acl_rules.c.tenant, acl_rules.c.order_key, unique=True,
    sqlite_where=_STILL_HOLDS, postgresql_where=_STILL_HOLDS,
)  # fmt: skip
Index(
    "acl_rules_current_number", acl_rules.c.number, unique=True,
    sqlite_where=_STILL_HOLDS, postgresql_where=_STILL_HOLDS,
)  # fmt: skip
Index(
    "acl_rules_ended", acl_rules.c.tenant, acl_rules.c.until_version,
    sqlite_where=~_STILL_HOLDS, postgresql_where=~_STILL_HOLDS,
)  # fmt: skip
Index(
    "acl_rules_ended_id", acl_rules.c.tenant, acl_rules.c.rule_id, acl_rules.c.number,
    sqlite_where=~_STILL_HOLDS, postgresql_where=~_STILL_HOLDS,
)  # fmt: skip
_EXPIRES = _STILL_HOLDS & acl_rules.c.expires.is_not(None)
Index("acl_rules_expiring", acl_rules.c.expires, sqlite_where=_EXPIRES, postgresql_where=_EXPIRES)

acl_groups = Table(
    "acl_groups",
    metadata,
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("since_version", COUNT, primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("until_version", COUNT),
    Column("description", Text, nullable=False),
    CheckConstraint("until_version > since_version", name="span"),
    sqlite_with_rowid=False,
)
_GROUP_HOLDS = acl_groups.c.until_version.is_(None)
Index(
    "acl_groups_current", acl_groups.c.tenant, acl_groups.c.name, unique=True,
    sqlite_where=_GROUP_HOLDS, postgresql_where=_GROUP_HOLDS,
)  # fmt: skip

Index(
    "acl_groups_ended", acl_groups.c.tenant, acl_groups.c.until_version,
    sqlite_where=~_GROUP_HOLDS, postgresql_where=~_GROUP_HOLDS,
)  # fmt: skip

acl_group_members = Table(
    "acl_group_members",
    metadata,
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("since_version", COUNT, primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("order_key", COUNT, primary_key=True),
    Column("until_version", COUNT),
    Column("prefix", NAME, nullable=False),
    CheckConstraint("until_version > since_version", name="span"),
    sqlite_with_rowid=False,
)
_MEMBER_HOLDS = acl_group_members.c.until_version.is_(None)
Index(
    "acl_group_members_current", acl_group_members.c.tenant, acl_group_members.c.name, acl_group_members.c.prefix,
    sqlite_where=_MEMBER_HOLDS, postgresql_where=_MEMBER_HOLDS,
)  # fmt: skip
Index(
    "acl_group_members_ended", acl_group_members.c.tenant, acl_group_members.c.until_version,
    sqlite_where=~_MEMBER_HOLDS, postgresql_where=~_MEMBER_HOLDS,
)  # fmt: skip

expiry_notices = Table(
    "expiry_notices",
    metadata,
    Column("number", COUNT, primary_key=True, autoincrement=False),
    Column("expires", TIME, primary_key=True),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), nullable=False, index=True),
    sqlite_with_rowid=False,
)

waivers = Table(
    "waivers",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), nullable=False),
    Column("kind", NAME, nullable=False),
    Column("rules", NAME, nullable=False),
    Column("group_name", NAME, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created", TIME, nullable=False),
    Column("ends", TIME, nullable=False),
    Column("author_name", Text, nullable=False, server_default=""),
    sqlite_autoincrement=True,
)
Index("waivers_by_subject", waivers.c.tenant, waivers.c.kind, waivers.c.rules, waivers.c.group_name, unique=True)


proposals = Table(
    "proposals",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), nullable=False),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), index=True),
    Column("kind", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("person", Text, nullable=False),
    Column("maker", Text),
    Column("created", TIME, nullable=False),
    Column("expires", TIME, nullable=False),
    Column("base_version", COUNT, nullable=False),
    Column("comment", Text, nullable=False),
    Column("despite", COUNT, nullable=False),
    Column("confirm_s", COUNT),
    Column("digest", LargeBinary, nullable=False),
    Column("body", Text),
    Column("state", Text, nullable=False),
    Column("decided_by", Text),
    Column("decided", TIME),
    Column("reason", Text, nullable=False),
    Column("decided_by_name", Text, nullable=False, server_default=""),
    sqlite_with_rowid=False,
)
Index("proposals_by_domain", proposals.c.domain, proposals.c.created)


expectations = Table(
    "expectations",
    metadata,
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), primary_key=True),
    Column("text", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("created", TIME, nullable=False),
    Column("author_name", Text, nullable=False, server_default=""),
    sqlite_with_rowid=False,
)

shared_drafts = Table(
    "shared_drafts",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("tenant", BigInteger, ForeignKey("tenants.number", ondelete="CASCADE"), nullable=False),
    Column("author", Text, nullable=False),
    Column("created", TIME, nullable=False),
    Column("expires", TIME, nullable=False),
    Column("base_version", COUNT, nullable=False),
    Column("message", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("author_name", Text, nullable=False, server_default=""),
    sqlite_with_rowid=False,
)
Index("shared_drafts_by_tenant", shared_drafts.c.tenant, shared_drafts.c.created)
