"""The packet log: packets that rules with `log` decided.

Tenants see their own, operators a whole domain's.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.answers import answer, answer_write, etag, reply
from api.auth import DomainOwner, TenantReader, TheEnforcer
from api.context import (
    ConditionDep,
    Limit,
    NamePath,
    NumberMarker,
    ServicesDep,
    keep_in_turn,
    log_event,
    read_body,
    takes,
)
from api.limits import SmallBody
from api.schemas.common import NAME
from api.schemas.packetlog import (
    ActionWord,
    LoggedPacketBody,
    LogLimitBody,
    PacketLogBody,
    SightingsBody,
    SightingsTaken,
)
from orchestrator.policy.loglimit import LogLimit
from orchestrator.policy.model import Action
from orchestrator.store.records import Reply
from orchestrator.store.unit import Unit

router = APIRouter(prefix="/v1", tags=["packet log"], route_class=SmallBody)
reports = APIRouter(prefix="/v1/domains/{domain}/enforcers/{enforcer}/log", tags=["enforcers"], route_class=SmallBody)

OfRule = Annotated[str | None, Query(pattern=NAME, description="only what this rule decided")]
OfAction = Annotated[ActionWord | None, Query(description="only what was permitted, or denied")]


@router.get("/tenants/{tenant}/acl/log", response_model=PacketLogBody)
def get_packet_log(
    _: TenantReader,
    services: ServicesDep,
    tenant: NamePath,
    rule: OfRule = None,
    action: OfAction = None,
    after: NumberMarker = None,
    limit: Limit = 100,
) -> Response:
    """Packets that rules with `log` decided: the newest, or those `after` an id; oldest first."""
    chosen = None if action is None else Action(action)
    found = services.control.read(
        lambda unit: unit.packet_log.of_tenant(tenant, rule=rule, action=chosen, after=after, limit=limit)
    )
    return answer(PacketLogBody(items=[LoggedPacketBody.of(record) for record in found]))


@router.get("/domains/{domain}/log", response_model=PacketLogBody)
def get_domain_log(
    _: DomainOwner,
    services: ServicesDep,
    domain: NamePath,
    rule: OfRule = None,
    action: OfAction = None,
    after: NumberMarker = None,
    limit: Limit = 100,
) -> Response:
    """Packets that rules with `log` decided in a domain: of all tenants, and the operator."""
    chosen = None if action is None else Action(action)
    found = services.control.read(
        lambda unit: unit.packet_log.of_domain(domain, rule=rule, action=chosen, after=after, limit=limit)
    )
    return answer(PacketLogBody(items=[LoggedPacketBody.of(record) for record in found]))


@router.get("/domains/{domain}/log/limit", response_model=LogLimitBody)
def get_log_limit(_: DomainOwner, services: ServicesDep, domain: NamePath, request: Request) -> Response:
    """The most that a switch reports of each tenant."""
    found = services.control.read(lambda unit: unit.packet_log.limit(domain))
    return answer(LogLimitBody.of(found), tag=_make_etag(found), request=request)


@router.put("/domains/{domain}/log/limit", response_model=LogLimitBody)
def set_log_limit(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, condition: ConditionDep, body: LogLimitBody
) -> Response:
    """Have switches report more, or less, from now on."""
    limit = LogLimit(body.rate, body.burst)

    def write_limit(unit: Unit) -> Reply:
        condition.require(_make_etag(unit.packet_log.limit(domain)))
        if unit.packet_log.set_limit(domain, limit):
            log_event(unit, caller, "domain.changed", domain, {"log_limit": body.model_dump()})
        generation = unit.domains.get(domain).generation
        return reply(LogLimitBody.of(limit), generation=generation, tag=_make_etag(limit))

    return answer_write(services.control.carry_out(write_limit, domain=domain))


@reports.post("", response_model=SightingsTaken, openapi_extra=takes(SightingsBody))
async def take(
    caller: TheEnforcer, services: ServicesDep, domain: NamePath, enforcer: int, request: Request
) -> Response:
    """Store packets that an enforcement point's devices were shown since its last report.

    Each report counts once. Reports of one enforcement point are taken one after the other.
    """

    def keep_report(raw: bytes) -> Response:
        seen = read_body(SightingsBody, raw).report()
        return answer(SightingsTaken(records=services.packets.take(domain, enforcer, seen)))

    return await keep_in_turn(services, caller, f"packet reports of enforcement point {enforcer}", request, keep_report)


def _make_etag(limit: LogLimit) -> str:
    return etag(f"{limit.rate}-{limit.burst}")
