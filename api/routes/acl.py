"""Access lists as a whole: the list, its history, dry runs, traces, hits."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.answers import answer, etag, reply, sent
from api.auth import TenantReader, TenantWriter, is_admin
from api.context import (
    ConditionDep,
    Limit,
    NameMarker,
    NamePath,
    NumberMarker,
    NumberPath,
    RawBody,
    ServicesDep,
    author,
    json_document,
    logged,
    seen_from,
    takes,
)
from api.inspection import review, trace
from api.paging import page_after
from api.schemas.acl import AclDocument, HitsBody, HitsPage, RuleHitsBody, VersionBody
from api.schemas.common import Page, Written
from api.schemas.inspection import PacketBody, ReviewBody, TraceBody
from orchestrator.policy.formats.native import acl_from_json, acl_to_json
from orchestrator.policy.model import Acl
from orchestrator.store.records import Reply, RuleHits, TenantHits
from orchestrator.store.unit import Unit

router = APIRouter(prefix="/v1/tenants/{tenant}/acl", tags=["access lists"])


@router.get("", response_model=AclDocument)
def get_acl(_: TenantReader, services: ServicesDep, tenant: NamePath, request: Request) -> Response:
    """The whole list, in the native form."""
    record = services.control.read(lambda unit: unit.acls.current(tenant))
    return answer(acl_to_json(record.acl), tag=etag(record.version), request=request)


@router.put("", response_model=Written, openapi_extra=takes(AclDocument))
def put_acl(
    caller: TenantWriter, services: ServicesDep, tenant: NamePath, condition: ConditionDep, raw: RawBody
) -> Response:
    """Make this the list. It is checked and compiled first: what cannot be enforced is refused and changes nothing."""
    acl = acl_from_json(json_document(raw))

    def work(unit: Unit) -> Reply:
        condition.require(etag(unit.acls.version(tenant)))
        change = unit.acls.replace(tenant, acl, author=author(caller))
        if change.changed:
            detail = {"version": change.version, "generation": change.generation, "rules": len(acl.rules)}
            logged(unit, caller, "acl.replaced", tenant, detail)
        body = Written(version=change.version, generation=change.generation, changed=change.changed)
        return reply(body, generation=change.generation, tag=etag(change.version))

    with seen_from(f"tenants[{tenant}].acl"):
        return sent(services.control.write(work))


@router.get("/versions", response_model=Page[VersionBody])
def list_versions(
    _: TenantReader, services: ServicesDep, tenant: NamePath, limit: Limit = 100, marker: NumberMarker = None
) -> Response:
    """The list's history, newest first."""
    found = services.control.read(lambda unit: unit.acls.versions(tenant, limit=limit + 1, marker=marker))
    following = found[limit - 1].version if len(found) > limit else None
    return answer(Page[VersionBody](items=[VersionBody.of(record) for record in found[:limit]], next=following))


@router.get("/versions/{version}", response_model=AclDocument)
def get_version(
    _: TenantReader, services: ServicesDep, tenant: NamePath, version: NumberPath, request: Request
) -> Response:
    """The list as it was at a version."""
    record = services.control.read(lambda unit: unit.acls.at(tenant, version))
    return answer(acl_to_json(record.acl), tag=etag(record.version), request=request)


@router.post("/check", response_model=ReviewBody, openapi_extra=takes(AclDocument))
def check_acl(_: TenantReader, services: ServicesDep, tenant: NamePath, raw: RawBody) -> Response:
    """A dry run: what is wrong with a list, what it would cost, which packets would fare otherwise. Changes nothing."""
    return answer(review(services, tenant, acl_from_json(json_document(raw))))


@router.post("/trace", response_model=TraceBody)
def trace_packet(caller: TenantReader, services: ServicesDep, tenant: NamePath, body: PacketBody) -> Response:
    """What decides a packet, list by list."""
    return answer(trace(services, tenant, body.packet(), whole_domain=is_admin(caller)))


@router.get("/hits", response_model=HitsPage)
def get_hits(
    _: TenantReader, services: ServicesDep, tenant: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """What each rule of the current list decided so far, in the list's order."""

    def work(unit: Unit) -> tuple[Acl, TenantHits]:
        return unit.acls.current(tenant).acl, unit.hits.totals(tenant)

    acl, hits = services.control.read(work)
    names, following = page_after([rule.id for rule in acl.rules], limit, marker)
    page = HitsPage(
        items=[RuleHitsBody.of_rule(name, hits.rules.get(name, RuleHits())) for name in names],
        next=following,
        ingress_default=HitsBody.of(hits.ingress_default),
        egress_default=HitsBody.of(hits.egress_default),
        ingress_return=HitsBody.of(hits.ingress_return),
        egress_return=HitsBody.of(hits.egress_return),
    )
    return answer(page)
