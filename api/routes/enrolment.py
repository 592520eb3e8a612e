"""Identity of machines: enrolment, certificates, renewal, revocation."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from api.answers import answer, answer_write, etag, reply
from api.auth import Administrator, DomainOwner, DomainReader, TheEnforcer
from api.context import (
    ConditionDep,
    Limit,
    NameMarker,
    NamePath,
    NumberMarker,
    NumberPath,
    OnceDep,
    ServicesDep,
    author,
    log_event,
)
from api.limits import SmallBody, StrangersBody
from api.schemas.common import NAME
from api.schemas.enrolment import Enrol, EnrolSwitch, NewGroup, NewInvitation, Signing, SwitchSigning
from orchestrator.control.enrolment import Applicant
from orchestrator.control.units import NO_DOMAIN
from orchestrator.identity.names import SWITCH
from orchestrator.store.points.pointrecords import CertificateRecord, Enrolled
from orchestrator.store.records import Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.codec import fill
from orchestrator.wire.common import Page
from orchestrator.wire.enrolment import (
    Authority,
    Certificate,
    Enrolment,
    EnrolmentGroup,
    Invitation,
    NewGroupToken,
    PointToken,
    RenewedToken,
    Revoked,
)

router = APIRouter(prefix="/v1", tags=["enrolment"], route_class=SmallBody)
strangers = APIRouter(prefix="/v1", tags=["enrolment"], route_class=StrangersBody)

Serial = Annotated[str, Path(pattern=r"^[0-9a-f]{40}$", description="of a certificate, hexadecimal digits")]
OfDomain = Annotated[str | None, Query(pattern=NAME, description="only those of this domain")]


@router.post("/domains/{domain}/enrolment-tokens", status_code=201, response_model=Invitation)
def invite(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, body: NewInvitation, once: OnceDep
) -> Response:
    """Make a one-time token for an enforcement point that joins the domain.

    It is seen only now: see `POST /v1/tokens`. Bound to a name or a kind, it is good for no other. A controller that
    enrols with one that names hosts speaks for their switches and no others.
    """

    def make_invitation(unit: Unit) -> Reply:
        expires = unit.now + dt.timedelta(seconds=body.lasts_s)
        bound = {"name": body.name, "kind": body.kind}
        secret = unit.enforcers.invite(domain, expires=expires, author=author(caller), hosts=body.hosts, **bound)
        said: dict[str, object] = {key: value for key, value in bound.items() if value is not None}
        said |= {"hosts": body.hosts} if body.hosts else {}
        log_event(unit, caller, "enforcer.invited", domain, {"expires": expires.isoformat(), **said})
        location = f"/v1/domains/{domain}/enforcers"
        token = services.desk.token_text(secret)
        return reply(Invitation(token=token, domain=domain, expires=expires), location=location)

    return answer_write(services.control.carry_out(once.of(caller, make_invitation, secret=True), domain=domain))


@router.post("/domains/{domain}/enrolment-groups", status_code=201, response_model=NewGroupToken)
def invite_group(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, body: NewGroup, once: OnceDep
) -> Response:
    """Make a token that all machines of a group enrol with.

    The group is one in the domain's cloud. The token is seen only now. 404 without an authority. Each instance is
    admitted once, if the cloud has it in the group with the address that it comes from.
    """
    services.desk.need_authority()

    def make_invitation(unit: Unit) -> Reply:
        expires = unit.now + dt.timedelta(seconds=body.lasts_s)
        secret, number = unit.enforcers.invite_group(
            domain, body.group, kind=body.kind, expires=expires, author=author(caller)
        )
        said = {"group": body.group, "kind": body.kind, "id": number, "expires": expires.isoformat()}
        log_event(unit, caller, "enrolment-group.created", domain, said)
        token = services.desk.token_text(secret)
        made = NewGroupToken(id=number, token=token, domain=domain, group=body.group, expires=expires)
        return reply(made, location=f"/v1/domains/{domain}/enrolment-groups")

    return answer_write(services.control.carry_out(once.of(caller, make_invitation, secret=True), domain=domain))


@router.get("/domains/{domain}/enrolment-groups", response_model=Page[EnrolmentGroup])
def list_groups(
    _: DomainOwner, services: ServicesDep, domain: NamePath, limit: Limit = 100, marker: NumberMarker = None
) -> Response:
    """The group tokens of a domain that still hold, oldest first, without their secrets."""
    records = services.control.read(lambda unit: unit.enforcers.groups(domain))
    found = [record for record in records if record.id > (marker or 0)][: limit + 1]
    following = found[limit - 1].id if len(found) > limit else None
    return answer(Page(tuple(fill(EnrolmentGroup, record, group=record.name) for record in found[:limit]), following))


@router.delete("/domains/{domain}/enrolment-groups/{group}", status_code=204)
def remove_group(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, group: NumberPath, condition: ConditionDep
) -> Response:
    """Make a group's token invalid, at once. Machines that enrolled with it stay."""

    def remove(unit: Unit) -> None:
        condition.require(etag(group))
        unit.enforcers.remove_group(domain, group)
        log_event(unit, caller, "enrolment-group.removed", domain, {"id": group})

    services.control.write(remove, domain=domain)
    return Response(status_code=204)


@router.get("/authority", response_model=Authority)
def get_authority(services: ServicesDep) -> Response:
    """Return the authority that is believed here; open to all.

    Compare the fingerprint with one that you have otherwise. While the authority is rolled over it is two certificates,
    and the fingerprint is that of the first, which signs.
    """
    return answer(Authority(services.desk.believed, services.desk.authority.fingerprint.hex()))


@strangers.post("/enrol", status_code=201, response_model=Enrolment)
def enrol(request: Request, services: ServicesDep, body: Enrol) -> Response:
    """Enrol an enforcement point with its token, which is used up.

    An enforcer of the same name is replaced, and is known no more.

    A machine that brings the same token and the same key again has not got the first answer, and gets it now. After ten
    failures a minute from one address the answer is 429.
    """
    new = services.desk.enrol(
        Applicant(
            token=body.token,
            name=body.name,
            kind=body.kind,
            address=_name_address(request),
            request=body.csr,
            instance=body.instance,
        )
    )
    record = new.enforcer
    authority = services.desk.believed if new.certificate is not None else ""
    location = f"/v1/domains/{record.domain}/enforcers/{record.id}"
    return answer_write(reply(_make_enrolment(new, authority), location=location))


@strangers.post("/enrol/switch", status_code=201, response_model=Certificate)
def enrol_switch(request: Request, services: ServicesDep, body: EnrolSwitch) -> Response:
    """Issue a certificate for a host's switch, for a token of kind `switch`.

    The token is bound to the host, and is used up. The certificate is for OpenFlow over TLS; those that the switch had
    are valid no more. 404 without an authority.

    A caller that brings the same token and the same key again gets the first answer. Ten failures a minute are all, as
    in `POST /v1/enrol`.
    """
    record = services.desk.enrol_switch(
        Applicant(token=body.token, name=body.name, kind=SWITCH, address=_name_address(request), request=body.csr)
    )
    return answer_write(reply(_make_certificate(record, services.desk.believed), tag=etag(record.serial)))


@router.get("/domains/{domain}/enforcers/{enforcer}/token", response_model=PointToken)
def get_point_token(caller: TheEnforcer, services: ServicesDep) -> Response:
    """Return when the enforcer's token ends, and whether it is to be renewed."""
    return answer(services.desk.own_token(caller))


@router.post("/domains/{domain}/enforcers/{enforcer}/token", status_code=201, response_model=RenewedToken)
def renew_token(caller: TheEnforcer, services: ServicesDep, domain: NamePath, enforcer: NumberPath) -> Response:
    """Make a further token of an enforcer that is known by one.

    The one that it shows now stays valid until it ends or is laid down; all others are revoked.
    """
    made = services.desk.renew_token(caller)
    location = f"/v1/domains/{domain}/enforcers/{enforcer}/token"
    return answer_write(reply(RenewedToken(token=made.secret, expires=made.record.expires), location=location))


@router.post("/domains/{domain}/enforcers/{enforcer}/certificate", status_code=201, response_model=Certificate)
def renew_certificate(caller: TheEnforcer, services: ServicesDep, body: Signing) -> Response:
    """Issue a further certificate to the enforcer that asks, for a new key.

    The one that it shows now stays valid until it lays it down, or renews again; all others are revoked.
    """
    record = services.desk.renew(caller, body.csr)
    made = _make_certificate(record, services.desk.believed)
    return answer_write(reply(made, tag=etag(record.serial), location=f"/v1/certificates/{record.serial}"))


@router.delete("/domains/{domain}/enforcers/{enforcer}/certificates", status_code=204)
def lay_down_certificates(caller: TheEnforcer, services: ServicesDep) -> Response:
    """Revoke the enforcer's certificates and tokens, except the one of this request."""
    services.desk.lay_down(caller)
    return Response(status_code=204)


@router.post("/domains/{domain}/hosts/{host}/certificate", status_code=201, response_model=Certificate)
def issue_switch(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, host: NamePath, body: SwitchSigning
) -> Response:
    """Issue a certificate for the switch of a host.

    It is for OpenFlow over TLS, and for nothing here.
    """
    record = services.desk.issue_switch(domain, (host, *body.also), body.csr, author(caller))
    made = _make_certificate(record, services.desk.believed)
    return answer_write(reply(made, tag=etag(record.serial), location=f"/v1/certificates/{record.serial}"))


@router.get("/domains/{domain}/revoked-switches", response_model=Revoked)
def list_revoked_switches(_: DomainReader, services: ServicesDep, domain: NamePath) -> Response:
    """Which switches the domain's controllers must refuse, though their certificates have not ended."""

    def read_revoked(unit: Unit) -> tuple[str, ...]:
        unit.domains.get(domain)
        return unit.certificates.revoked_switches(domain)

    return answer(Revoked(services.control.read(read_revoked)))


@router.get("/certificates", response_model=Page[Certificate])
def list_certificates(
    _: Administrator,
    services: ServicesDep,
    domain: OfDomain = None,
    limit: Limit = 100,
    marker: NameMarker = None,
) -> Response:
    """Certificates that were issued, by domain, name and time; until 90 days after their end."""
    found = services.control.read(lambda unit: unit.certificates.list(domain, limit=limit + 1, marker=marker))
    following = found[limit - 1].serial if len(found) > limit else None
    return answer(Page(tuple(map(_make_certificate, found[:limit])), following))


@router.get("/certificates/{serial}", response_model=Certificate)
def get_certificate(_: Administrator, services: ServicesDep, serial: Serial) -> Response:
    """One certificate."""
    record = services.control.read(lambda unit: unit.certificates.get(serial))
    return answer(_make_certificate(record), tag=etag(record.serial))


@router.delete("/certificates/{serial}", status_code=204)
def revoke_certificate(
    caller: Administrator, services: ServicesDep, serial: Serial, condition: ConditionDep
) -> Response:
    """Make a certificate invalid: its bearer's open connections are cut within a second."""

    def revoke(unit: Unit) -> None:
        was = unit.certificates.get(serial)
        condition.require(etag(was.serial))
        unit.certificates.revoke(serial)
        if was.is_valid:
            said = {"name": was.subject.name, "serial": serial}
            log_event(unit, caller, "certificate.revoked", was.subject.domain, said)

    services.control.write(revoke, domain=NO_DOMAIN)
    return Response(status_code=204)


def _name_address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _make_enrolment(new: Enrolled, authority: str) -> Enrolment:
    record, certificate = new.enforcer, "" if new.certificate is None else new.certificate.pem
    known = {"token": new.secret, "expires": new.ends, "certificate": certificate, "authority": authority}
    return fill(Enrolment, record, enforcer=record.id, **known)


def _make_certificate(record: CertificateRecord, authority: str = "") -> Certificate:
    subject = record.subject
    return fill(
        Certificate,
        record,
        usage=subject.usage.value,
        domain=subject.domain,
        name=subject.name,
        valid=record.is_valid,
        certificate=record.pem,
        authority=authority,
    )
