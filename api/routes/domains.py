"""Security domains: hosts, endpoints, operator rules, generations."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from api.answers import answer, answer_write, etag, reply
from api.auth import Administrator, Caller, DomainOwner, DomainReader, is_admin, sees_domain
from api.context import (
    ConditionDep,
    Limit,
    NameMarker,
    NamePath,
    NumberPath,
    OnceDep,
    RawBody,
    Seconds,
    ServicesDep,
    log_event,
    seen_from,
    takes,
)
from api.lean import Lean
from api.limits import SmallBody
from api.proposing import change_operator_rules
from api.schemas.domains import DomainChange, EndpointPut, Host, NewDomain, OperatorRulesDocument
from orchestrator.control.firewalls import tracks_connections
from orchestrator.errors import BadInput, NotFound
from orchestrator.policy.formats.json_text import json_document
from orchestrator.policy.formats.native import rule_from_json, rule_to_json
from orchestrator.policy.model import ReturnTraffic, Rule
from orchestrator.store.points.pointrecords import EnforcedState, Laggard
from orchestrator.store.records import DomainRecord, EndpointRecord, Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.codec import fill
from orchestrator.wire.common import Gone, Page, Written
from orchestrator.wire.domains import Domain, EndpointSeen, Enforced, HostEndpoints, Lagging

router = APIRouter(prefix="/v1/domains", tags=["domains"], route_class=SmallBody)


@router.get("", response_model=Page[Domain])
def list_domains(_: Administrator, services: ServicesDep, limit: Limit = 100, marker: NameMarker = None) -> Response:
    """Every security domain."""
    found = services.control.read(
        lambda unit: [_read_domain(unit, each) for each in unit.domains.list(limit=limit + 1, marker=marker)]
    )
    following = found[limit - 1].id if len(found) > limit else None
    return answer(Page(tuple(found[:limit]), following))


@router.post("", status_code=201, response_model=Domain)
def create_domain(caller: Administrator, services: ServicesDep, body: NewDomain, once: OnceDep) -> Response:
    """Make a security domain."""

    def create(unit: Unit) -> Reply:
        setting = ReturnTraffic(body.return_traffic)
        record = unit.domains.create(body.id, return_traffic=setting, path_mtu_rate=body.path_mtu_rate)
        log_event(unit, caller, "domain.created", record.id, body.model_dump(exclude={"id"}))
        return reply(
            _read_domain(unit, record),
            generation=record.generation,
            tag=etag(record.version),
            location=f"/v1/domains/{record.id}",
        )

    return answer_write(services.control.carry_out(once.of(caller, create)))


@router.get("/{domain}", response_model=Domain)
def get_domain(_: DomainReader, services: ServicesDep, domain: NamePath) -> Response:
    """One domain. Its ETag changes with its settings, not with its generation."""
    found = services.control.read(lambda unit: _read_domain(unit, unit.domains.get(domain)))
    return answer(found, tag=etag(found.version))


@router.patch("/{domain}", response_model=Domain)
def change_domain(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, body: DomainChange, condition: ConditionDep
) -> Response:
    """Say how replies get back in, and how many messages about path MTU."""

    def change(unit: Unit) -> Reply:
        condition.require(etag(unit.domains.get(domain).version))
        setting = ReturnTraffic(body.return_traffic) if body.return_traffic is not None else None
        record = unit.domains.set_return_traffic(domain, setting, path_mtu_rate=body.path_mtu_rate)
        log_event(unit, caller, "domain.changed", domain, body.said())
        return reply(_read_domain(unit, record), generation=record.generation, tag=etag(record.version))

    return answer_write(services.control.carry_out(change, domain=domain))


@router.delete("/{domain}", response_model=Gone)
def delete_domain(caller: DomainOwner, services: ServicesDep, domain: NamePath, condition: ConditionDep) -> Response:
    """Remove a domain that has no tenants and no hosts any more."""

    def delete(unit: Unit) -> Reply:
        record = unit.domains.get(domain)
        condition.require(etag(record.version))
        unit.domains.delete(domain)
        log_event(unit, caller, "domain.deleted", domain, {})
        return reply(Gone(record.generation))

    done = services.control.delete_domain(domain, delete)
    services.spreading.drop(domain)
    return answer_write(done)


# ---------------------------------------------------------------------------------------------------- hosts


@router.get("/{domain}/hosts", response_model=list[Host])
def list_hosts(_: DomainReader, services: ServicesDep, domain: NamePath) -> Response:
    """The domain's hosts, by name: all of them, for enforcers need all."""
    hosts = services.control.read(lambda unit: unit.domains.hosts(domain))
    return answer([Host.of(record).model_dump() for record in hosts])


@router.get("/{domain}/hosts/{host}", response_model=Host)
def get_host(_: DomainReader, services: ServicesDep, domain: NamePath, host: NamePath, request: Request) -> Response:
    """One host."""
    body = Host.of(services.control.read(lambda unit: unit.domains.host(domain, host)))
    return answer(body, tag=etag(body.datapath_id), request=request)


@router.delete("/{domain}/hosts/{host}", response_model=Gone)
def remove_host(
    caller: DomainOwner, services: ServicesDep, domain: NamePath, host: NamePath, condition: ConditionDep
) -> Response:
    """Take a host out of the domain: nobody waits for it any more."""

    def remove(unit: Unit) -> Reply:
        condition.require(etag(Host.of(unit.domains.host(domain, host)).datapath_id))
        unit.domains.remove_host(domain, host)
        log_event(unit, caller, "host.removed", domain, {"name": host})
        generation = unit.domains.get(domain).generation
        return reply(Gone(generation), generation=generation)

    return answer_write(services.control.carry_out(remove, domain=domain))


@router.get("/{domain}/hosts/{host}/endpoints", response_model=HostEndpoints)
def list_endpoints_in_force(_: Administrator, services: ServicesDep, domain: NamePath, host: NamePath) -> Response:
    """Return the endpoints on a host whose present rows were read back there.

    An endpoint is on the host that has its interface.
    """
    return answer(services.control.read(lambda unit: unit.domains.endpoints_in_force(domain, host)))


# ---------------------------------------------------------------------------------------------------- endpoints


@router.get("/{domain}/endpoints", response_model=Page[EndpointSeen])
def list_endpoints(
    _: Administrator, services: ServicesDep, domain: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """The domain's endpoints, by name."""
    found = services.control.read(lambda unit: unit.domains.page_endpoints(domain, limit=limit + 1, marker=marker))
    following = found[limit - 1].endpoint.name if len(found) > limit else None
    return answer(Page(tuple(map(_make_endpoint, found[:limit])), following))


@router.get("/{domain}/endpoints/{endpoint}", response_model=EndpointSeen)
def get_endpoint(
    _: Administrator, services: ServicesDep, domain: NamePath, endpoint: NamePath, request: Request
) -> Response:
    """One endpoint."""
    record = services.control.read(lambda unit: unit.domains.endpoint(domain, endpoint))
    return answer(_make_endpoint(record), tag=etag(record.version), request=request)


@router.put("/{domain}/endpoints/{endpoint}", response_model=Written, responses={201: {"model": Written}})
def put_endpoint(
    caller: Administrator,
    services: ServicesDep,
    domain: NamePath,
    endpoint: NamePath,
    body: EndpointPut,
    condition: ConditionDep,
) -> Response:
    """Add an endpoint, or change the one that is there, which needs If-Match."""
    wanted = body.endpoint(endpoint)

    def write_endpoint(unit: Unit) -> Reply:
        location, owners = None, [wanted.tenant]
        try:
            old = unit.domains.endpoint(domain, endpoint)
            owners.insert(0, old.endpoint.tenant)
            condition.require(etag(old.version))
        except NotFound:
            unit.domains.get(domain)
            condition.allow(None)
            location = f"/v1/domains/{domain}/endpoints/{endpoint}"
        change = unit.domains.put_endpoint(domain, wanted)
        if change.changed:
            unit.endpoint_groups.follow(endpoint, owners)
            log_event(unit, caller, "endpoint.written", domain, {"name": endpoint, "generation": change.generation})
        written = Written(version=change.version, generation=change.generation, changed=change.changed)
        return reply(written, generation=change.generation, tag=etag(change.version), location=location)

    return answer_write(services.control.carry_out(write_endpoint, domain=domain))


@router.delete("/{domain}/endpoints/{endpoint}", response_model=Gone)
def remove_endpoint(
    caller: Administrator, services: ServicesDep, domain: NamePath, endpoint: NamePath, condition: ConditionDep
) -> Response:
    """Take an endpoint out of the domain."""

    def remove(unit: Unit) -> Reply:
        old = unit.domains.endpoint(domain, endpoint)
        condition.require(etag(old.version))
        generation = unit.domains.remove_endpoint(domain, endpoint)
        unit.endpoint_groups.follow(endpoint, (old.endpoint.tenant,))
        log_event(unit, caller, "endpoint.removed", domain, {"name": endpoint, "generation": generation})
        return reply(Gone(generation), generation=generation)

    return answer_write(services.control.carry_out(remove, domain=domain))


# ---------------------------------------------------------------------------------------------------- generations


@router.get("/{domain}/generations/{generation}", response_model=Enforced)
async def get_generation(
    caller: Caller,
    services: ServicesDep,
    domain: NamePath,
    generation: NumberPath,
    wait: Annotated[Literal["enforced"] | None, Query(description="hold the answer until then")] = None,
    timeout: Seconds = 30.0,
) -> Response:
    """Return how far a generation has got.

    With `wait`, the answer comes when it is enforced or after `timeout` seconds.
    """
    if not await run_in_threadpool(sees_domain, services, caller, domain):
        raise NotFound(f"there is no domain '{domain}'")
    wait_s = min(timeout, services.watch_limit_s) if wait else 0.0
    state = await services.enforcement.wait(domain, generation, wait_s)
    named = is_admin(caller) or caller.domain == domain
    return answer(_make_enforced(domain, state, named=named))


# ---------------------------------------------------------------------------------------------------- documents


def _read_domain(unit: Unit, record: DomainRecord) -> Domain:
    return fill(Domain, record, return_traffic=record.return_traffic.value, untracked=_find_untracked(unit, record))


def _find_untracked(unit: Unit, record: DomainRecord) -> tuple[str, ...]:
    """Return which devices of a domain that tracks connections cannot do so.

    They see one direction only, or keep no connections.
    """
    if record.return_traffic is not ReturnTraffic.TRACKED:
        return ()
    tracks = tracks_connections(unit, record.id, record.return_traffic)
    planes = sorted(
        f"firewall VNFs ({plane.value})" for plane in unit.firewalls.planes(record.id) if not (tracks and plane.tracks)
    )
    return (*planes, *(("edge", "firewall servers") if unit.pops.of_domain(record.id) is not None else ()))


def _make_endpoint(record: EndpointRecord) -> EndpointSeen:
    endpoint = record.endpoint
    mac, prefixes = endpoint.mac.to_bytes(6, "big").hex(":"), tuple(map(str, endpoint.prefixes))
    return fill(EndpointSeen, endpoint, mac=mac, prefixes=prefixes, version=record.version)


def _make_enforced(domain: str, state: EnforcedState, *, named: bool) -> Enforced:
    laggards = tuple(_make_lagging(each, named=named) for each in state.laggards)
    return Enforced(domain, state.generation, "enforced" if state.done else "pending", state.hosts, laggards)


def _make_lagging(laggard: Laggard, *, named: bool) -> Lagging:
    host = laggard.host if named else None
    if laggard.point is None:
        return Lagging(host, None, None, None)
    report = laggard.point.report
    return Lagging(host, report.generation, report.state.value, report.error if named else None)


operator_rules = APIRouter(prefix="/v1/domains/{domain}/operator-rules", tags=["domains"], route_class=Lean)


@operator_rules.get("", response_model=OperatorRulesDocument)
def get_rules(_: Administrator, services: ServicesDep, domain: NamePath, request: Request) -> Response:
    """The rules, in order."""
    found = services.control.read(lambda unit: unit.domains.operator_rules(domain))
    body = {"rules": [rule_to_json(rule) for rule in found.rules]}
    return answer(body, tag=etag(found.version), request=request)


@operator_rules.put(
    "", response_model=Written, responses={202: {"model": Written}}, openapi_extra=takes(OperatorRulesDocument)
)
def set_rules(
    caller: Administrator, services: ServicesDep, domain: NamePath, condition: ConditionDep, raw: RawBody
) -> Response:
    """Make these the rules."""
    rules = _read_rules(json_document(raw))

    def write_rules(unit: Unit) -> Reply:
        condition.require(etag(unit.domains.operator_rules(domain).version))
        change = unit.domains.set_operator_rules(domain, rules)
        if change.changed:
            detail = {"version": change.version, "generation": change.generation, "rules": len(rules)}
            log_event(unit, caller, "operator-rules.replaced", domain, detail)
        written = Written(version=change.version, generation=change.generation, changed=change.changed)
        return reply(written, generation=change.generation, tag=etag(change.version))

    with seen_from("operator"):
        return change_operator_rules(services, caller, domain, write_rules)


def _read_rules(document: object) -> list[Rule]:
    if not isinstance(document, dict) or set(document) != {"rules"} or not isinstance(document["rules"], list):
        raise BadInput('operator rules are an object {"rules": [...]} and nothing else', place="body")
    return [rule_from_json(rule, f"rules[{index}]") for index, rule in enumerate(document["rules"])]
