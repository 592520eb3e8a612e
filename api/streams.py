"""Events as they happen, as server-sent events (the `text/event-stream` of HTML's EventSource).

    retry: 1000                                how soon to come back after a broken connection, in milliseconds

    id: 17                                     what to send as Last-Event-ID, to go on from here
    event: rule.inserted
    data: {"id": 17, "time": ..., "kind": "rule.inserted", "subject": "blue", "detail": {...}}

    event: missed                              events after this id were forgotten before they could be sent
    data: {"after": 3}

    :                                          nothing happened for a while; the connection is alive

A stream holds one page of events at most. A reader that takes nothing for a while is disconnected, and goes on from
what it had.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

from api.answers import dump_json
from api.context import Services
from orchestrator.control.feed import Feed, Feeding
from orchestrator.errors import TryAgain, Unauthenticated
from orchestrator.store.records import LoggedEvent
from orchestrator.wire.codec import fill
from orchestrator.wire.events import Event

MEDIA_TYPE = "text/event-stream"
CHECK_EVERY_S = 1.0
"""How often a stream looks whether its bearer is still known, where it has something to say."""
STALLED_S = 30.0
"""How long a reader may take nothing."""

_COME_BACK = b"retry: 1000\n\n"
_ALIVE = b":\n\n"
_AGAIN_S = 1.0


class EventStream(StreamingResponse):
    """A streamed answer that does not wait for ever for its reader."""

    async def stream_response(self, send: Send) -> None:
        """Send it, or give up on a reader that has stalled."""

        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(STALLED_S):
                await send(message)

        await super().stream_response(send_in_time)


def stream(chunks: AsyncIterator[bytes], media_type: str = MEDIA_TYPE) -> EventStream:
    """An answer of these chunks; proxies neither keep nor collect it."""
    return EventStream(chunks, media_type=media_type, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


class Validity:
    """Checks whether the bearer of a stream's token is still known.

    It looks at most every `every_s`. `check` raises Unauthenticated when it is not. A store that does not answer says
    nothing about it, and is asked again after `every_s` like one that answered.
    """

    def __init__(self, check: Callable[[], object], every_s: float) -> None:
        self._check = check
        self._every_s = every_s
        self._checked_s = time.monotonic()

    async def holds(self) -> bool:
        """Return whether the bearer is known, as far as was looked."""
        if time.monotonic() - self._checked_s < self._every_s:
            return True
        try:
            await run_in_threadpool(self._check)
        except Unauthenticated:
            return False
        except TryAgain:
            pass
        self._checked_s = time.monotonic()
        return True


def validity_of(services: Services, bearer: str) -> Validity:
    """Return the check of a token, for a stream that its bearer asked for.

    A caller with a certificate bears no token and stays valid: its connection is cut (`orchestrator/serving.py`).
    """

    def check_token() -> None:
        if bearer:
            services.control.read(lambda unit: unit.tokens.check(bearer))

    return Validity(check_token, min(services.heartbeat_s, CHECK_EVERY_S))


async def follow_until_revoked(
    bodies: AsyncIterator[bytes], services: Services, bearer: str, place: AbstractContextManager[None]
) -> AsyncIterator[bytes]:
    """Pass programs on, in a reader's place, until its token is valid no more.

    The token is looked up after each was sent, so that no program waits for that.
    """
    validity = validity_of(services, bearer)
    with place:
        async for body in bodies:
            yield body
            if not await validity.holds():
                return


async def begin_stream(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Begin a stream, and return all its chunks.

    An error at the beginning is raised here, while it can still be answered.
    """
    begun = await anext(chunks)

    async def send_all() -> AsyncIterator[bytes]:
        yield begun
        async for chunk in chunks:
            yield chunk

    return send_all()


async def following(
    feed: Feed, after: int, *, tenant: int | None, heartbeat_s: float, validity: Validity
) -> AsyncIterator[bytes]:
    """Stream events after an id, of all or of one tenant.

    The tenant is given by its number. The stream ends when the service stops or its bearer is known no more.
    """
    yield _COME_BACK
    while not feed.closed:
        fed = await _feed_events(feed, after, heartbeat_s, tenant)
        if not await validity.holds():
            return
        if fed is None:
            yield _ALIVE
            continue
        if fed.missed:
            yield _frame(None, "missed", dump_json({"after": after}))
        for event in fed.events:
            yield frame_event(event)
        after = fed.upto


async def _feed_events(feed: Feed, after: int, wait_s: float, tenant: int | None) -> Feeding | None:
    """The answer of `Feed.after`; nothing, a moment later, while the database is away."""
    try:
        return await feed.after(after, wait_s, tenant=tenant)
    except TryAgain:
        await asyncio.sleep(min(wait_s, _AGAIN_S))
        return None


def frame_event(event: LoggedEvent) -> bytes:
    """One event as it goes over the wire."""
    return _frame(event.id, event.kind, dump_json(fill(Event, event)))


def _frame(event_id: int | None, kind: str, data: bytes) -> bytes:
    """JSON has no line breaks of its own, so `data` is one line."""
    head = f"event: {kind}\ndata: " if event_id is None else f"id: {event_id}\nevent: {kind}\ndata: "
    return head.encode() + data + b"\n\n"
