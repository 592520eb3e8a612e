"""The audit trail: administrators see all of it, members what concerns their tenant.

Nobody can change it.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from api.answers import answer
from api.auth import Administrator, Caller, is_admin, only_tenant
from api.context import Limit, NumberMarker, NumberPath, ServicesDep
from api.limits import SmallBody
from api.schemas.common import NAME
from orchestrator.errors import BadInput, Forbidden, NotFound
from orchestrator.store.audit import Wanted
from orchestrator.store.records import Principal, Role
from orchestrator.store.unit import Unit
from orchestrator.wire.audit import AuditAnchors, AuditEntry, AuditPage

router = APIRouter(prefix="/v1/audit", tags=["audit"], route_class=SmallBody)

_ANCHORS = 1000
_SEEN_BY_TENANTS = ("member:", "reader:")

OfTenant = Annotated[str | None, Query(pattern=NAME, description="only what is about this tenant")]
Word = Annotated[str | None, Query(max_length=256)]
Time = Annotated[dt.datetime | None, Query(description="with its zone, as in 2026-11-24T12:00:00Z")]
Newest = Annotated[bool, Query(description="newest first; `marker` then is where to go back from")]


@dataclass(frozen=True, slots=True)
class Filters:
    """The filter of a request for entries."""

    tenant: str | None
    who: str | None
    kind: str | None
    subject: str | None
    since: dt.datetime | None
    until: dt.datetime | None


async def filters(
    tenant: OfTenant = None,
    who: Word = None,
    kind: Word = None,
    subject: Word = None,
    since: Time = None,
    until: Time = None,
) -> Filters:
    """Return the filters of a request. Raises BadInput.

    This is a coroutine, because FastAPI sends functions to a thread.
    """
    for time, place in ((since, "query.since"), (until, "query.until")):
        if time is not None and time.tzinfo is None:
            raise BadInput("a time needs its zone, as in 2026-11-24T12:00:00Z", place=place)
    return Filters(tenant, who, kind, subject, since, until)


@router.get("", response_model=AuditPage)
def list_entries(
    caller: Caller,
    services: ServicesDep,
    asked: Annotated[Filters, Depends(filters)],
    limit: Limit = 100,
    marker: NumberMarker = None,
    newest: Newest = False,
) -> Response:
    """The entries after `marker`, oldest first; with `newest`, those before it, newest first."""
    name = _tenant(caller, asked.tenant)

    def read_entries(unit: Unit) -> tuple[AuditEntry, ...]:
        number = None if name is None else unit.tenants.get(name).number
        wanted = Wanted(number, asked.who, asked.kind, asked.subject, asked.since, asked.until)
        return unit.audit.page(wanted, marker=marker, limit=limit + 1, newest=newest)

    found = services.control.read(read_entries)
    following = found[limit - 1].id if len(found) > limit else None
    return answer(AuditPage(tuple(_shown(caller, entry) for entry in found[:limit]), following))


@router.get("/anchors", response_model=AuditAnchors)
def list_anchors(
    _: Administrator,
    services: ServicesDep,
    after: Annotated[str | None, Query(max_length=128, description="`next` of the page before")] = None,
) -> Response:
    """Return the anchors that the database has.

    Those in the sink say the same, out of reach of the database.
    """
    place = None if after is None else _read_place(after)
    found = services.control.read(lambda unit: unit.audit.anchors(after=place, limit=_ANCHORS + 1))
    shown = found[:_ANCHORS]
    following = f"{shown[-1].chain}:{shown[-1].number}" if len(found) > _ANCHORS else None
    return answer(AuditAnchors(shown, following))


@router.get("/{entry}", response_model=AuditEntry)
def get_entry(caller: Caller, services: ServicesDep, entry: NumberPath) -> Response:
    """One entry."""
    name = only_tenant(caller)

    def read_entry(unit: Unit) -> AuditEntry:
        found = unit.audit.entry(entry)
        if name is not None and found.tenant != unit.tenants.get(name).number:
            raise NotFound(f"the audit trail has no entry {entry}")
        return found

    found = services.control.read(read_entry)
    _refuse_readers(caller)
    return answer(_shown(caller, found))


def _tenant(caller: Principal, wanted: str | None) -> str | None:
    """Return the tenant whose entries are meant; None for all. Raises NotFound, Forbidden."""
    only = only_tenant(caller)
    if only is not None and wanted not in (None, only):
        raise NotFound(f"there is no tenant '{wanted}'")
    _refuse_readers(caller)
    return wanted if only is None else only


def _refuse_readers(caller: Principal) -> None:
    if caller.role is Role.READER:
        raise Forbidden("the audit trail of a tenant is for its members")


def _shown(caller: Principal, entry: AuditEntry) -> AuditEntry:
    """Return an entry as a caller may see it.

    Tenants do not see the addresses of administrators.
    """
    if is_admin(caller) or entry.who.startswith(_SEEN_BY_TENANTS):
        return entry
    return replace(entry, address="")


def _read_place(text: str) -> tuple[str, int]:
    chain, _, number = text.rpartition(":")
    if not chain or not (number.isascii() and number.isdigit() and len(number) <= 18):
        raise BadInput("it is what the page before said", place="query.after")
    return chain, int(number)
