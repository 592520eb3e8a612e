"""The log of events: in pages, or followed as it grows.

Administrators see all of it, tenants what is about them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from fastapi.concurrency import run_in_threadpool

from api.answers import answer
from api.auth import Bearer, Caller, only_tenant
from api.context import Limit, NumberMarker, Services, ServicesDep
from api.limits import SmallBody
from api.schemas.common import BIGGEST, NAME
from api.streams import MEDIA_TYPE, begin_stream, following, stream, validity_of
from orchestrator.control.feed import named_tenant
from orchestrator.errors import BadInput, NotFound
from orchestrator.store.records import EventPage, Principal
from orchestrator.wire.codec import fill
from orchestrator.wire.events import Event, Events

router = APIRouter(prefix="/v1", tags=["events"], route_class=SmallBody)

OfTenant = Annotated[str | None, Query(pattern=NAME, description="only what is about this tenant")]
Newest = Annotated[bool, Query(description="newest first; `marker` then is where to go back from")]
LastEventId = Annotated[str | None, Header(description="the id that was read last; without it the stream begins now")]
_STREAM = {200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}}


@router.get("/events", response_model=Events, responses=_STREAM)  # type: ignore[arg-type]
async def list_events(
    caller: Caller,
    bearer: Bearer,
    services: ServicesDep,
    tenant: OfTenant = None,
    limit: Limit = 100,
    marker: NumberMarker = None,
    newest: Newest = False,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    last_event_id: LastEventId = None,
) -> Response:
    """Events after `marker`, oldest first; with `newest`, what happened before it, newest first.

    A caller that accepts `text/event-stream` is sent events as they happen, after `Last-Event-ID` or else `marker` if
    there is one; `limit` and `newest` then mean nothing.
    """
    number = await run_in_threadpool(_number, services, caller, tenant)
    if MEDIA_TYPE not in accept:
        page = _read_newest_page if newest else _read_page
        return await run_in_threadpool(page, services, number, limit, marker)
    after = _read_event_id(last_event_id) if last_event_id is not None else marker
    if after is None:
        after = await services.feed.newest()
    most = await run_in_threadpool(_most_streams, services, caller)
    return stream(await begin_stream(_follow_events(services, _who(caller), most, number, after, bearer)))


def _read_page(services: Services, number: int | None, limit: int, marker: int | None) -> Response:
    page = services.control.read(lambda unit: unit.events.since(marker or 0, limit=limit + 1, tenant=number))
    return _answer_page(page, limit)


def _read_newest_page(services: Services, number: int | None, limit: int, marker: int | None) -> Response:
    read = services.control.read
    return _answer_page(read(lambda unit: unit.events.newest(before=marker, limit=limit + 1, tenant=number)), limit)


def _answer_page(page: EventPage, limit: int) -> Response:
    items = tuple(fill(Event, event) for event in page.events[:limit])
    following_id = items[-1].id if len(page.events) > limit else None
    return answer(Events(items, following_id, page.missed))


def _who(caller: Principal) -> str:
    """Return whom a stream is counted for: a tenant, or a token of none."""
    only = only_tenant(caller)
    return f"token {caller.token_id}" if only is None else named_tenant(only)


def _most_streams(services: Services, caller: Principal) -> int | None:
    """Return the quota of streams of the caller's tenant; None where there is none."""
    only = only_tenant(caller)
    return None if only is None else services.control.read(lambda unit: unit.tenants.quota(only).streams)


async def _follow_events(
    services: Services, who: str, most: int | None, number: int | None, after: int, bearer: str
) -> AsyncIterator[bytes]:
    with services.feed.follower(who, most):
        chunks = following(
            services.feed,
            after,
            tenant=number,
            heartbeat_s=services.heartbeat_s,
            validity=validity_of(services, bearer),
        )
        async for chunk in chunks:
            yield chunk


def _number(services: Services, caller: Principal, tenant: str | None) -> int | None:
    """Return the number of the tenant whose events are meant; None: all.

    Raises NotFound.
    """
    only = only_tenant(caller)
    wanted = tenant if tenant is not None else only
    if only is not None and wanted != only:
        raise NotFound(f"there is no tenant '{wanted}'")
    return None if wanted is None else services.control.read(lambda unit: unit.tenants.get(wanted).number)


def _read_event_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= BIGGEST):
        raise BadInput("it is the id of an event", place="header.Last-Event-ID")
    return int(text)
