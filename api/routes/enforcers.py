"""Enforcement points watch their domain's program and report what they hold.

`enrolment.py` says how they enrol.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from api.answers import GENERATION, answer, answer_write, etag, reply
from api.auth import Bearer, DomainOwner, DomainReader, TheEnforcer
from api.context import (
    ConditionDep,
    Digest,
    HeldGeneration,
    Limit,
    NameMarker,
    NamePath,
    NumberPath,
    Seconds,
    Services,
    ServicesDep,
    account_of_programs,
    check_again,
    log_event,
    most_followed,
    takes,
)
from api.limits import LargeReport, SmallBody, read_report
from api.pacing import PROGRAM_BYTES_A_SECOND, TURN_S, Account
from api.schemas.common import BIGGEST, problem_responses
from api.schemas.enforcers import ReportBody
from api.streams import begin_stream, follow_until_revoked, stream, validity_of
from api.threads import in_thread
from orchestrator.control.publisher import Answer, AnswerKind, Held
from orchestrator.errors import Conflict, NotFound, Unauthenticated
from orchestrator.program.program import Tier
from orchestrator.program.wire import (
    DELTA_MEDIA_TYPE,
    EDITS_MEDIA_TYPE,
    PROGRAM_MEDIA_TYPE,
    STREAM_MEDIA_TYPE,
    frame_body,
)
from orchestrator.store.points.generations import RESTORE_IT
from orchestrator.store.records import Principal, Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.common import Gone, Page
from orchestrator.wire.points import Enforcer, Epoch, Leading

router = APIRouter(prefix="/v1", tags=["enforcers"], route_class=SmallBody)
reports = APIRouter(prefix="/v1", tags=["enforcers"], route_class=LargeReport, responses=problem_responses())

_CONTENT_TYPES = {AnswerKind.PROGRAM: PROGRAM_MEDIA_TYPE, AnswerKind.DELTA: DELTA_MEDIA_TYPE}
_PROGRAMS = {
    200: {"description": "a program, or the delta to it", "content": {PROGRAM_MEDIA_TYPE: {}, DELTA_MEDIA_TYPE: {}}},
    204: {"description": "nothing newer came meanwhile"},
}

_STREAM = {200: {"description": "programs and deltas, each behind its length", "content": {STREAM_MEDIA_TYPE: {}}}}

OfServer = Annotated[
    str | None, Query(max_length=64, description="a firewall server of the PoP: its own program, whatever `tier` says")
]
OfEpoch = Annotated[
    int | None,
    Header(alias="X-Aclflow-Epoch", ge=0, le=BIGGEST, description="of the caller; who took over from it has a higher"),
]
ProgramTier = Annotated[Literal["host", "server", "edge"], Query(description="switches, firewall VNFs, edges")]


SwitchTier = Annotated[Literal["host", "edge"], Query(description="switches of hosts, or edges")]
Silence = Annotated[float, Query(ge=1, le=3600, description="who was not heard for so long leads no switch")]
Begins = Annotated[bool, Query(description="the caller was started anew: it leads none of those that it led before")]


@dataclass(frozen=True, slots=True)
class _Look:
    """A watch of a program, with the caller's generation, digest and epoch.

    These are None where the caller does not say them.
    """

    domain: str
    tier: Tier
    server: str | None
    digest: bytes | None
    generation: int | None
    epoch: int | None

    @property
    def held(self) -> Held | None:
        """The program that the caller holds."""
        return None if self.digest is None else Held(self.digest, self.generation)


def _read_look(
    domain: NamePath,
    tier: ProgramTier = "host",
    server: OfServer = None,
    have: Digest = None,
    generation: HeldGeneration = None,
    epoch: OfEpoch = None,
) -> _Look:
    return _Look(domain, Tier(tier), server, None if have is None else bytes.fromhex(have), generation, epoch)


TheLook = Annotated[_Look, Depends(_read_look)]


@router.get("/domains/{domain}/enforcers", response_model=Page[Enforcer])
def list_enforcers(
    _: DomainReader, services: ServicesDep, domain: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """The domain's enforcement points, by name."""
    found = services.control.read(lambda unit: unit.enforcers.list(domain, limit=limit + 1, marker=marker or ""))
    following = found[limit - 1].name if len(found) > limit else None
    return answer(Page(found[:limit], following))


@router.get("/domains/{domain}/enforcers/{enforcer}", response_model=Enforcer)
def get_enforcer(_: DomainReader, services: ServicesDep, domain: NamePath, enforcer: NumberPath) -> Response:
    """One enforcement point."""
    record = services.control.read(lambda unit: _read_enforcer(unit, domain, enforcer))
    return answer(record, tag=etag(record.epoch))


@router.get("/domains/{domain}/enforcers/{enforcer}/leading", response_model=Leading)
def get_leading(
    _: TheEnforcer,
    services: ServicesDep,
    domain: NamePath,  # noqa: ARG001  # checked with the caller
    enforcer: NumberPath,
    tier: SwitchTier = "host",
    silence_s: Silence = 2.5,
    begins: Begins = False,
) -> Response:
    """Which of the domain's switches nobody leads, for controllers that share them."""
    return answer(
        services.control.read(
            lambda unit: unit.enforcers.leading(enforcer, Tier(tier), silence_s=silence_s, begins=begins)
        )
    )


@router.delete("/domains/{domain}/enforcers/{enforcer}", response_model=Gone)
def remove_enforcer(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, enforcer: NumberPath, condition: ConditionDep
) -> Response:
    """Forget an enforcement point; its token or its certificate is valid no more."""

    def remove(unit: Unit) -> Reply:
        record = _read_enforcer(unit, domain, enforcer)
        condition.require(etag(record.epoch))
        unit.enforcers.remove(enforcer)
        log_event(unit, caller, "enforcer.removed", domain, {"name": record.name, "id": enforcer})
        return reply(Gone(unit.domains.get(domain).generation))

    return answer_write(services.control.carry_out(remove, domain=domain))


@router.post("/domains/{domain}/enforcers/{enforcer}/epoch", response_model=Epoch)
async def new_epoch(caller: TheEnforcer, services: ServicesDep, enforcer: NumberPath) -> Response:
    """Return a new epoch, higher than any in the domain.

    It is for an enforcer that starts anew and takes over. One that asks without a pause waits for itself.
    """

    def work(_: Principal) -> Response:
        check_again(services, caller)
        return answer(
            Epoch(services.control.write(lambda unit: unit.enforcers.new_epoch(enforcer), domain=caller.domain))
        )

    async with services.pace.account(f"epochs of enforcement point {enforcer}").turn() as account:
        account.spend(TURN_S)
        return await in_thread(work, caller)


@router.get("/domains/{domain}/program", response_class=Response, responses=_PROGRAMS)  # type: ignore[arg-type]
async def watch_program(
    caller: DomainReader, bearer: Bearer, services: ServicesDep, look: TheLook, wait: Seconds = 30.0
) -> Response:
    """The program that enforcement points must hold, once it is newer than the caller's.

    Without `have` the whole program at once. With it, and if it is known here, the delta from there; a delta without
    rows when only the generation moved. 204 when nothing newer came within `wait` seconds; 401 when the caller's token
    was revoked meanwhile.
    """
    validity, account = validity_of(services, bearer), account_of_programs(services, caller)
    await account.rest()
    stored = await run_in_threadpool(_stored_generation, services, caller, look)
    wait_s = min(wait, services.watch_limit_s)
    with account.following(most_followed(caller)):
        found = await services.control.watches.watch(
            look.domain, look.held, wait_s, stored_generation=stored, tier=look.tier, server=look.server
        )
    if not await validity.holds():
        raise Unauthenticated("the token is not valid any more")
    if found is None:
        return Response(status_code=204)
    _count_whole(account, found)
    return Response(found.body, 200, {GENERATION: str(found.generation)}, _CONTENT_TYPES[found.kind])


@router.get("/domains/{domain}/program/stream", response_class=Response, responses=_STREAM)  # type: ignore[arg-type]
async def follow_program(
    caller: DomainReader,
    bearer: Bearer,
    services: ServicesDep,
    look: TheLook,
    wait: Seconds = 60.0,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    """Stream programs and deltas as they come, each following on the one before.

    Each is behind its length, 4 bytes, big-endian; a length of 0, at the beginning and now and then, says that there
    is nothing newer. The stream ends after `wait` seconds, and the caller asks again with what it has then. A caller
    that accepts `application/vnd.aclflow.edits` too is sent a delta of texts as edits, where these are shorter.
    """
    account = account_of_programs(services, caller)
    await account.rest()
    stored = await run_in_threadpool(_stored_generation, services, caller, look)
    lasts_s = min(wait, services.watch_limit_s)
    found = await services.control.watches.follow(
        look.domain,
        look.held,
        lasts_s,
        heartbeat_s=services.heartbeat_s,
        stored_generation=stored,
        tier=look.tier,
        server=look.server,
    )
    edits = EDITS_MEDIA_TYPE in accept
    bodies = (
        frame_body(b"" if each is None else _count_whole(account, each).form(edits=edits)) async for each in found
    )
    place = account.following(most_followed(caller))
    return stream(await begin_stream(follow_until_revoked(bodies, services, bearer, place)), STREAM_MEDIA_TYPE)


@reports.post("/domains/{domain}/enforcers/{enforcer}/report", status_code=204, openapi_extra=takes(ReportBody))
async def report(
    caller: TheEnforcer,
    services: ServicesDep,
    domain: NamePath,
    enforcer: NumberPath,
    request: Request,
    epoch: OfEpoch = None,
) -> Response:
    """Store an enforcement point's report: what it read back and counted.

    It wakes those who wait for a generation. Reports of one enforcement point are taken one after the other.
    """
    control, enforcement = services.control, services.enforcement

    def count_hosts(_: Principal) -> int:
        return control.read(lambda unit: unit.enforcers.count_hosts(enforcer))

    with services.pace.admit(f"reports of enforcement point {enforcer}") as account:
        raw = await read_report(request, partial(in_thread, count_hosts, caller))

        def begin(_: Principal) -> Future[float]:
            check_again(services, caller)
            with account.spending():
                body = ReportBody.read(raw)
                said = body.report(epoch)
            if body.impostors:
                account.spend(TURN_S)
                services.impostors.take(domain, enforcer, epoch, [each.record() for each in body.impostors])
            return enforcement.begin(domain, enforcer, said)

        async with account.turn():
            account.spend(await asyncio.wrap_future(await in_thread(begin, caller)))  # a thousand wait without a thread
    return Response(status_code=204)


def _count_whole(account: Account, found: Answer) -> Answer:
    """Count an answer that is a whole program."""
    if found.kind is AnswerKind.PROGRAM:
        account.spend(len(found.body) / PROGRAM_BYTES_A_SECOND)
    return found


def _stored_generation(services: Services, caller: Principal, look: _Look) -> int:
    """The generation that the store is at. Changes nothing.

    Raises Conflict for an enforcer whose epoch is over, and for one that holds a later generation: its reports raise
    the domain by a change at the most. Raises Forbidden for one that does not follow this.
    """
    enforcer = caller.enforcer

    def read(unit: Unit) -> int:
        if enforcer is not None:
            unit.enforcers.check_epoch(enforcer, look.epoch)
            unit.enforcers.scope(enforcer).check_program(look.tier, look.server)
        return unit.domains.get(look.domain).generation

    stored = services.control.read(read)
    if enforcer is not None and look.generation is not None and look.generation > stored:
        raise Conflict(
            f"generation {look.generation} is held, and domain '{look.domain}' has only come to {stored}: {RESTORE_IT}",
            place="query.generation",
        )
    return stored


def _read_enforcer(unit: Unit, domain: str, enforcer: int) -> Enforcer:
    unit.domains.get(domain)
    with suppress(NotFound):
        found = unit.enforcers.get(enforcer)
        if found.domain == domain:
            return found
    raise NotFound(f"the domain has no enforcer {enforcer}")
