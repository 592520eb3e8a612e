"""Documents beside a tenant's list: expectations and shared drafts."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Path, Response

from api.answers import answer, answer_write, etag, page_of, reply
from api.auth import TenantReader, TenantWriter
from api.context import (
    ConditionDep,
    Limit,
    NameMarker,
    NamePath,
    OnceDep,
    RawBody,
    ServicesDep,
    author,
    log_event,
    read_body,
    seen_from,
    takes,
)
from api.lean import Lean
from api.schemas.drafts import ExpectationsPut, NewDraft, TestBody
from orchestrator.control import expecting
from orchestrator.policy.expectationtext import Expectations, read_expectations
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.ownership import check_ownership
from orchestrator.store.records import Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.common import Page
from orchestrator.wire.expectations import JudgedExpectation, JudgedList, KeptExpectations, SharedDraft

DraftPath = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]

router = APIRouter(prefix="/v1/tenants/{tenant}", tags=["access lists"], route_class=Lean)


@router.get("/acl/expectations", response_model=KeptExpectations)
def get_expectations(_: TenantReader, services: ServicesDep, tenant: NamePath) -> Response:
    """Return the expectations that each change of the list must keep.

    An empty text expects nothing.
    """
    found = services.control.read(lambda unit: unit.expectations.get(tenant))
    return answer(found, tag=etag(found.version))


@router.put("/acl/expectations", response_model=KeptExpectations)
def put_expectations(
    caller: TenantWriter, services: ServicesDep, tenant: NamePath, condition: ConditionDep, body: ExpectationsPut
) -> Response:
    """Set what is expected of the list from now on.

    The list may break an expectation now: then only changes after one that keeps it must keep it.
    """

    def write_expectations(unit: Unit) -> Reply:
        condition.allow(etag(unit.expectations.get(tenant).version))
        expecting.check_readable(unit, tenant, body.text)
        kept = unit.expectations.keep(tenant, body.text, author(caller))
        log_event(unit, caller, "expectations.kept", tenant, {})
        return reply(kept, tag=etag(kept.version))

    return answer_write(services.control.carry_out(write_expectations, payer=tenant))


@router.delete("/acl/expectations", status_code=204)
def delete_expectations(
    caller: TenantWriter, services: ServicesDep, tenant: NamePath, condition: ConditionDep
) -> Response:
    """Expect nothing of the list any more."""

    def delete(unit: Unit) -> None:
        condition.allow(etag(unit.expectations.get(tenant).version))
        unit.expectations.forget(tenant)
        log_event(unit, caller, "expectations.deleted", tenant, {})

    services.control.carry_out(delete, payer=tenant)
    return Response(status_code=204)


@router.post("/acl/test", response_model=JudgedList, openapi_extra=takes(TestBody))
async def hold_list(_: TenantReader, services: ServicesDep, tenant: NamePath, raw: RawBody) -> Response:
    """Hold a list to expectations, for all packets at once. Changes nothing."""
    return await services.questions.answer_in_turn(
        tenant, lambda: answer(_test_draft(services, tenant, read_body(TestBody, raw)))
    )


def _test_draft(services: ServicesDep, tenant: str, body: TestBody) -> JudgedList:
    def read(unit: Unit) -> tuple[int, expecting.Question]:
        text, name = body.expectations, body.name
        if text is None:
            text, name = unit.expectations.get(tenant).text, expecting.KEPT
        found = read_expectations(text, name) if text else Expectations(())
        current = unit.acls.current(tenant)
        sent_list = None if body.acl is None else orjson.dumps(body.acl)
        setting = expecting.setting_of(unit, tenant, found)
        return current.version, expecting.Question(found.sentences, setting, current.acl, sent_list)

    version, question = services.control.read(read)
    outcomes: tuple[JudgedExpectation, ...] = ()
    if question.sentences:
        outcomes = services.workbench.run(services.review_limit_s, expecting.answer, question)
    return JudgedList(
        version=version if body.acl is None else None,
        broken=sum(not each.kept for each in outcomes),
        expectations=outcomes,
    )


@router.get("/acl/drafts", response_model=Page[SharedDraft])
def list_drafts(
    _: TenantReader, services: ServicesDep, tenant: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """The drafts that are shared with the tenant's members, newest first."""
    found = services.control.read(lambda unit: unit.drafts.list(tenant))
    return answer(page_of({each.id: each for each in found}, limit, marker))


@router.post("/acl/drafts", status_code=201, response_model=SharedDraft, openapi_extra=takes(NewDraft))
def share_draft(
    caller: TenantWriter, services: ServicesDep, tenant: NamePath, condition: ConditionDep, once: OnceDep, raw: RawBody
) -> Response:
    """Share a draft with the tenant's members, for some days.

    It changes nothing of the list.
    """
    body = read_body(NewDraft, raw)
    acl = acl_from_json(body.acl)

    def share(unit: Unit) -> Reply:
        condition.allow(etag(unit.acls.version(tenant)))
        check_ownership(acl, unit.tenants.get(tenant).prefixes)
        found = unit.drafts.share(
            tenant, acl, base=body.base_version, author=author(caller), message=body.message, days=body.days
        )
        log_event(unit, caller, "draft.shared", tenant, {"draft": found.id})
        return reply(found, location=f"/v1/tenants/{tenant}/acl/drafts/{found.id}")

    with seen_from(f"tenants[{tenant}].acl"):
        return answer_write(services.control.carry_out(once.of(caller, share), payer=tenant))


@router.get("/acl/drafts/{draft}", response_model=SharedDraft)
def get_draft(_: TenantReader, services: ServicesDep, tenant: NamePath, draft: DraftPath) -> Response:
    """Return a shared draft: its author, its time, and its base version.

    Its list is under `/acl`.
    """
    return answer(services.control.read(lambda unit: unit.drafts.get(tenant, draft)[0]))


@router.get("/acl/drafts/{draft}/acl", response_model=dict[str, object])
def get_draft_acl(_: TenantReader, services: ServicesDep, tenant: NamePath, draft: DraftPath) -> Response:
    """The list of a shared draft, in the native form."""
    body = services.control.read(lambda unit: unit.drafts.get(tenant, draft)[1])
    return Response(body.encode(), media_type="application/json")


@router.delete("/acl/drafts/{draft}", status_code=204)
def delete_draft(
    caller: TenantWriter, services: ServicesDep, tenant: NamePath, draft: DraftPath, condition: ConditionDep
) -> Response:
    """Share a draft no more."""

    def delete(unit: Unit) -> None:
        condition.allow(etag(unit.drafts.get(tenant, draft)[0].base_version))
        unit.drafts.delete(tenant, draft)
        log_event(unit, caller, "draft.deleted", tenant, {"draft": draft})

    services.control.carry_out(delete, payer=tenant)
    return Response(status_code=204)
