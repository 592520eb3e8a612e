"""Enrolment and certificates."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from pydantic import Field

from api.schemas.common import Incoming, Name, Outgoing
from orchestrator.identity.requests import LONGEST_REQUEST
from orchestrator.store.points.enrolments import EnrolmentGroup
from orchestrator.store.points.records import CertificateRecord, Enrolled

_LONGEST_S = 30 * 86400
_MOST_HOSTS = 1000

Request = Annotated[str, Field(max_length=LONGEST_REQUEST, description="certificate request (PKCS #10) in PEM")]


class NewInvitation(Incoming):
    """For how long an enrolment token may be used, and by whom, if that is known."""

    lasts_s: int = Field(default=3600, ge=1, le=_LONGEST_S)
    name: Name | None = None
    kind: Name | None = None
    hosts: list[Name] = Field(
        default=[], max_length=_MOST_HOSTS, description="a controller's: it speaks for these switches alone"
    )


class Invitation(Outgoing):
    """A one-time enrolment token, seen only now."""

    token: str
    domain: str
    expires: dt.datetime


class NewGroup(Incoming):
    """For the machines of which group in the domain's cloud a token is, and for how long."""

    group: Name
    kind: Name
    lasts_s: int = Field(default=86400, ge=1, le=366 * 86400)


class GroupBody(Outgoing):
    """A group's token, without its secret."""

    id: int
    domain: str
    group: str
    kind: str
    created: dt.datetime
    expires: dt.datetime

    @classmethod
    def of(cls, record: EnrolmentGroup) -> GroupBody:
        return cls(
            id=record.id,
            domain=record.domain,
            group=record.name,
            kind=record.kind,
            created=record.created,
            expires=record.expires,
        )


class NewGroupToken(Outgoing):
    """A group's token, seen only now."""

    id: int
    token: str
    domain: str
    group: str
    expires: dt.datetime


class Enrol(Incoming):
    """Using up an enrolment token. `csr` is needed where the service has an authority, `instance` for a group's."""

    token: str = Field(max_length=200)
    name: Name
    kind: Name
    csr: Request | None = None
    instance: Name | None = None


class EnrolSwitch(Incoming):
    """Using up an enrolment token of the kind `switch`, for the switch of the host that is named."""

    token: str = Field(max_length=200)
    name: Name
    csr: Request


class Enrolment(Outgoing):
    """Who the enforcer is from now on. It is known by the certificate, which it shows in TLS, or by the bearer token;
    the other one is empty. The one of the highest epoch is master."""

    enforcer: int
    domain: str
    token: str
    epoch: int
    name: str
    certificate: str
    authority: str

    @classmethod
    def of(cls, new: Enrolled, authority: str) -> Enrolment:
        record, certificate = new.enforcer, new.certificate
        return cls(
            enforcer=record.id,
            domain=record.domain,
            token=new.secret,
            epoch=record.epoch,
            name=record.name,
            certificate="" if certificate is None else certificate.pem,
            authority="" if certificate is None else authority,
        )


class AuthorityBody(Outgoing):
    """Whom to believe. The fingerprint is the SHA-256 of the certificate, in hexadecimal digits."""

    certificate: str
    fingerprint: str


class Signing(Incoming):
    """A key to be certified."""

    csr: Request


class SwitchSigning(Signing):
    """A key of an Open vSwitch to be certified, which may be the switch of several hosts."""

    also: list[Name] = Field(default=[], max_length=64, description="further hosts that it is the switch of")


class Revoked(Outgoing):
    """Certificates that are not to be taken any more, by serial."""

    serials: list[str]


class CertificateBody(Outgoing):
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

    @classmethod
    def of(cls, record: CertificateRecord, authority: str = "") -> CertificateBody:
        return cls(
            serial=record.serial,
            usage=record.subject.usage.value,
            domain=record.subject.domain,
            name=record.subject.name,
            issued=record.issued,
            ends=record.ends,
            revoked=record.revoked,
            valid=record.is_valid,
            certificate=record.pem,
            authority=authority,
        )
