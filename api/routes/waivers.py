"""Waivers: findings on a list that somebody took responsibility for, until a day."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.answers import answer, answer_write, etag, reply
from api.auth import TenantReader, TenantWriter
from api.context import ConditionDep, Limit, NameMarker, NamePath, NumberPath, OnceDep, ServicesDep, author, log_event
from api.limits import SmallBody
from api.paging import page_of
from api.schemas.inspection import WaiverRequest
from orchestrator.store.records import Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.common import Page
from orchestrator.wire.lists import AddedWaiver, Waiver

router = APIRouter(prefix="/v1/tenants/{tenant}/acl/waivers", tags=["waivers"], route_class=SmallBody)


@router.get("", response_model=Page[Waiver])
def list_waivers(
    _: TenantReader, services: ServicesDep, tenant: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """All waivers, oldest first; those whose time is over, too: they waive nothing any more."""
    found = services.control.read(lambda unit: unit.waivers.list(tenant))
    return answer(page_of({str(each.id): each for each in found}, limit, marker))


@router.post("", status_code=201, response_model=AddedWaiver)
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

    def work(unit: Unit) -> Reply:
        condition.allow(etag(unit.acls.version(tenant)))
        for rule in body.rules:
            unit.acls.rule(tenant, rule)
        if body.group is not None:
            unit.groups.get(tenant, body.group)
        made = unit.waivers.add(tenant, body.subject(), author=author(caller), reason=body.reason, ends=body.ends)
        detail = {"waiver": made.id, "kind": made.kind, "rules": list(made.rules), "reason": made.reason}
        log_event(unit, caller, "waiver.added", tenant, detail)
        return reply(made, tag=etag(made.id), location=f"/v1/tenants/{tenant}/acl/waivers/{made.id}")

    return answer_write(services.control.carry_out(once.of(caller, work)))


@router.delete("/{waiver}", status_code=204)
def remove_waiver(
    caller: TenantWriter, services: ServicesDep, tenant: NamePath, waiver: NumberPath, condition: ConditionDep
) -> Response:
    """Take a waiver back: the finding counts again."""

    def work(unit: Unit) -> None:
        condition.require(etag(unit.waivers.get(tenant, waiver).id))
        unit.waivers.remove(tenant, waiver)
        log_event(unit, caller, "waiver.removed", tenant, {"waiver": waiver})

    services.control.write(work)
    return Response(status_code=204)
