"""Address groups of an access list.

A change of one member costs that member, not the group, and one generation. A group is part of its list: every change
makes a version of the list, and the ETag of a group is the list's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from api.answers import answer, etag, page_after, page_of, reply
from api.auth import TenantReader, TenantWriter
from api.context import (
    ConditionDep,
    Limit,
    NameMarker,
    NamePath,
    OnceDep,
    RawBody,
    ServicesDep,
    Writing,
    WritingDep,
    author,
    log_event,
    read_body,
    seen_from,
    takes,
)
from api.lean import Lean
from api.proposing import PROPOSED, change_list, written_list
from api.schemas.acl import GroupDocument, MembersChange
from api.schemas.common import read_prefix
from orchestrator.errors import BadPolicy, NotFound
from orchestrator.policy.endpointnames import endpoint_of_group
from orchestrator.policy.formats.json_text import json_document
from orchestrator.policy.formats.native import group_from_json
from orchestrator.store.records import Change, GroupRecord, Principal, Reply
from orchestrator.store.unit import Unit
from orchestrator.wire.common import Page
from orchestrator.wire.costs import WrittenList
from orchestrator.wire.tenants import Group

router = APIRouter(prefix="/v1/tenants/{tenant}/acl/groups", tags=["address groups"], route_class=Lean)

MemberMarker = Annotated[str | None, Query(max_length=49, description="the last member of the page before")]
MemberPath = Annotated[str, Path(max_length=49, examples=["192.0.2.0/24"])]


@router.get("", response_model=Page[Group])
def list_groups(
    _: TenantReader, services: ServicesDep, tenant: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """The groups of the list, by name."""

    def read_groups(unit: Unit) -> tuple[dict[str, Group], int]:
        found = {str(record.group.name): _make_group(record) for record in unit.groups.list(tenant)}
        return found, unit.acls.version(tenant)

    found, version = services.control.read(read_groups)
    return answer(page_of(found, limit, marker), tag=etag(version))


@router.get("/{group}", response_model=Group)
def get_group(_: TenantReader, services: ServicesDep, tenant: NamePath, group: NamePath, request: Request) -> Response:
    """One group and the rules that name it."""
    record = services.control.read(lambda unit: unit.groups.get(tenant, group))
    return answer(_make_group(record), tag=etag(record.version), request=request)


@router.put(
    "/{group}",
    response_model=WrittenList,
    responses={201: {"model": WrittenList}, **PROPOSED},
    openapi_extra=takes(GroupDocument),
)
def put_group(
    caller: TenantWriter,
    services: ServicesDep,
    tenant: NamePath,
    group: NamePath,
    condition: ConditionDep,
    raw: RawBody,
    writing: WritingDep,
) -> Response:
    """Create a group, or replace one, which needs If-Match."""
    _refuse_kept(group)
    wanted = group_from_json(group, json_document(raw))

    def write_group(unit: Unit) -> Reply:
        version = etag(unit.acls.version(tenant))
        try:
            unit.groups.get(tenant, group)
        except NotFound:
            condition.allow(version)
            location: str | None = f"/v1/tenants/{tenant}/acl/groups/{group}"
        else:
            condition.require(version)
            location = None
        change = unit.groups.put(tenant, wanted, author=author(caller))
        detail = {"members": len(wanted.prefixes)}
        return _written(unit, caller, tenant, group, change, "group.written", detail, location, writing=writing)

    with seen_from(f"tenants[{tenant}].acl"):
        return change_list(services, caller, tenant, write_group, writing)


@router.delete("/{group}", response_model=WrittenList, responses=PROPOSED)
def delete_group(
    caller: TenantWriter,
    services: ServicesDep,
    tenant: NamePath,
    group: NamePath,
    condition: ConditionDep,
    writing: WritingDep,
) -> Response:
    """Delete a group, which no rule may name any more.

    Rules that do are named in the answer.
    """

    def delete(unit: Unit) -> Reply:
        condition.require(etag(unit.groups.get(tenant, group).version))
        change = unit.groups.delete(tenant, group, author=author(caller))
        return _written(unit, caller, tenant, group, change, "group.deleted", {}, writing=writing)

    with seen_from(f"tenants[{tenant}].acl"):
        return change_list(services, caller, tenant, delete, writing)


# ---------------------------------------------------------------------------------------------------- members


@router.get("/{group}/members", response_model=Page[str])
def list_members(
    _: TenantReader,
    services: ServicesDep,
    tenant: NamePath,
    group: NamePath,
    limit: Limit = 100,
    marker: MemberMarker = None,
) -> Response:
    """The members of a group, in the order in which they came."""
    record = services.control.read(lambda unit: unit.groups.get(tenant, group))
    names, following = page_after(list(map(str, record.group.prefixes)), limit, marker)
    return answer({"items": names, "next": following}, tag=etag(record.version))


@router.post("/{group}/members", response_model=WrittenList, responses=PROPOSED, openapi_extra=takes(MembersChange))
def change_members(
    caller: TenantWriter,
    services: ServicesDep,
    tenant: NamePath,
    group: NamePath,
    condition: ConditionDep,
    once: OnceDep,
    raw: RawBody,
    writing: WritingDep,
) -> Response:
    """Add and remove members of a group, in one generation.

    They may be one or many; all of it is done, or nothing.
    """
    _refuse_kept(group)
    body = read_body(MembersChange, raw)
    add, remove = body.added_prefixes(), body.removed_prefixes()

    def change_group(unit: Unit) -> Reply:
        condition.allow(etag(unit.groups.get(tenant, group).version))
        change = unit.groups.change(tenant, group, add=add, remove=remove, author=author(caller))
        detail = {"added": len(add), "removed": len(remove)}
        return _written(unit, caller, tenant, group, change, "group.changed", detail, writing=writing)

    with seen_from(f"tenants[{tenant}].acl"):
        return change_list(services, caller, tenant, change_group, writing, once)


@router.delete("/{group}/members/{member:path}", response_model=WrittenList, responses=PROPOSED)
def remove_member(
    caller: TenantWriter,
    services: ServicesDep,
    tenant: NamePath,
    group: NamePath,
    member: MemberPath,
    condition: ConditionDep,
    writing: WritingDep,
) -> Response:
    """Remove one member."""
    gone = read_prefix(member, "path.member")

    def remove(unit: Unit) -> Reply:
        record = unit.groups.get(tenant, group)
        condition.require(etag(record.version))
        if gone not in record.group.prefixes:
            raise NotFound(f"the group '{group}' has no member {gone}")
        change = unit.groups.change(tenant, group, remove=[gone], author=author(caller))
        return _written(
            unit, caller, tenant, group, change, "group.changed", {"added": 0, "removed": 1}, writing=writing
        )

    with seen_from(f"tenants[{tenant}].acl"):
        return change_list(services, caller, tenant, remove, writing)


def _written(
    unit: Unit,
    caller: Principal,
    tenant: str,
    group: str,
    change: Change,
    kind: str,
    detail: Mapping[str, object],
    location: str | None = None,
    *,
    writing: Writing,
) -> Reply:
    """The answer to a change of a group; its ETag is the list's."""
    if change.changed:
        found = {"group": group, **detail, "version": change.version, "generation": change.generation}
        log_event(unit, caller, kind, tenant, found)
    body = written_list(unit, tenant, change, writing)
    return reply(body, generation=change.generation, tag=etag(change.version), location=location)


def _make_group(record: GroupRecord) -> Group:
    group = record.group
    return Group(name=group.name, description=group.description, members=len(group.prefixes), rules=record.rules)


def _refuse_kept(group: str) -> None:
    """Refuse to write a group that follows an endpoint. Raises BadPolicy."""
    endpoint = endpoint_of_group(group)
    if endpoint is not None:
        raise BadPolicy(f"the group follows endpoint '{endpoint}': its addresses are changed there")
