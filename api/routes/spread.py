"""How traffic is spread over a domain's firewalls.

The spreading switch's controller follows it and reports.
"""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool

from api.answers import answer, etag
from api.auth import Bearer, DomainOwner, DomainReader, TheEnforcer
from api.context import ConditionDep, NamePath, NumberPath, Seconds, ServicesDep
from api.limits import SmallBody
from api.routes.enforcers import Digest, HeldGeneration
from api.schemas.spread import SpreadBody, SpreadDocument, SpreadReport, SpreadWritten
from api.streams import follow_until_revoked, stream
from orchestrator.control.publisher import Held
from orchestrator.errors import NotFound
from orchestrator.program.wire import STREAM_MEDIA_TYPE, frame_body
from orchestrator.store.firewalls.spreads import SpreadRecord

router = APIRouter(prefix="/v1/domains/{domain}", tags=["spread"], route_class=SmallBody)

_STREAM = {200: {"description": "programs and deltas, each behind its length", "content": {STREAM_MEDIA_TYPE: {}}}}


@router.get("/spread", response_model=SpreadBody)
def get_spread(_: DomainReader, services: ServicesDep, domain: NamePath) -> Response:
    """Which firewall carries which share of the domain's traffic."""
    found = services.spreading.current(domain)
    if found is None:
        raise NotFound(f"the traffic of domain '{domain}' is not spread over firewalls")
    return answer(SpreadBody.of(found), tag=etag(found.generation))


@router.put("/spread", response_model=SpreadWritten)
def put_spread(
    _: DomainOwner, services: ServicesDep, domain: NamePath, body: SpreadDocument, condition: ConditionDep
) -> Response:
    """Spread the domain's traffic over these firewalls and no others.

    A domain's fleet does this by itself.
    """

    def check(known: SpreadRecord | None) -> None:
        condition.require(etag(0 if known is None else known.generation))

    members = [each.member() for each in body.firewalls]
    generation = services.spreading.set_members(
        domain, members, stateful=body.stateful, synchronised=body.synchronised, check=check
    )
    return answer(SpreadWritten(generation=generation), tag=etag(generation))


@router.get("/spread/stream", response_class=Response, responses=_STREAM)  # type: ignore[arg-type]
async def follow_spread(
    caller: DomainReader,
    bearer: Bearer,
    services: ServicesDep,
    domain: NamePath,
    have: Digest = None,
    generation: HeldGeneration = None,
    wait: Seconds = 60.0,
) -> Response:
    """The program of the domain's spreading switch, as it comes; like `/program/stream`."""
    enforcer = caller.enforcer
    if enforcer is not None:
        await run_in_threadpool(services.control.read, lambda unit: unit.enforcers.scope(enforcer).check_spread())
    held = Held(bytes.fromhex(have), generation) if have is not None else None
    lasts_s = min(wait, services.watch_limit_s)
    found = await services.spreading.follow(domain, held, lasts_s, heartbeat_s=services.heartbeat_s)
    bodies = (frame_body(each.body if each is not None else b"") async for each in found)
    return stream(follow_until_revoked(bodies, services, bearer), STREAM_MEDIA_TYPE)


@router.put("/enforcers/{enforcer}/spread", status_code=204)
def report_spread(
    _: TheEnforcer,
    services: ServicesDep,
    domain: NamePath,
    enforcer: NumberPath,
    body: SpreadReport,
) -> Response:
    """Take what the spreading switch's controller has read back."""
    services.spreading.report(domain, enforcer, body.generation, body.trouble)
    return Response(status_code=204)
