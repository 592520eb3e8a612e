"""A log event and a measurement for every request."""

from __future__ import annotations

import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.control.metrics import Metrics

log = structlog.get_logger()

_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


class Observe:
    """Middleware: says what was asked, how it was answered and how long that took. Never a header or a body."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.answered(scope["method"], route, status, seconds)
            say = log.debug if scope["method"] == "GET" or route in _QUIET else log.info
            say("request", method=scope["method"], path=scope["path"], status=status, seconds=round(seconds, 4))
