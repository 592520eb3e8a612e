"""Credentials: bearer tokens, enrolment of machines, and what the authority has issued."""

from __future__ import annotations

import datetime as dt
from dataclasses import field

from orchestrator.wire.common import describe, document


@document(kw_only=True)
class Invitation:
    """A one-time enrolment token, seen only now."""

    token: str = field(repr=False)
    domain: str
    expires: dt.datetime


@document(kw_only=True)
class EnrolmentGroup:
    """A group's token, without its secret."""

    id: int
    domain: str
    group: str
    kind: str
    created: dt.datetime
    expires: dt.datetime


@document(kw_only=True)
class NewGroupToken:
    """A group's token, seen only now."""

    id: int
    token: str = field(repr=False)
    domain: str
    group: str
    expires: dt.datetime


@document(kw_only=True)
class Enrolment:
    """The enforcer's identity from now on.

    It is known by the certificate, which it shows in TLS, or by the bearer token; the other one is empty. `expires` is
    when the token ends. The enforcer of the highest epoch is master.
    """

    enforcer: int
    domain: str
    token: str = field(repr=False)
    epoch: int
    name: str
    certificate: str
    authority: str
    expires: dt.datetime | None = None


@document(kw_only=True)
class PointToken:
    """How long an enforcement point's token lasts, and whether it is to be renewed now."""

    created: dt.datetime
    expires: dt.datetime | None
    due: bool


@document(kw_only=True)
class RenewedToken:
    """A further token of an enforcement point, seen only now."""

    token: str = field(repr=False)
    expires: dt.datetime | None


@document()
class Authority:
    """Whom to believe. The fingerprint is the SHA-256 of the certificate, in hexadecimal digits."""

    certificate: str
    fingerprint: str


@document()
class Revoked:
    """Certificates that are not to be taken any more, by serial."""

    serials: tuple[str, ...]


@document(kw_only=True)
class Certificate:
    """A certificate that the authority issued."""

    serial: str
    usage: str
    domain: str
    name: str
    issued: dt.datetime
    ends: dt.datetime
    revoked: dt.datetime | None
    valid: bool
    certificate: str
    authority: str = ""


@document(kw_only=True)
class Token:
    """A token without its secret."""

    id: int
    role: str
    tenant: str | None
    domain: str | None
    description: str
    created: dt.datetime
    expires: dt.datetime | None
    person: str = describe("the person that bears it; without a name, a person of its own", default="")
    made_by: str | None = describe("another person that made it, and has seen its secret", default=None)


@document(kw_only=True)
class NewToken(Token):
    """A token just made, with its secret, which is seen only now."""

    token: str = field(repr=False)
