"""Answer a write when it is enforced: `Prefer: wait=SECONDS` (RFC 7240).

The preference is heeded by all writes that move a generation.

    PUT /v1/tenants/blue/acl/rules/r7                     200 OK
    Prefer: wait=10                                       Preference-Applied: wait=10
                                                          X-Aclflow-Generation: 812
                                                          X-Aclflow-Enforced: true

The answer is the write's own, sent when every host of the domain was read back at its generation, or when the time is
over: `X-Aclflow-Enforced` tells which. It spares the caller a second request, and the wait for its answer. Where nobody
can tell, for the database is away, it says `false`: the write is done all the same, and is answered as that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.answers import GENERATION, GENERATIONS
from api.context import Services
from orchestrator import stages
from orchestrator.errors import AclflowError

log = structlog.get_logger()

ENFORCED = "X-Aclflow-Enforced"

_ENFORCED, _APPLIED, _PREFER = ENFORCED.lower().encode(), b"preference-applied", b"prefer"
"""As ASGI has the names of headers."""
_WAIT = re.compile(rb"(?:^|,)\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?=$|[,;])", re.IGNORECASE)


class Waiting:
    """Middleware that delays the answer to a write until the change is enforced.

    It does so for callers that prefer that.
    """

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wait_s = _preferred_wait(scope)
        if wait_s is None:
            await self._app(scope, receive, send)
            return

        async def send_when_enforced(message: Message) -> None:
            if message["type"] == "http.response.start" and 200 <= message["status"] < 300:
                stated = Headers(raw=message["headers"]).get(GENERATION)
                moved = message.pop(GENERATIONS, {})
                waited = [] if stated is None else await self._wait(scope, int(stated), wait_s, moved)
                message["headers"] = [*message["headers"], *waited]
            await send(message)

        await self._app(scope, receive, send_when_enforced)

    async def _wait(
        self, scope: Scope, generation: int, wait_s: int, moved: Mapping[str, int]
    ) -> list[tuple[bytes, bytes]]:
        """Wait for the generation that an answer names; return headers about the result."""
        stages.lap("answer")
        try:
            done = await self._is_enforced(scope, generation, min(wait_s, self._services.watch_limit_s), moved)
        except AclflowError as error:  # what was asked for is done, whatever becomes of the wait
            log.info("cannot wait", path=scope["path"], error=str(error))
            done = False
        if done is None:
            return []
        stages.lap("enforce")
        return [(_APPLIED, b"wait=%d" % wait_s), (_ENFORCED, b"true" if done else b"false")]

    async def _is_enforced(
        self, scope: Scope, generation: int, limit_s: float, moved: Mapping[str, int]
    ) -> bool | None:
        """Return whether a generation is enforced, as soon as it is or after `limit_s`.

        None where it is of no domain.
        """
        domain = next((name for name, reached in moved.items() if reached == generation), None)
        is_fresh = domain is not None
        domain = domain or await self._domain(scope.get("path_params", {}))
        if domain is None:
            return None
        return (await self._services.enforcement.wait(domain, generation, limit_s, is_fresh=is_fresh)).done

    async def _domain(self, path: dict[str, Any]) -> str | None:
        """The domain that a path is about, itself or through a tenant."""
        tenant = path.get("tenant")
        if tenant is None:
            return path.get("domain")
        return await run_in_threadpool(self._services.control.read, lambda unit: unit.tenants.domain(tenant))


def _preferred_wait(scope: Scope) -> int | None:
    """Return how many seconds a write's caller would wait; None without a readable preference."""
    if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
        return None
    stated = _WAIT.search(b",".join([value for name, value in scope["headers"] if name == _PREFER]))
    return int(stated.group(1)) if stated else None


def document(openapi: dict[str, Any]) -> None:
    """Mark in an OpenAPI document which operations heed the preference.

    They are those whose answers name a generation.
    """
    schemas = openapi["components"]["schemas"]
    for methods in openapi["paths"].values():
        for method, operation in methods.items():
            if method != "get" and _answers_generation(operation, schemas):
                operation.setdefault("parameters", []).append(_PARAMETER)


def _answers_generation(operation: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """Whether a documented operation answers with a generation."""
    found = (operation["responses"][status] for status in ("200", "201") if status in operation["responses"])
    references = (
        answer.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "") for answer in found
    )
    named = (schemas.get(reference.rpartition("/")[2], {}) for reference in references)
    return any("generation" in schema.get("properties", {}) for schema in named)


_PARAMETER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "examples": ["wait=10"]},
    "description": "wait=SECONDS (RFC 7240): answer when the change is enforced on every host, at the latest after so "
    f"many seconds; {ENFORCED} tells whether it is",
}
