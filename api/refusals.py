"""Record refused and failed requests in the audit trail: who, from where, for what."""

from __future__ import annotations

from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth import READS, address_of
from api.problems import PRINCIPAL
from orchestrator.control.audit import UNKNOWN, Refusal, Refusals
from orchestrator.store.audit import Actor
from orchestrator.store.records import Principal

_ALWAYS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS})
"""Refusals that say something of who asks, also where nothing would have been changed."""


class Refused:
    """Middleware: counts refused requests. Of reads, those alone that somebody may not do."""

    def __init__(self, app: ASGIApp, refusals: Refusals) -> None:
        self._app = app
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
                self._note(scope, message["status"])
            await send(message)

        await self._app(scope, receive, noting)

    def _note(self, scope: Scope, status: int) -> None:
        if scope["method"] in READS and status not in _ALWAYS:
            return
        principal: Principal | None = scope.get(PRINCIPAL)
        address = address_of(scope)
        actor = Actor(UNKNOWN, address) if principal is None else Actor(principal.name, address)
        tenant = None if principal is None else principal.tenant
        path = scope["raw_path"].decode("ascii", "backslashreplace")  # as it came: without what databases do not keep
        self._refusals.note(Refusal(actor, tenant, status), f"{scope['method']} {path}")
