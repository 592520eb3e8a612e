"""Firewall VNFs of a domain: hosts that filter with iptables or nftables.

Each has an agent inside.
"""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool

from api.answers import answer, answer_write, etag, reply
from api.auth import Bearer, DomainOwner, DomainReader, TheEnforcer
from api.context import (
    ConditionDep,
    Digest,
    HeldGeneration,
    Limit,
    NameMarker,
    NamePath,
    NumberPath,
    OnceDep,
    Seconds,
    ServicesDep,
    account_of_programs,
    log_event,
    most_followed,
)
from api.limits import SmallBody
from api.schemas.firewalls import (
    LinksReport,
    Load,
    NewFirewall,
    SpreadBody,
    SpreadDocument,
    SpreadReport,
    SpreadWritten,
)
from api.streams import begin_stream, follow_until_revoked, stream
from orchestrator.control.publisher import Held
from orchestrator.control.units import NO_DOMAIN
from orchestrator.errors import NotFound
from orchestrator.program.wire import STREAM_MEDIA_TYPE, frame_body
from orchestrator.store.firewalls.spreads import SpreadRecord
from orchestrator.store.records import FirewallSeen, Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.codec import fill
from orchestrator.wire.common import Gone, Page
from orchestrator.wire.firewalls import Firewall, SeenLoad, WrittenFirewall

router = APIRouter(prefix="/v1/domains/{domain}", tags=["firewalls"], route_class=SmallBody)


@router.get("/firewalls", response_model=Page[Firewall])
def list_firewalls(
    _: DomainReader, services: ServicesDep, domain: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """The domain's firewall VNFs by name, with the latest word of their load."""
    found = services.control.read(lambda unit: unit.firewalls.list(domain, limit=limit + 1, marker=marker or ""))
    following = found[limit - 1].firewall.name if len(found) > limit else None
    return answer(Page(tuple(map(_make_firewall, found[:limit])), following))


@router.post("/firewalls", status_code=201, response_model=WrittenFirewall)
def add_firewall(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, body: NewFirewall, once: OnceDep
) -> Response:
    """Add a firewall VNF to the domain.

    Refused where it cannot carry what the domain's lists say, with the place of the rule.
    """

    def add(unit: Unit) -> Reply:
        generation = unit.firewalls.add(domain, body.record())
        log_event(unit, caller, "firewall.added", domain, body.model_dump())
        written = WrittenFirewall(name=body.name, plane=body.plane, generation=generation)
        location = f"/v1/domains/{domain}/firewalls/{body.name}"
        return reply(written, generation=generation, tag=etag(body.plane), location=location)

    return answer_write(services.control.carry_out(once.of(caller, add), domain=domain))


@router.get("/firewalls/{firewall}", response_model=Firewall)
def get_firewall(_: DomainReader, services: ServicesDep, domain: NamePath, firewall: NamePath) -> Response:
    """One firewall VNF. Its ETag does not change with its load."""
    seen = services.control.read(lambda unit: unit.firewalls.get(domain, firewall))
    return answer(_make_firewall(seen), tag=etag(seen.firewall.plane.value))


@router.delete("/firewalls/{firewall}", response_model=Gone)
def remove_firewall(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, firewall: NamePath, condition: ConditionDep
) -> Response:
    """Take a firewall VNF out of the domain, which waits for it no more.

    It goes on as it was last programmed.
    """

    def remove(unit: Unit) -> Reply:
        condition.require(etag(unit.firewalls.get(domain, firewall).firewall.plane.value))
        generation = unit.firewalls.remove(domain, firewall)
        log_event(unit, caller, "firewall.removed", domain, {"name": firewall})
        return reply(Gone(generation), generation=generation)

    return answer_write(services.control.carry_out(remove, domain=domain))


@router.put("/enforcers/{enforcer}/load", status_code=204)
def put_load(
    _: TheEnforcer,
    services: ServicesDep,
    domain: NamePath,  # noqa: ARG001 -- the enforcement point is of it
    enforcer: NumberPath,
    body: Load,
) -> Response:
    """Take an agent's account of the firewall that bears its name."""

    def write_load(unit: Unit) -> None:
        name = unit.enforcers.get(enforcer).name
        unit.enforcers.check_hosts(enforcer, (name,), place="path.enforcer")
        unit.firewalls.report_load(enforcer, body.record())

    services.control.write(write_load, domain=NO_DOMAIN)  # a long list keeps no agent waiting, nor a thread for each
    return Response(status_code=204)


def _make_firewall(seen: FirewallSeen) -> Firewall:
    has_told = seen.load is not None and seen.reported is not None
    load = fill(SeenLoad, seen.load, reported=seen.reported) if has_told else None
    return fill(Firewall, seen.firewall, plane=seen.firewall.plane.value, load=load)


spread = APIRouter(prefix="/v1/domains/{domain}", tags=["spread"], route_class=SmallBody)

_STREAM = {200: {"description": "programs and deltas, each behind its length", "content": {STREAM_MEDIA_TYPE: {}}}}


@spread.get("/spread", response_model=SpreadBody)
def get_spread(_: DomainReader, services: ServicesDep, domain: NamePath) -> Response:
    """Which firewall carries which share of the domain's traffic."""
    found = services.spreading.current(domain)
    if found is None:
        raise NotFound(f"the traffic of domain '{domain}' is not spread over firewalls")
    return answer(SpreadBody.of(found), tag=etag(found.generation))


@spread.put("/spread", response_model=SpreadWritten)
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


@spread.get("/spread/stream", response_class=Response, responses=_STREAM)  # type: ignore[arg-type]
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
    place = account_of_programs(services, caller).following(most_followed(caller))
    return stream(await begin_stream(follow_until_revoked(bodies, services, bearer, place)), STREAM_MEDIA_TYPE)


@spread.put("/enforcers/{enforcer}/spread", status_code=204)
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


@spread.put("/enforcers/{enforcer}/spread/links", status_code=204)
def report_links(
    _: TheEnforcer,
    services: ServicesDep,
    domain: NamePath,
    enforcer: NumberPath,
    body: LinksReport,
) -> Response:
    """Take which interfaces the spreading switch finds down."""
    services.spreading.report_links(domain, enforcer, body.down)
    return Response(status_code=204)
