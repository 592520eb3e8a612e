"""Tenants and the prefixes they own, exclusively."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import Annotated, TypeVar

from fastapi import APIRouter, Path, Request, Response

from api.answers import answer, answer_write, etag, reply
from api.auth import Caller, TenantCreator, TenantOwner, TenantReader, is_admin, only_tenant
from api.context import ConditionDep, Limit, NameMarker, NamePath, OnceDep, Services, ServicesDep, log_event
from api.limits import SmallBody
from api.schemas.common import read_prefix, read_prefixes
from api.schemas.tenants import NewPrefix, NewTenant, NewTenants, Prefixes, QuotaPut, TenantChange
from orchestrator.control.feed import named_tenant
from orchestrator.policy.formats.native_values import at
from orchestrator.store.points.pointrecords import Laggard
from orchestrator.store.records import Principal, Reply, TenantRecord, VersionHead
from orchestrator.store.unit import Unit
from orchestrator.wire.codec import fill
from orchestrator.wire.common import Gone, Page, Written
from orchestrator.wire.tenants import (
    CreatedTenants,
    InForce,
    Limits,
    OwnedPrefixes,
    OwnEndpoint,
    Quota,
    SeenTenant,
    Tenant,
    Used,
    WrittenTenant,
)

Shown = TypeVar("Shown", bound=Tenant)

router = APIRouter(prefix="/v1/tenants", tags=["tenants"], route_class=SmallBody)


@router.get("", response_model=Page[Tenant])
def list_tenants(caller: Caller, services: ServicesDep, limit: Limit = 100, marker: NameMarker = None) -> Response:
    """The tenants that the caller may see: all of them, or its own."""
    only = only_tenant(caller)

    def read_tenants(unit: Unit) -> tuple[TenantRecord, ...]:
        if only is not None:
            return (unit.tenants.get(only),) if marker is None else ()
        return unit.tenants.list(limit=limit + 1, marker=marker)

    found = services.control.read(read_tenants)
    following = found[limit - 1].id if len(found) > limit else None
    return answer(Page(tuple(_seen(Tenant, record) for record in found[:limit]), following))


@router.post("", status_code=201, response_model=WrittenTenant)
def create_tenant(caller: TenantCreator, services: ServicesDep, body: NewTenant, once: OnceDep) -> Response:
    """Register a tenant."""
    prefixes = read_prefixes(body.prefixes)

    def create(unit: Unit) -> Reply:
        record = unit.tenants.create(body.id, name=body.name, domain=body.domain, prefixes=prefixes)
        log_event(unit, caller, "tenant.created", record.id, {"domain": record.domain})
        return _reply_written(unit, record, location=f"/v1/tenants/{record.id}")

    return answer_write(services.control.carry_out(once.of(caller, create), domain=body.domain))


@router.post(":batch", status_code=201, response_model=CreatedTenants)
def create_tenants(caller: TenantCreator, services: ServicesDep, body: NewTenants, once: OnceDep) -> Response:
    """Create up to 1,000 tenants of a domain in one change.

    All of them are created, or none.
    """
    read = [(each, at(f"tenants[{index}]", read_prefixes, each.prefixes)) for index, each in enumerate(body.tenants)]

    def create_all(unit: Unit) -> Reply:
        generation = unit.domains.get(body.domain).generation
        for index, (each, prefixes) in enumerate(read):
            make = partial(unit.tenants.create, name=each.name, domain=body.domain, prefixes=prefixes)
            record = at(f"tenants[{index}]", make, each.id)
            log_event(unit, caller, "tenant.created", record.id, {"domain": record.domain})
        generation = unit.generations.get(body.domain, generation)
        created = CreatedTenants(body.domain, len(read), generation)
        return reply(created, generation=generation, location="/v1/tenants")

    return answer_write(services.control.carry_out(once.of(caller, create_all), domain=body.domain))


@router.get("/{tenant}", response_model=SeenTenant)
def get_tenant(caller: TenantReader, services: ServicesDep, tenant: NamePath) -> Response:
    """Return one tenant.

    Its ETag changes with what it is and owns, not with what its list costs or where it is in force.
    """

    def read(unit: Unit) -> tuple[TenantRecord, int, dict[str, object]]:
        record, rules = _with_rules(unit, tenant)
        return record, rules, {
            "in_force": in_force(unit, record, named=is_admin(caller)),
            "return_traffic": unit.domains.get(record.domain).return_traffic.value,
            "unconfirmed": unit.acls.unconfirmed_change(tenant),
        }  # fmt: skip

    record, rules, seen = services.control.read(read)
    body = _seen(SeenTenant, record, used=_measure_use(services, record, rules), **seen)
    return answer(body, tag=etag(record.version))


@router.patch("/{tenant}", response_model=WrittenTenant)
def rename_tenant(
    caller: TenantOwner, services: ServicesDep, tenant: NamePath, body: TenantChange, condition: ConditionDep
) -> Response:
    """Give a tenant another name; its id stays."""

    def rename(unit: Unit) -> Reply:
        condition.require(etag(unit.tenants.get(tenant).version))
        record = unit.tenants.rename(tenant, body.name)
        log_event(unit, caller, "tenant.renamed", tenant, {"name": body.name})
        return _reply_written(unit, record)

    return answer_write(services.control.carry_out(rename, tenant=tenant))


@router.delete("/{tenant}", response_model=Gone)
def delete_tenant(caller: TenantOwner, services: ServicesDep, tenant: NamePath, condition: ConditionDep) -> Response:
    """Remove a tenant with its list, its history and its tokens.

    It must have no endpoints any more.
    """

    def delete(unit: Unit) -> Reply:
        condition.require(etag(unit.tenants.get(tenant).version))
        generation = unit.tenants.delete(tenant)
        log_event(unit, caller, "tenant.deleted", tenant, {"generation": generation})
        return reply(Gone(generation), generation=generation)

    return answer_write(services.control.carry_out(delete, tenant=tenant))


# ---------------------------------------------------------------------------------------------------- prefixes


@router.get("/{tenant}/prefixes", response_model=OwnedPrefixes)
def get_prefixes(_: TenantReader, services: ServicesDep, tenant: NamePath, request: Request) -> Response:
    """The prefixes that a tenant owns."""
    record = services.control.read(lambda unit: unit.tenants.get(tenant))
    body = OwnedPrefixes(_list_prefixes(record))
    return answer(body, tag=etag(record.version), request=request)


@router.put("/{tenant}/prefixes", response_model=Written)
def set_prefixes(
    caller: TenantOwner, services: ServicesDep, tenant: NamePath, body: Prefixes, condition: ConditionDep
) -> Response:
    """Make these, and no others, what a tenant owns."""
    prefixes = read_prefixes(body.prefixes)

    def write_prefixes(unit: Unit) -> Reply:
        before = unit.tenants.get(tenant)
        condition.require(etag(before.version))
        return _reply_prefixes_written(unit, caller, before, unit.tenants.set_prefixes(tenant, prefixes))

    return answer_write(services.control.carry_out(write_prefixes, tenant=tenant))


@router.post("/{tenant}/prefixes", status_code=201, response_model=Written)
def add_prefix(
    caller: TenantOwner,
    services: ServicesDep,
    tenant: NamePath,
    body: NewPrefix,
    condition: ConditionDep,
    once: OnceDep,
) -> Response:
    """Give a tenant one more prefix, which nobody owns yet."""
    prefix = read_prefix(body.prefix, "prefix")

    def add(unit: Unit) -> Reply:
        before = unit.tenants.get(tenant)
        condition.allow(etag(before.version))
        location = f"/v1/tenants/{tenant}/prefixes/{prefix}"
        return _reply_prefixes_written(unit, caller, before, unit.tenants.add_prefix(tenant, prefix), location)

    return answer_write(services.control.carry_out(once.of(caller, add), tenant=tenant))


@router.delete("/{tenant}/prefixes/{prefix:path}", response_model=Written)
def remove_prefix(
    caller: TenantOwner,
    services: ServicesDep,
    tenant: NamePath,
    prefix: Annotated[str, Path(max_length=49, examples=["198.51.100.0/24"])],
    condition: ConditionDep,
) -> Response:
    """Take a prefix from a tenant.

    No rule or endpoint of it may need it any more.
    """
    gone = read_prefix(prefix, "path.prefix")

    def remove(unit: Unit) -> Reply:
        before = unit.tenants.get(tenant)
        condition.require(etag(before.version))
        return _reply_prefixes_written(unit, caller, before, unit.tenants.remove_prefix(tenant, gone))

    return answer_write(services.control.carry_out(remove, tenant=tenant))


@router.get("/{tenant}/endpoints", response_model=Page[OwnEndpoint])
def list_own_endpoints(
    _: TenantReader, services: ServicesDep, tenant: NamePath, limit: Limit = 100, marker: NameMarker = None
) -> Response:
    """The tenant's endpoints with their addresses, by name; not where they are."""

    records = services.control.read(lambda unit: unit.domains.page_of_tenant(tenant, limit=limit + 1, marker=marker))
    found = [OwnEndpoint(each.endpoint.name, tuple(map(str, each.endpoint.prefixes))) for each in records]
    following = found[limit - 1].name if len(found) > limit else None
    return answer(Page(tuple(found[:limit]), following))


# ---------------------------------------------------------------------------------------------------- quotas


@router.get("/{tenant}/quota", response_model=Quota)
def get_quota(_: TenantReader, services: ServicesDep, tenant: NamePath) -> Response:
    """The quota of the tenant's list, and what is used of it."""
    record, rules = services.control.read(lambda unit: _with_rules(unit, tenant))
    used = _measure_use(services, record, rules)
    return answer(fill(Quota, record.quota, used=used), tag=etag(record.version))


@router.put("/{tenant}/quota", response_model=WrittenTenant)
def set_quota(
    caller: TenantOwner, services: ServicesDep, tenant: NamePath, body: QuotaPut, condition: ConditionDep
) -> Response:
    """Set the tenant's quota.

    A list that costs more stays as it is, and may not grow.
    """

    def write_quota(unit: Unit) -> Reply:
        condition.require(etag(unit.tenants.get(tenant).version))
        record = unit.tenants.set_quota(tenant, body.quota())
        log_event(unit, caller, "tenant.quota", tenant, body.model_dump())
        return _reply_written(unit, record)

    return answer_write(services.control.carry_out(write_quota, tenant=tenant))


def _with_rules(unit: Unit, tenant: str) -> tuple[TenantRecord, int]:
    """A tenant and the length of its list."""
    record = unit.tenants.get(tenant)
    return record, unit.acls.head(tenant).rules


def _measure_use(services: Services, record: TenantRecord, rules: int) -> Used:
    return Used(
        rules,
        services.control.flows_of(record.domain, record.number),
        record.stored_bytes,
        services.feed.streams_of(named_tenant(record.id)),
        round(services.questions.seconds_of(record.id), 3),
    )


def _seen(kind: type[Shown], record: TenantRecord, **more: object) -> Shown:
    """Return a tenant as a document."""
    return fill(kind, record, prefixes=_list_prefixes(record), quota=fill(Limits, record.quota), **more)


def _list_prefixes(record: TenantRecord) -> tuple[str, ...]:
    return tuple(map(str, record.prefixes))


# ---------------------------------------------------------------------------------------------------- steps


def _reply_written(unit: Unit, record: TenantRecord, location: str | None = None) -> Reply:
    generation = unit.domains.get(record.domain).generation
    body = _seen(WrittenTenant, record, generation=generation)
    return reply(body, generation=generation, tag=etag(record.version), location=location)


def _reply_prefixes_written(
    unit: Unit, caller: Principal, before: TenantRecord, after: TenantRecord, location: str | None = None
) -> Reply:
    generation = unit.domains.get(after.domain).generation
    changed = after.version != before.version
    if changed:
        log_event(
            unit,
            caller,
            "tenant.prefixes",
            after.id,
            {"prefixes": list(_list_prefixes(after)), "generation": generation},
        )
    body = Written(version=after.version, generation=generation, changed=changed)
    return reply(body, generation=generation, tag=etag(after.version), location=location)


def in_force(unit: Unit, tenant: TenantRecord, *, named: bool) -> InForce:
    """Return how the newest version of a list stands; hosts are `named` to operators alone."""
    head = unit.acls.head(tenant.id)
    state = unit.enforcers.enforced_state(tenant.domain, head.generation)
    late = state.laggards
    told = unit.events.newest_of("acl.enforced", tenant.number)
    reached = head.created if told is None else max(told, head.created)
    return InForce(
        version=head.version,
        state="behind" if late else "in force",
        since=min(_behind_since(head, each) for each in late) if late else reached,
        hosts=state.hosts,
        late=len(late),
        behind=tuple(each.host for each in late) if named else None,
    )


def _behind_since(head: VersionHead, late: Laggard) -> dt.datetime:
    """Return since when a host is behind.

    It is since the version was made, or since a host that held it already turned bad.
    """
    point = late.point
    return head.created if point is None or point.report.generation < head.generation else point.reported
