"""Single rules of a list.

A change of one rule costs what depends on it, not the length of its list.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from api.answers import answer, etag, page_after, reply
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
    seen_from,
    takes,
)
from api.limits import SmallBody
from api.proposing import PROPOSED, change_list, written_list
from api.schemas.acl import RuleDocument
from api.schemas.common import BIGGEST, problem_responses
from orchestrator.errors import BadInput, NotFound
from orchestrator.policy.endpointnames import with_references
from orchestrator.policy.formats.json_text import json_document
from orchestrator.policy.formats.native import rule_from_json, rule_to_json
from orchestrator.policy.formats.native_values import at
from orchestrator.policy.model import Rule
from orchestrator.policy.search import Endpoints, names_endpoints
from orchestrator.policy.search import find as find_rules
from orchestrator.policy.timewords import read_time
from orchestrator.store.records import AclRecord, Change, Principal, Reply, TenantRecord
from orchestrator.store.unit import Unit
from orchestrator.wire.common import Page
from orchestrator.wire.costs import WrittenList

router = APIRouter(
    prefix="/v1/tenants/{tenant}/acl/rules", tags=["rules"], route_class=SmallBody, responses=problem_responses()
)

_FIND = (
    "Only rules that a question finds: `198.51.100.10:443` or `web1:443` what decides a connection to there, "
    "`198.51.100.10`, `tcp`, `:22`, `deny` what can match or does that, any other word what says it; several words "
    "together."
)
Position = Annotated[int | None, Query(ge=0, le=BIGGEST, description="0 is the top")]
Neighbour = Annotated[str | None, Query(max_length=64, description="a rule's id")]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a rule: a position, before or after a rule, or the end."""

    position: int | None
    before: str | None
    after: str | None

    def find_position(self, unit: Unit, tenant: str, without: str | None = None) -> int:
        """Return the position, in the list without the rule `without`.

        Raises NotFound for a neighbour that is not there.
        """
        if self.position is not None:
            return self.position
        rules = [rule for rule in unit.acls.current(tenant).acl.rules if rule.id != without]
        neighbour = self.before if self.before is not None else self.after
        if neighbour is None:
            return len(rules)
        index = next((index for index, rule in enumerate(rules) if rule.id == neighbour), None)
        if index is None:
            side = "before" if self.before is not None else "after"
            raise NotFound(f"the list has no rule '{neighbour}'", place=f"query.{side}")
        return index if self.before is not None else index + 1


async def one_place(position: Position = None, before: Neighbour = None, after: Neighbour = None) -> Place:
    """The place that a request names. Raises BadInput for more than one."""
    if [position, before, after].count(None) < 2:
        raise BadInput("name one place only: position, before or after", place="query")
    return Place(position, before, after)


PlaceDep = Annotated[Place, Depends(one_place)]


@router.get("", response_model=Page[RuleDocument])
def list_rules(
    _: TenantReader,
    services: ServicesDep,
    tenant: NamePath,
    limit: Limit = 100,
    marker: NameMarker = None,
    begins: Annotated[str, Query(max_length=128, description="Only rules whose ids begin so.")] = "",
    find: Annotated[str, Query(max_length=256, description=_FIND)] = "",
) -> Response:
    """The rules of the list, in order. The ETag is the whole list's."""

    def read_rules(unit: Unit) -> tuple[AclRecord, TenantRecord, Endpoints]:
        endpoints = unit.endpoint_groups.addresses(tenant) if names_endpoints(find) else {}
        return unit.acls.current(tenant), unit.tenants.get(tenant), endpoints

    record, owner, endpoints = services.control.read(read_rules)
    indices = at("query.find", find_rules, record.acl, find, owner.prefixes, endpoints)
    found = (record.acl.rules[index] for index in indices)
    by_id = {rule.id: rule for rule in found if rule.id.startswith(begins)}
    names, following = page_after(list(by_id), limit, marker)
    return answer({"items": [rule_to_json(by_id[name]) for name in names], "next": following}, tag=etag(record.version))


@router.post("", status_code=201, response_model=WrittenList, responses=PROPOSED, openapi_extra=takes(RuleDocument))
def insert_rule(
    caller: TenantWriter,
    services: ServicesDep,
    tenant: NamePath,
    condition: ConditionDep,
    once: OnceDep,
    raw: RawBody,
    place: PlaceDep,
    writing: WritingDep,
) -> Response:
    """Insert a new rule: at a position, beside another one, or at the end.

    It goes before or after the other one.
    """
    rule = rule_from_json(in_words(json_document(raw), services.clock()))
    services.control.ceilings.check_rule(rule)

    def insert(unit: Unit) -> Reply:
        condition.allow(etag(unit.acls.version(tenant)))
        change = unit.acls.insert_rule(tenant, rule, position=place.find_position(unit, tenant), author=author(caller))
        location = f"/v1/tenants/{tenant}/acl/rules/{rule.id}"
        return _written(unit, caller, tenant, rule.id, change, "rule.inserted", location=location, writing=writing)

    with seen_from(f"tenants[{tenant}].acl"):
        return change_list(services, caller, tenant, insert, writing, once)


@router.get("/{rule}", response_model=RuleDocument)
def get_rule(_: TenantReader, services: ServicesDep, tenant: NamePath, rule: NamePath, request: Request) -> Response:
    """One rule."""
    record = services.control.read(lambda unit: unit.acls.rule(tenant, rule))
    return answer(rule_to_json(record.rule), tag=etag(record.since_version), request=request)


@router.put("/{rule}", response_model=WrittenList, responses=PROPOSED, openapi_extra=takes(RuleDocument))
def put_rule(
    caller: TenantWriter,
    services: ServicesDep,
    tenant: NamePath,
    rule: NamePath,
    condition: ConditionDep,
    raw: RawBody,
    writing: WritingDep,
) -> Response:
    """Change a rule in its place.

    If-Match is about this rule: changes of other rules do not get in the way.
    """
    changed = _rule_called(rule, in_words(json_document(raw), services.clock()))
    services.control.ceilings.check_rule(changed)

    def write_rule(unit: Unit) -> Reply:
        condition.require(etag(unit.acls.rule(tenant, rule).since_version))
        change = unit.acls.put_rule(tenant, changed, author=author(caller))
        return _written(unit, caller, tenant, rule, change, "rule.changed", writing=writing)

    with seen_from(f"tenants[{tenant}].acl"):
        return change_list(services, caller, tenant, write_rule, writing)


@router.put("/{rule}/place", response_model=WrittenList, responses=PROPOSED)
def move_rule(
    caller: TenantWriter,
    services: ServicesDep,
    tenant: NamePath,
    rule: NamePath,
    condition: ConditionDep,
    place: PlaceDep,
    writing: WritingDep,
) -> Response:
    """Move a rule to a position, beside another one, or to the end.

    It goes before or after the other one, and keeps its number and its counts.
    """

    def move(unit: Unit) -> Reply:
        condition.require(etag(unit.acls.rule(tenant, rule).since_version))
        position = place.find_position(unit, tenant, without=rule)
        change = unit.acls.move_rule(tenant, rule, position=position, author=author(caller))
        return _written(unit, caller, tenant, rule, change, "rule.moved", writing=writing)

    with seen_from(f"tenants[{tenant}].acl"):
        return change_list(services, caller, tenant, move, writing)


@router.delete("/{rule}", response_model=WrittenList, responses=PROPOSED)
def delete_rule(
    caller: TenantWriter,
    services: ServicesDep,
    tenant: NamePath,
    rule: NamePath,
    condition: ConditionDep,
    writing: WritingDep,
) -> Response:
    """Take a rule out of the list."""

    def delete(unit: Unit) -> Reply:
        condition.require(etag(unit.acls.rule(tenant, rule).since_version))
        change = unit.acls.delete_rule(tenant, rule, author=author(caller))
        return _written(unit, caller, tenant, rule, change, "rule.deleted", gone=True, writing=writing)

    with seen_from(f"tenants[{tenant}].acl"):
        return change_list(services, caller, tenant, delete, writing)


def in_words(document: object, now: dt.datetime) -> object:
    """A rule's document with what people say in words as the native form has it.

    `source` and `destination` may name endpoints, `expires` may be said as ``in 2h``, in UTC. Raises BadInput.
    """
    if not isinstance(document, dict):
        return document
    said = with_references(document)
    end = said.get("expires")
    if isinstance(end, str) and end[10:11] != "T":
        said["expires"] = at("expires", read_time, end, now, dt.UTC).isoformat()
    return said


def _rule_called(rule: str, document: object) -> Rule:
    """The rule of a body whose `id` is that of the path, or left out."""
    if not isinstance(document, dict):
        return rule_from_json(document)
    read = rule_from_json({**document, "id": document.get("id", rule)})
    if read.id != rule:
        raise BadInput(f"'{read.id}' is not the rule of the path: a rule keeps its id", place="id")
    return read


def _written(
    unit: Unit,
    caller: Principal,
    tenant: str,
    rule: str,
    change: Change,
    kind: str,
    *,
    location: str | None = None,
    gone: bool = False,
    writing: Writing,
) -> Reply:
    """The answer to a change of a rule; its ETag is the rule's own."""
    if change.changed:
        detail = {"rule": rule, "version": change.version, "generation": change.generation}
        log_event(unit, caller, kind, tenant, detail)
    body = written_list(unit, tenant, change, writing)
    since = change.version if change.changed else unit.acls.rule(tenant, rule).since_version
    return reply(body, generation=change.generation, tag=None if gone else etag(since), location=location)
