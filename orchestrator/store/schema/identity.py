"""Tables of identity: certificates that the authority issued, and enrolment by groups of machines.

    enrolment_groups     a token that the members of a group of machines share
    group_members        which instance was admitted, by its key, as which enforcement point
    certificates         every certificate issued, until 90 days after its end

A certificate of an enforcement point is valid as long as its row in `tokens` is there: the digest of that token is made
of the certificate's fingerprint (`keys.certificate_digest`), so the holder of the certificate is known just as the
bearer of a token is. Taking the token away revokes the certificate; the row here stays, to say what there was.

    onboardings          machines that are joining or leaving a domain

The `body` of an onboarding is the request (`orchestrator.hosts.request`) as JSON. A process that works on a row holds
it until `until`, and holds it longer as it goes; a process that was killed lets go by that time.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, LargeBinary, Table, Text

from orchestrator.store.schema.core import NAME, SERIAL, TIME, metadata

certificates = Table(
    "certificates",
    metadata,
    Column("serial", Text, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False, unique=True),
    Column("key", LargeBinary, nullable=False, unique=True),
    Column("usage", Text, nullable=False),
    Column("domain", NAME, nullable=False),
    Column("name", NAME, nullable=False),
    Column("token", BigInteger, ForeignKey("tokens.id", ondelete="SET NULL"), index=True),
    Column("pem", Text, nullable=False),
    Column("issued", TIME, nullable=False),
    Column("ends", TIME, nullable=False),
    Column("revoked", TIME),
    Index("certificates_domain", "domain", "name"),
    sqlite_with_rowid=False,
)

enrolment_groups = Table(
    "enrolment_groups",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("name", NAME, nullable=False),
    Column("kind", NAME, nullable=False),
    Column("author", Text, nullable=False),
    Column("created", TIME, nullable=False),
    Column("expires", TIME, nullable=False),
    sqlite_autoincrement=True,
)

group_members = Table(
    "group_members",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("name", NAME, primary_key=True),
    Column("instance", NAME, primary_key=True),
    Column("enforcer", BigInteger, ForeignKey("enforcers.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("address", Text, nullable=False),
    Column("admitted", TIME, nullable=False),
    sqlite_with_rowid=False,
)


onboardings = Table(
    "onboardings",
    metadata,
    Column("domain", NAME, ForeignKey("domains.id", ondelete="CASCADE"), primary_key=True),
    Column("host", NAME, primary_key=True),
    Column("state", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("error", Text),
    Column("body", Text, nullable=False),
    Column("changed", TIME, nullable=False),
    Column("holder", Text),
    Column("until", TIME),
    sqlite_with_rowid=False,
)
