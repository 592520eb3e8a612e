"""Limits of the bodies that the service takes.

There is a limit for access lists and reports, and a small one for all else. All bodies of one tenant or enforcement
point are bounded too (`bodies.py`); callers that are not known yet count by their address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.security import APIKeyHeader
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from api.bodies import PRINCIPAL, SMALL_BODY_BYTES, Sender, address_of, announced_length, counting, too_large
from api.lean import Lean
from api.problems import MOST_FAULTS, faults_of
from api.threads import in_thread, share_of
from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.formats.json_text import refuse_repeated_keys
from orchestrator.store.records import Principal

_REPORT_BYTES, _STRANGERS_BYTES = 4 << 20, 1 << 16
SMALL_REPORT_BYTES, OF_A_HOST_BYTES = 1 << 16, 80 << 10
"""A report is as large as this, and so much larger for each host: a switch names 4,096 ports in 76 KiB."""
_LOOKED_AT_BYTES = 1 << 12
"""A smaller document has few faults."""


def sender_of(scope: Scope) -> Sender:
    """Return the sender of a request's body: a tenant, enforcement point, token or address."""
    principal: Principal | None = scope.get(PRINCIPAL)
    if principal is None:
        return Sender(f"address {address_of(scope)}", is_known=False)
    return Sender(share_of((principal,)) or f"token {principal.token_id}")


class SmallBody(Lean):
    """A route whose body is a small JSON document."""

    limit_bytes = SMALL_BODY_BYTES

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, of whose body no more than the limit is read."""
        if scope["method"] in (self.methods or ()) and announced_length(scope) > self.limit_bytes:
            raise HTTPException(413, too_large(self.limit_bytes))
        await super().handle(scope, counting(receive, self.limit_bytes), send)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler, with bodies read by orjson and known callers.

        FastAPI itself reads a body before it asks who brings it.
        """
        handle = super().get_route_handler()
        model, asks_caller = _model_of(self), _asks_token(self.dependant)

        async def answer_json(request: Request) -> Response:
            if model is not None and asks_caller:
                await request.app.state.identify(request)  # `auth.identify`
            return await handle(_JsonRequest(request.scope, request.receive, model))

        return answer_json


def _asks_token(dependant: Dependant) -> bool:
    """Whether a route, or what it depends on, asks for a token."""
    return any(isinstance(each.call, APIKeyHeader) or _asks_token(each) for each in dependant.dependencies)


def _model_of(route: Lean) -> type[BaseModel] | None:
    """Return the model of a route's body, if FastAPI reads it."""
    model: object = None if route.body_field is None else route.body_field.field_info.annotation
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


class LargeReport(SmallBody):
    """A route whose body says how all switches of a controller are; see `read_report`."""

    limit_bytes = _REPORT_BYTES


async def read_report(request: Request, count_hosts: Callable[[], Awaitable[int]]) -> bytes:
    """Return the body of a report, of bounded size for each of its sender's hosts.

    `count_hosts` is asked for large ones. Raises TooLarge before any of it is read, and HTTPException for one that
    came without its length.
    """
    announced, most = announced_length(request.scope), SMALL_REPORT_BYTES
    if announced > most:
        most = min(_REPORT_BYTES, most + await count_hosts() * OF_A_HOST_BYTES)
        if announced > most:
            raise TooLarge(f"{too_large(most)} for the hosts of this enforcement point")
    return await Request(request.scope, counting(request.receive, most)).body()


class StrangersBody(SmallBody):
    """A route that anybody may ask: sending a body costs more than reading it."""

    limit_bytes = _STRANGERS_BYTES


class _JsonRequest(Request):
    """A request read by orjson, strictly.

    No document is nested deeply enough to exhaust it. FastAPI makes a report of each fault in a document, twice: one
    with very many is refused before.
    """

    def __init__(self, scope: Scope, receive: Receive, model: type[BaseModel] | None) -> None:
        super().__init__(scope, receive)
        self._model = model

    async def json(self) -> object:
        """Read the body by the route's model; a large one on a thread."""
        raw = await self.body()
        principal: Principal | None = self.scope.get(PRINCIPAL)
        if principal is None or len(raw) <= _LOOKED_AT_BYTES:
            return _read_document(raw, self._model)
        return await in_thread(lambda _: _read_document(raw, self._model), principal)  # on its share of threads


def _read_document(raw: bytes, model: type[BaseModel] | None) -> object:
    """Return the document of a body. Raises HTTPException, and what orjson raises."""
    document: object = orjson.loads(raw)
    if model is not None and len(raw) > _LOOKED_AT_BYTES:
        try:
            model.model_validate(document)
        except ValidationError as error:
            if error.error_count() > MOST_FAULTS:
                raise HTTPException(400, faults_of(error).reason) from None
    try:
        refuse_repeated_keys(raw)
    except BadInput as error:
        raise HTTPException(400, str(error)) from None
    return document
