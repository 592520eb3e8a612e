"""Access lists as a whole: the list, dry runs, traces, versions, waivers of findings."""

from __future__ import annotations

from typing import Annotated, get_args

from fastapi import APIRouter, Query, Request, Response

from api.answers import answer, answer_write, etag, page_of, reply
from api.auth import TenantReader, TenantWriter, is_admin
from api.context import (
    ConditionDep,
    Limit,
    NameMarker,
    NamePath,
    NumberMarker,
    NumberPath,
    OnceDep,
    RawBody,
    ServicesDep,
    WritingDep,
    author,
    log_event,
    seen_from,
    takes,
)
from api.history import compare_versions, find_change_of, find_neighbours, restore_list
from api.inspection import draft_traffic, review, standing, trace
from api.lean import Lean
from api.limits import SmallBody
from api.proposing import PROPOSED, change_list, written_list
from api.schemas.acl import AclDocument
from api.schemas.common import BIGGEST
from api.schemas.drafts import TracedBody
from api.schemas.history import AskedBody, BisectedBody, BlameBody, DifferenceBody
from api.schemas.inspection import PartWord, ReviewBody, StandingBody, TraceBody, WaiverRequest
from orchestrator.errors import BadInput, Stale
from orchestrator.interpreter import collector_paused
from orchestrator.policy.formats.json_text import json_document
from orchestrator.policy.formats.native import acl_from_json, acl_to_json, taken_from_json
from orchestrator.policy.formats.native_values import an_object
from orchestrator.policy.formats.results import TakenFrom
from orchestrator.store.records import Change, Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.codec import fill
from orchestrator.wire.common import Page
from orchestrator.wire.costs import WrittenList
from orchestrator.wire.lists import AclVersion, AddedWaiver, DraftTraffic, Restored, Waiver

Against = Annotated[
    int | None, Query(ge=0, le=BIGGEST, description="the version to compare with; the current one by default")
]
Parts = Annotated[list[PartWord], Query(max_length=10, description="what to tell; all by default")]
Hours = Annotated[int, Query(ge=1, le=24 * 366, description="how far back recorded packets are taken")]
_ALL: list[PartWord] = [*get_args(PartWord)]

router = APIRouter(prefix="/v1/tenants/{tenant}/acl", tags=["access lists"], route_class=Lean)


@router.get("", response_model=AclDocument)
def get_acl(_: TenantReader, services: ServicesDep, tenant: NamePath, request: Request) -> Response:
    """The whole list, in the native form."""
    record = services.control.read(lambda unit: unit.acls.current(tenant))
    return answer(acl_to_json(record.acl), tag=etag(record.version), request=request)


@router.put("", response_model=WrittenList, responses=PROPOSED, openapi_extra=takes(AclDocument))
def put_acl(
    caller: TenantWriter,
    services: ServicesDep,
    tenant: NamePath,
    condition: ConditionDep,
    raw: RawBody,
    writing: WritingDep,
) -> Response:
    """Replace the list.

    The new list is checked and compiled first: a list that cannot be enforced is refused and changes nothing.
    """

    def write_acl(unit: Unit) -> Reply:
        version = unit.acls.version(tenant)
        condition.require(etag(version))
        _check_origin(origin, tenant, version)
        change = unit.acls.replace(tenant, acl, author=author(caller))
        if change.changed:
            detail = {"version": change.version, "generation": change.generation, "rules": len(acl.rules)}
            log_event(unit, caller, "acl.replaced", tenant, detail)
        body = written_list(unit, tenant, change, writing)
        return reply(body, generation=change.generation, tag=etag(change.version))

    with collector_paused():
        document = json_document(raw)
        acl = acl_from_json(document)
        origin = taken_from_json(an_object(document, "an access list"))
        estimate = services.control.ceilings.check_list(acl)
        with seen_from(f"tenants[{tenant}].acl"):
            return change_list(services, caller, tenant, write_acl, writing, puts=estimate)


@router.post("/confirm", response_model=WrittenList)
def confirm_change(
    caller: TenantWriter, services: ServicesDep, tenant: NamePath, condition: ConditionDep, once: OnceDep
) -> Response:
    """Keep the change that waits to be confirmed."""

    def confirm(unit: Unit) -> Reply:
        condition.allow(etag(unit.acls.version(tenant)))
        change = unit.acls.confirm(tenant)
        log_event(unit, caller, "acl.confirmed", tenant, {"version": change.version})
        return _reply_settled(change)

    return answer_write(services.control.carry_out(once.of(caller, confirm), payer=tenant))


@router.post("/revert", response_model=WrittenList)
def revert_change(
    caller: TenantWriter, services: ServicesDep, tenant: NamePath, condition: ConditionDep, once: OnceDep
) -> Response:
    """Take the change that waits to be confirmed back now."""

    def revert(unit: Unit) -> Reply:
        condition.allow(etag(unit.acls.version(tenant)))
        change = unit.acls.revert(tenant, author=author(caller))
        log_event(unit, caller, "acl.reverted", tenant, {"version": change.version, "generation": change.generation})
        return _reply_settled(change)

    return answer_write(services.control.carry_out(once.of(caller, revert), payer=tenant))


def _reply_settled(change: Change) -> Reply:
    body = WrittenList(version=change.version, generation=change.generation, changed=change.changed)
    return reply(body, generation=change.generation, tag=etag(change.version))


def _check_origin(origin: TakenFrom | None, tenant: str, version: int) -> None:
    """Refuse a document that was made from another list. Raises BadInput, Stale.

    It must have been made from the list that it is to replace.
    """
    if origin is None:
        return
    if origin.tenant != tenant:
        raise BadInput(f"it was taken from tenant '{origin.tenant}', not from '{tenant}'", place="taken_from.tenant")
    if origin.version != version:
        raise Stale(f"it was taken from version {origin.version}; the list is at {version} now", place="taken_from")


@router.get("/check", response_model=StandingBody)
async def check_current(_: TenantReader, services: ServicesDep, tenant: NamePath, part: Parts = _ALL) -> Response:
    """Return the findings about the current list, and its cost.

    Each version is judged once, so asking again is cheap.
    """
    return await services.questions.answer_in_turn(tenant, lambda: answer(standing(services, tenant, part)))


@router.post("/check", response_model=ReviewBody, openapi_extra=takes(AclDocument))
async def check_acl(
    _: TenantReader,
    services: ServicesDep,
    tenant: NamePath,
    raw: RawBody,
    against: Against = None,
    part: Parts = _ALL,
) -> Response:
    """Check a list without changing anything: findings, cost, and packets decided otherwise."""
    return await services.questions.answer_in_turn(
        tenant, lambda: answer(review(services, tenant, raw, part, against=against))
    )


@router.post("/traffic", response_model=DraftTraffic, openapi_extra=takes(AclDocument))
async def try_traffic(
    _: TenantReader, services: ServicesDep, tenant: NamePath, raw: RawBody, hours: Hours = 24
) -> Response:
    """Show the tenant's recorded traffic that a list would newly permit or refuse.

    It is by rule and peer. Nothing is changed.
    """
    return await services.questions.answer_in_turn(tenant, lambda: answer(draft_traffic(services, tenant, raw, hours)))


@router.post("/trace", response_model=TraceBody)
def trace_packet(caller: TenantReader, services: ServicesDep, tenant: NamePath, body: TracedBody) -> Response:
    """Trace a packet, list by list; with a draft, what would decide it."""
    with seen_from(f"tenants[{tenant}].acl"):
        return answer(trace(services, tenant, body.packet(), whole_domain=is_admin(caller), draft=body.draft()))


@router.post("/blame", response_model=BlameBody)
async def blame_packet(_: TenantReader, services: ServicesDep, tenant: NamePath, body: AskedBody) -> Response:
    """Return the version since which the list decides a packet as now.

    It says who permitted or denied the packet.
    """
    return await services.questions.answer_in_turn(tenant, lambda: answer(find_change_of(services, tenant, body)))


@router.post("/bisect", response_model=BisectedBody)
async def bisect_packet(_: TenantReader, services: ServicesDep, tenant: NamePath, body: AskedBody) -> Response:
    """Find two neighbouring versions that decide a packet differently.

    Only few versions are looked at.
    """
    return await services.questions.answer_in_turn(tenant, lambda: answer(find_neighbours(services, tenant, body)))


versions = APIRouter(prefix="/v1/tenants/{tenant}/acl/versions", tags=["versions"], route_class=SmallBody)

Later = Annotated[int | None, Query(ge=0, le=BIGGEST, description="the other version; the current one by default")]


@versions.get("", response_model=Page[AclVersion])
def list_versions(
    _: TenantReader, services: ServicesDep, tenant: NamePath, limit: Limit = 100, marker: NumberMarker = None
) -> Response:
    """The list's history, newest first."""
    found = services.control.read(lambda unit: unit.acls.versions(tenant, limit=limit + 1, marker=marker))
    following = found[limit - 1].version if len(found) > limit else None
    return answer(Page(found[:limit], following))


@versions.get("/{version}", response_model=AclDocument)
def get_version(
    _: TenantReader, services: ServicesDep, tenant: NamePath, version: NumberPath, request: Request
) -> Response:
    """The list as it was at a version."""
    record = services.control.read(lambda unit: unit.acls.at(tenant, version))
    return answer(acl_to_json(record.acl), tag=etag(record.version), request=request)


@versions.get("/{version}/difference", response_model=DifferenceBody)
async def get_difference(
    _: TenantReader, services: ServicesDep, tenant: NamePath, version: NumberPath, to: Later = None
) -> Response:
    """The packets whose fate changed from this version to another."""
    return await services.questions.answer_in_turn(
        tenant, lambda: answer(compare_versions(services, tenant, version, to))
    )


@versions.post("/{version}/restore", response_model=Restored, responses=PROPOSED)
def restore_version(
    caller: TenantWriter,
    services: ServicesDep,
    tenant: NamePath,
    version: NumberPath,
    condition: ConditionDep,
    once: OnceDep,
    writing: WritingDep,
) -> Response:
    """Restore the list of a version, as a new version.

    Rules whose time is over are left out.
    """

    def restore(unit: Unit) -> Reply:
        condition.require(etag(unit.acls.version(tenant)))
        change, left_out = restore_list(unit, tenant, version, author=author(caller))
        if change.changed:
            detail = {"version": change.version, "generation": change.generation, "of": version}
            log_event(unit, caller, "acl.restored", tenant, detail)
        told = written_list(unit, tenant, change, writing)
        body = fill(Restored, told, left_out=left_out)
        return reply(body, generation=change.generation, tag=etag(change.version))

    with seen_from(f"tenants[{tenant}].acl"):
        return change_list(services, caller, tenant, restore, writing, once)


waivers = APIRouter(prefix="/v1/tenants/{tenant}/acl/waivers", tags=["waivers"], route_class=SmallBody)


@waivers.get("", response_model=Page[Waiver])
def list_waivers(
    _: TenantReader, services: ServicesDep, tenant: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """All waivers, oldest first; those whose time is over, too: they waive nothing any more."""
    found = services.control.read(lambda unit: unit.waivers.list(tenant))
    return answer(page_of({str(each.id): each for each in found}, limit, marker))


@waivers.post("", status_code=201, response_model=AddedWaiver)
def add_waiver(
    caller: TenantWriter,
    services: ServicesDep,
    tenant: NamePath,
    condition: ConditionDep,
    once: OnceDep,
    body: WaiverRequest,
) -> Response:
    """Waive a finding until a day. The list stays as it is.

    Its rules and its group must be there. An older waiver of the same finding is replaced, and told. If-Match, where
    it is said, is the list's ETag: the finding is waived of that list only.
    """

    def add(unit: Unit) -> Reply:
        condition.allow(etag(unit.acls.version(tenant)))
        for rule in body.rules:
            unit.acls.rule(tenant, rule)
        if body.group is not None:
            unit.groups.get(tenant, body.group)
        made = unit.waivers.add(tenant, body.subject(), author=author(caller), reason=body.reason, ends=body.ends)
        detail = {"waiver": made.id, "kind": made.kind, "rules": list(made.rules), "reason": made.reason}
        log_event(unit, caller, "waiver.added", tenant, detail)
        return reply(made, tag=etag(made.id), location=f"/v1/tenants/{tenant}/acl/waivers/{made.id}")

    return answer_write(services.control.carry_out(once.of(caller, add), tenant=tenant))


@waivers.delete("/{waiver}", status_code=204)
def remove_waiver(
    caller: TenantWriter, services: ServicesDep, tenant: NamePath, waiver: NumberPath, condition: ConditionDep
) -> Response:
    """Take a waiver back: the finding counts again."""

    def remove(unit: Unit) -> None:
        condition.require(etag(unit.waivers.get(tenant, waiver).id))
        unit.waivers.remove(tenant, waiver)
        log_event(unit, caller, "waiver.removed", tenant, {"waiver": waiver})

    services.control.carry_out(remove, tenant=tenant)
    return Response(status_code=204)
