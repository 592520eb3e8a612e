"""Enforcement points: they enrol with a one-time token, watch their domain's program, and report what they hold."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool

from api.answers import GENERATION, answer, etag, reply, sent
from api.auth import DomainOwner, DomainReader, TheEnforcer
from api.context import (
    ConditionDep,
    Limit,
    NameMarker,
    NamePath,
    NumberPath,
    RawBody,
    Seconds,
    ServicesDep,
    author,
    logged,
    read_body,
    takes,
)
from api.limits import SmallBody
from api.paging import page_after
from api.schemas.common import BIGGEST, Gone, Page
from api.schemas.enforcers import (
    EnforcerBody,
    Enrol,
    Enrolment,
    Epoch,
    Invitation,
    NewInvitation,
    ReportBody,
)
from orchestrator.control.publisher import AnswerKind, Held
from orchestrator.errors import NotFound
from orchestrator.program.wire import DELTA_MEDIA_TYPE, PROGRAM_MEDIA_TYPE
from orchestrator.store.records import EnforcerRecord, Reply
from orchestrator.store.unit import Unit

router = APIRouter(prefix="/v1", tags=["enforcers"], route_class=SmallBody)
reports = APIRouter(prefix="/v1", tags=["enforcers"])

_CONTENT_TYPES = {AnswerKind.PROGRAM: PROGRAM_MEDIA_TYPE, AnswerKind.DELTA: DELTA_MEDIA_TYPE}
_PROGRAMS = {
    200: {"description": "a program, or the delta to it", "content": {PROGRAM_MEDIA_TYPE: {}, DELTA_MEDIA_TYPE: {}}},
    204: {"description": "nothing newer came meanwhile"},
}

Digest = Annotated[str | None, Query(pattern=r"^[0-9a-f]{32}$", description="of the program that is held")]
HeldGeneration = Annotated[int | None, Query(ge=0, le=BIGGEST, description="of the program that is held")]


@router.post("/domains/{domain}/enrolment-tokens", status_code=201, response_model=Invitation)
def invite(caller: DomainOwner, services: ServicesDep, domain: NamePath, body: NewInvitation) -> Response:
    """A one-time token for an enforcement point that is to join the domain."""

    def work(unit: Unit) -> Reply:
        expires = unit.now + dt.timedelta(seconds=body.lasts_s)
        token = unit.enforcers.invite(domain, expires=expires, author=author(caller))
        logged(unit, caller, "enforcer.invited", domain, {"expires": expires.isoformat()})
        location = f"/v1/domains/{domain}/enforcers"
        return reply(Invitation(token=token, domain=domain, expires=expires), location=location)

    return sent(services.control.write(work))


@router.post("/enrol", status_code=201, response_model=Enrolment)
def enrol(services: ServicesDep, body: Enrol) -> Response:
    """Use up an enrolment token. An enforcer of the same name is replaced, and its token is valid no more."""

    def work(unit: Unit) -> Reply:
        new = unit.enforcers.enrol(body.token, name=body.name, kind=body.kind)
        record = new.enforcer
        unit.events.append("enforcer.enrolled", record.domain, {"name": record.name, "id": record.id})
        enrolment = Enrolment(enforcer=record.id, domain=record.domain, token=new.secret, epoch=record.epoch)
        return reply(enrolment, location=f"/v1/domains/{record.domain}/enforcers/{record.id}")

    return sent(services.control.write(work))


@router.get("/domains/{domain}/enforcers", response_model=Page[EnforcerBody])
def list_enforcers(
    _: DomainReader, services: ServicesDep, domain: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """The domain's enforcement points, by name."""
    found = {record.name: record for record in services.control.read(lambda unit: unit.enforcers.list(domain))}
    names, following = page_after(list(found), limit, marker)
    return answer(Page[EnforcerBody](items=[EnforcerBody.of(found[name]) for name in names], next=following))


@router.get("/domains/{domain}/enforcers/{enforcer}", response_model=EnforcerBody)
def get_enforcer(_: DomainReader, services: ServicesDep, domain: NamePath, enforcer: NumberPath) -> Response:
    """One enforcement point."""
    record = services.control.read(lambda unit: _enforcer(unit, domain, enforcer))
    return answer(EnforcerBody.of(record), tag=etag(record.epoch))


@router.delete("/domains/{domain}/enforcers/{enforcer}", response_model=Gone)
def remove_enforcer(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, enforcer: NumberPath, condition: ConditionDep
) -> Response:
    """Forget an enforcement point and revoke its token."""

    def work(unit: Unit) -> Reply:
        record = _enforcer(unit, domain, enforcer)
        condition.require(etag(record.epoch))
        unit.enforcers.remove(enforcer)
        logged(unit, caller, "enforcer.removed", domain, {"name": record.name, "id": enforcer})
        return reply(Gone(generation=unit.domains.get(domain).generation))

    return sent(services.control.write(work))


@router.post("/domains/{domain}/enforcers/{enforcer}/epoch", response_model=Epoch)
def new_epoch(_: TheEnforcer, services: ServicesDep, enforcer: NumberPath) -> Response:
    """A higher epoch than any in the domain, for an enforcer that starts anew and takes over."""
    return answer(Epoch(epoch=services.control.write(lambda unit: unit.enforcers.new_epoch(enforcer))))


@router.get("/domains/{domain}/program", response_class=Response, responses=_PROGRAMS)  # type: ignore[arg-type]
async def watch_program(
    _: DomainReader,
    services: ServicesDep,
    domain: NamePath,
    tier: Literal["host"] = "host",  # noqa: ARG001  # the one tier that has programs
    have: Digest = None,
    generation: HeldGeneration = None,
    wait: Seconds = 30.0,
) -> Response:
    """What the domain's enforcement points must hold, once it is newer than what the caller has.

    Without `have` the whole program at once. With it, and if it is known here, the delta from there; a delta without
    rows when only the generation moved. 204 when nothing newer came within `wait` seconds.
    """
    stored = (await run_in_threadpool(services.control.read, lambda unit: unit.domains.get(domain))).generation
    held = Held(bytes.fromhex(have), generation) if have is not None else None
    found = await services.control.watch(domain, held, min(wait, services.watch_limit_s), stored_generation=stored)
    if found is None:
        return Response(status_code=204)
    return Response(found.body, 200, {GENERATION: str(found.generation)}, _CONTENT_TYPES[found.kind])


@reports.post("/domains/{domain}/enforcers/{enforcer}/report", status_code=204, openapi_extra=takes(ReportBody))
def report(_: TheEnforcer, services: ServicesDep, domain: NamePath, enforcer: NumberPath, raw: RawBody) -> Response:
    """What an enforcement point read back, and what its devices count. Wakes who waits for a generation."""
    services.enforcement.report(domain, enforcer, read_body(ReportBody, raw).report())
    return Response(status_code=204)


def _enforcer(unit: Unit, domain: str, enforcer: int) -> EnforcerRecord:
    found = next((record for record in unit.enforcers.list(domain) if record.id == enforcer), None)
    if found is None:
        raise NotFound(f"the domain has no enforcer {enforcer}")
    return found
