"""Versions of an access list: its history, differences between two, and restoring one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.answers import answer, etag, reply
from api.auth import TenantReader, TenantWriter
from api.context import (
    ConditionDep,
    Limit,
    NamePath,
    NumberMarker,
    NumberPath,
    OnceDep,
    ServicesDep,
    WritingDep,
    author,
    log_event,
    seen_from,
)
from api.history import compare_versions, restore_list
from api.inspection import written_list
from api.limits import SmallBody
from api.proposing import PROPOSED, change_list
from api.schemas.acl import AclDocument
from api.schemas.common import BIGGEST
from api.schemas.history import DifferenceBody
from orchestrator.policy.formats.native import acl_to_json
from orchestrator.store.records import Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.codec import fill
from orchestrator.wire.common import Page
from orchestrator.wire.lists import AclVersion, Restored

router = APIRouter(prefix="/v1/tenants/{tenant}/acl/versions", tags=["versions"], route_class=SmallBody)

Later = Annotated[int | None, Query(ge=0, le=BIGGEST, description="the other version; the current one by default")]


@router.get("", response_model=Page[AclVersion])
def list_versions(
    _: TenantReader, services: ServicesDep, tenant: NamePath, limit: Limit = 100, marker: NumberMarker = None
) -> Response:
    """The list's history, newest first."""
    found = services.control.read(lambda unit: unit.acls.versions(tenant, limit=limit + 1, marker=marker))
    following = found[limit - 1].version if len(found) > limit else None
    return answer(Page(found[:limit], following))


@router.get("/{version}", response_model=AclDocument)
def get_version(
    _: TenantReader, services: ServicesDep, tenant: NamePath, version: NumberPath, request: Request
) -> Response:
    """The list as it was at a version."""
    record = services.control.read(lambda unit: unit.acls.at(tenant, version))
    return answer(acl_to_json(record.acl), tag=etag(record.version), request=request)


@router.get("/{version}/difference", response_model=DifferenceBody)
async def get_difference(
    _: TenantReader, services: ServicesDep, tenant: NamePath, version: NumberPath, to: Later = None
) -> Response:
    """The packets whose fate changed from this version to another."""
    return await services.questions.answer_in_turn(
        tenant, lambda: answer(compare_versions(services, tenant, version, to))
    )


@router.post("/{version}/restore", response_model=Restored, responses=PROPOSED)
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

    def work(unit: Unit) -> Reply:
        condition.require(etag(unit.acls.version(tenant)))
        change, left_out = restore_list(unit, tenant, version, author=author(caller))
        if change.changed:
            detail = {"version": change.version, "generation": change.generation, "of": version}
            log_event(unit, caller, "acl.restored", tenant, detail)
        told = written_list(unit, tenant, change, writing)
        body = fill(Restored, told, left_out=left_out)
        return reply(body, generation=change.generation, tag=etag(change.version))

    with seen_from(f"tenants[{tenant}].acl"):
        return change_list(services, caller, tenant, work, writing, once)
