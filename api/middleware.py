"""Log, measure, audit and pace requests: a write's time by stage (Server-Timing), refusals, and strangers."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth import AUTH_HEADER, CERTIFICATE, READS
from api.bodies import PRINCIPAL, address_of
from api.problems import problem
from api.rates import Shown, Strangers
from orchestrator.control.audit import UNKNOWN, Refusal, Refusals
from orchestrator.control.metrics import Metrics
from orchestrator.errors import TooOften
from orchestrator.stages import measuring
from orchestrator.store.audit import Actor
from orchestrator.store.records import Principal

log = structlog.get_logger()

_READS = frozenset({"GET", "HEAD"})
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
_SERVER_TIMING = b"server-timing"


@dataclass(frozen=True, slots=True)
class _Answered:
    """How a request was answered; `stages` are those of a write, in seconds."""

    status: int
    seconds: float
    stages: Mapping[str, float]


class Observe:
    """Middleware: says what was asked, how it was answered and how long that took.

    Never a header or a body.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
        is_write = scope["method"] not in _READS
        started = time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if is_write and status < HTTPStatus.BAD_REQUEST:
                    clock.lap("answer")
                    message["headers"] = [*message["headers"], (_SERVER_TIMING, _server_timing(clock.seconds))]
            await send(message)

        try:
            with measuring() as clock:
                await self._app(scope, receive, noting)
        finally:
            answered = _Answered(status, time.perf_counter() - started, clock.seconds if is_write else {})
            # The answer leaves when the loop comes round: telling of it must not hold it up.
            asyncio.get_running_loop().call_soon(self._tell, scope, answered)

    def _tell(self, scope: Scope, answered: _Answered) -> None:
        """Count an answered request, and log it."""
        route = getattr(scope.get("route"), "path", "none")
        is_write = scope["method"] not in _READS
        self._metrics.count_answer(scope["method"], route, answered.status, answered.seconds)
        told: dict[str, object] = {"status": answered.status, "seconds": round(answered.seconds, 4)}
        if is_write and answered.status < HTTPStatus.BAD_REQUEST:
            self._metrics.took("write", answered.stages)
            told["stages_ms"] = _milliseconds(answered.stages)
        say = log.info if is_write and route not in _QUIET else log.debug
        say("request", method=scope["method"], path=scope["path"], **told)


def _server_timing(seconds: Mapping[str, float]) -> bytes:
    """Stages as the Server-Timing header has them: ``database;dur=2.1, compile;dur=1.4``, in milliseconds."""
    return ", ".join([f"{stage};dur={spent}" for stage, spent in _milliseconds(seconds).items()]).encode("latin-1")


def _milliseconds(seconds: Mapping[str, float]) -> dict[str, float]:
    return {stage: round(spent * 1000, 3) for stage, spent in seconds.items()}


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
        """Note a refused request for the audit trail, but for plain reads."""
        if scope["method"] in READS and status not in _ALWAYS:
            return
        principal: Principal | None = scope.get(PRINCIPAL)
        address = address_of(scope)
        actor = Actor(UNKNOWN, address) if principal is None else Actor(principal.name, address)
        tenant = None if principal is None else principal.tenant
        path = scope["raw_path"].decode("ascii", "backslashreplace")  # as it came: without what databases do not keep
        self._refusals.note(Refusal(actor, tenant, status), f"{scope['method']} {path}")


OPEN_PATHS = _QUIET | {"/v1/openapi.json", "/v1/authority", "/v1/enrol", "/v1/enrol/switch"}
"""The paths that anybody may ask. A balancer probes the service from the address that strangers come from, too;
enrolments that fail have a limit of their own."""
_CLOSE = {"Connection": "close"}
_TOKEN = AUTH_HEADER.lower().encode()


class PaceStrangers:
    """Middleware: answers strangers 429 while many of their address were refused.

    That comes before all that a request may cost: its body, its route, and a look for its token.
    """

    def __init__(self, app: ASGIApp, strangers: Strangers) -> None:
        self._app = app
        self._strangers = strangers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        shown = _read_shown(scope)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(shown, message["status"], is_known=PRINCIPAL in scope)
            await send(message)

        try:
            self._strangers.admit(shown)
        except TooOften as error:
            await problem(error, headers=_CLOSE)(scope, receive, send)
        else:
            await self._app(scope, receive, noting)

    def _note(self, shown: Shown, status: int, *, is_known: bool) -> None:
        """Note how a request was answered; a failure of the service is no refusal."""
        if is_known:
            self._strangers.remember(shown)
        elif HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            self._strangers.refuse(shown, is_wrong=status == HTTPStatus.UNAUTHORIZED)


def _read_shown(scope: Scope) -> Shown:
    """Return what a request shows of its caller."""
    fingerprint: bytes | None = scope.get(CERTIFICATE)
    if fingerprint is not None:
        return Shown(address_of(scope), fingerprint, is_certified=True)
    token = next((value for name, value in scope["headers"] if name == _TOKEN), b"")
    return Shown(address_of(scope), hashlib.sha256(token).digest() if token else None)
