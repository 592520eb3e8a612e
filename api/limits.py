"""Limit the size of a request's body.

There is a limit for access lists and reports, and a small one for all else. The limits count what arrives, so a body
without Content-Length is held to them as well; one that announces too much is refused before any of it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.lean import Lean
from api.problems import problem
from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.formats.json_text import refuse_repeated_keys

SMALL_BODY_BYTES = 1 << 20


class BodyLimit:
    """Middleware: no request's body is read beyond `limit_bytes`."""

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif _announced_length(scope) > self._limit_bytes:
            await problem(TooLarge(_reason(self._limit_bytes)))(scope, receive, send)
        else:
            await self._app(scope, _counting(receive, self._limit_bytes), send)


class SmallBody(Lean):
    """A route whose body is a small JSON document."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As any route, with no more of the body than that."""
        if scope["method"] in (self.methods or ()) and _announced_length(scope) > SMALL_BODY_BYTES:
            raise HTTPException(413, _reason(SMALL_BODY_BYTES))
        await super().handle(scope, _counting(receive, SMALL_BODY_BYTES), send)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As FastAPI's, with bodies read by orjson."""
        handle = super().get_route_handler()

        async def answered(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return answered


class _JsonRequest(Request):
    """A request read by orjson, strictly.

    No document is nested deeply enough to exhaust it.
    """

    async def json(self) -> object:
        raw = await self.body()
        document: object = orjson.loads(raw)
        try:
            refuse_repeated_keys(raw)
        except BadInput as error:
            raise HTTPException(400, str(error)) from None
        return document


def _announced_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def _counting(receive: Receive, limit_bytes: int) -> Receive:
    read = 0

    async def counted() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > limit_bytes:
            raise HTTPException(413, _reason(limit_bytes))
        return message

    return counted


def _reason(limit_bytes: int) -> str:
    return f"the body is larger than {limit_bytes} bytes, which is the limit here"
