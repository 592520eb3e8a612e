"""The console's process: a web server of its own, beside the service, and signing in.

A form is taken only from the browser that it was drawn for, and an address that brings wrong tokens has to wait. A link
may bring the token behind the ``#`` of ``/login#token=...`` where browser and console are on one machine, as in the
demonstration: browsers keep that part to themselves, so it is in no log; elsewhere it is thrown away.
"""

from __future__ import annotations

import asyncio
import gc
import html
import secrets
import ssl
from asyncio import BaseTransport
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import APIRouter, FastAPI, Form, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from nicegui import app as pages_app
from nicegui import ui
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from api.bodies import BodyLimit, Sender, counting
from api.console import pages
from api.console.guards import (
    FORM_COOKIE,
    SIGN_IN_POLICY,
    Departures,
    Headers,
    Origins,
    SignedIn,
    Tries,
    came_by_tls,
    is_here,
    own_form,
)
from api.console.sessions import COOKIE, LASTS_S, Sessions
from api.guests import GUEST_LOOP, Door, Guest, limit_guests
from orchestrator.client.connections import split_url
from orchestrator.errors import AclflowError, Missing, Unauthenticated
from orchestrator.interpreter import collect_seldom

STATIC = Path(__file__).with_name("static")
LARGEST_BODY_BYTES = 33 << 20
"""A file of the largest size that is taken, and what a form writes around it."""

_PAGE = Path(__file__).with_name("static") / "login.html"
_HOME = "/"
_AT_ONCE = 8
"""So many tokens are asked about at a time."""
_FORM_BYTES = 1 << 16


class _SmallForm(APIRoute):
    """A route that anybody may send a form to: it is small."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request as FastAPI does, with a body of limited length."""
        await super().handle(scope, counting(receive, _FORM_BYTES), send)


def routes(sessions: Sessions) -> APIRouter:
    """The sign-in page, and what its form and the sign-out button call."""
    router, tries, asking = APIRouter(route_class=_SmallForm), Tries(), asyncio.Semaphore(_AT_ONCE)

    @router.get("/login", response_class=HTMLResponse)
    async def login(request: Request, next: str = _HOME) -> HTMLResponse:  # noqa: A002 -- the query's name
        return _make_sign_in_page(request, next)

    @router.post("/session")
    async def sign_in(
        request: Request,
        token: Annotated[str, Form()] = "",
        next: Annotated[str, Form()] = _HOME,  # noqa: A002
        zone: Annotated[str, Form()] = "",
        form: Annotated[str, Form()] = "",
    ) -> Response:
        if not own_form(request, form):
            return _make_sign_in_page(
                request, next, "This form was not made for this browser: sign in with the one below.", 403
            )
        peer = request.client.host if request.client is not None else ""
        async with asking:
            pause = tries.pause_s(peer)
            if pause:
                refused = _make_sign_in_page(
                    request, next, f"Too many wrong tokens from this address: try again in {pause} s.", 429
                )
                refused.headers["Retry-After"] = str(pause)
                return refused
            tries.begin(peer)
            try:
                secret = await asyncio.to_thread(sessions.sign_in, token)
            except Unauthenticated:
                said = "The service does not know this token: it is wrong, expired or revoked."
                return _make_sign_in_page(request, next, said, 401)
            except AclflowError as error:
                tries.forgive(peer)
                return _make_sign_in_page(
                    request, next, f"Nobody could be asked about this token: {error.reason}.", 503
                )
        tries.forgive(peer)
        session = sessions.of(secret)
        if session is not None:
            session.viewed_from(zone)
        answer = RedirectResponse(_local(next), status_code=303)
        is_secure = came_by_tls(request)
        answer.set_cookie(COOKIE, secret, max_age=int(LASTS_S), httponly=True, samesite="lax", secure=is_secure)
        return answer

    @router.post("/session/end")
    async def sign_out(request: Request) -> Response:
        sessions.sign_out(request.cookies.get(COOKIE))
        answer = RedirectResponse("/login", status_code=303)
        answer.delete_cookie(COOKIE)
        return answer

    return router


def _make_sign_in_page(request: Request, following: str, error: str = "", status: int = 200) -> HTMLResponse:
    said = f'<p id="error" class="error" role="alert">{html.escape(error)}</p>' if error else ""
    text, form = _PAGE.read_text(encoding="utf-8"), request.cookies.get(FORM_COOKIE) or secrets.token_urlsafe(24)
    for name, value in (
        ("next", html.escape(_local(following))),
        ("error_id", " error" if error else ""),
        ("error", said),
        ("form", html.escape(form)),
        ("links", "yes" if is_here(request) else "no"),
    ):
        text = text.replace("{" + name + "}", value)
    page = HTMLResponse(text, status, {"Cache-Control": "no-store", "Content-Security-Policy": SIGN_IN_POLICY})
    is_secure = came_by_tls(request)
    page.set_cookie(FORM_COOKIE, form, httponly=True, samesite="strict", secure=is_secure)
    return page


def _local(path: str) -> str:
    """A path of this console's; what leads elsewhere is home."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else _HOME


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Where the console listens, and the service it shows."""

    host: str
    port: int
    url: str
    authority: Path | None = None
    clusters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Where the members of a domain's firewall cluster tell of themselves, as ADDRESS:PORT."""
    plain_http: bool = False
    """Whether `url` may be without TLS and lead off this machine."""


def build(settings: ConsoleSettings) -> FastAPI:
    """Make the console as an application.

    Raises BadInput for a service's address that is not to be spoken to.
    """
    split_url(settings.url, plain_http=settings.plain_http)
    sessions = Sessions(settings.url, settings.authority, plain_http=settings.plain_http)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        sessions.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(BodyLimit, limit_bytes=LARGEST_BODY_BYTES, sender=_identify_sender, refuse=_make_refusal)
    app.add_middleware(SignedIn, has_session=sessions.has)
    app.add_middleware(Origins)
    app.add_middleware(Headers)
    app.add_middleware(Departures)
    app.include_router(routes(sessions))
    pages_app.add_static_files("/console-static", STATIC)
    pages.register(sessions, settings.clusters)
    pages_app.config.quasar_config["loadingBar"]["skipHijack"] = True  # a bar without a name for screen readers
    ui.run_with(
        app,
        title="aclflow",
        favicon=STATIC / "favicon.svg",
        dark=None,
        show_welcome_message=False,
        reconnect_timeout=10.0,
    )
    return app


class GuestSocket(WebSocketsSansIOProtocol):
    """The connection of a page that is open: uvicorn's, with a place at the door.

    Like any other it gives way to newcomers where nothing has come by it for longest.
    """

    is_idle = True

    def __init__(self, *arguments: Any, door: Door, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._door = door

    @property
    def address(self) -> str:
        """The address that the browser comes from."""
        return self.client[0] if self.client is not None else ""

    def connection_made(self, transport: BaseTransport) -> None:
        """Take the connection as uvicorn does, unless there is no room."""
        super().connection_made(transport)
        if not self._door.enter(self):
            self.end()

    def data_received(self, data: bytes) -> None:
        """Note that the connection is in use, and pass the data to uvicorn."""
        self._door.rest(self)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the connection's place back, and tell uvicorn."""
        self._door.leave(self)
        super().connection_lost(exc)

    def end(self) -> None:
        """End the connection now, whatever it is at."""
        self.transport.abort()


def _identify_sender(scope: Scope) -> Sender:
    client = scope.get("client")
    return Sender(f"address {client[0] if client else ''}", is_known=False)


def _make_refusal(reason: str) -> Response:
    return Response(reason, 413, {"Connection": "close"}, "text/plain")


def serve(settings: ConsoleSettings, tls: ssl.SSLContext | None = None) -> None:
    """Run the console until SIGTERM or SIGINT, over TLS where it is given.

    Raises Missing when the address is taken.
    """
    door = Door()
    config = uvicorn.Config(
        build(settings),
        host=settings.host,
        port=settings.port,
        loop=GUEST_LOOP,
        http=limit_guests(Guest, door),
        ws=limit_guests(GuestSocket, door),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a proxy may pass on whatever a browser says of its address
        timeout_graceful_shutdown=2,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )
    collect_seldom()  # somebody waits for a page while it walks over every rule of the lists that are looked at
    gc.freeze()
    try:
        uvicorn.Server(config).run()
    except SystemExit as error:  # how uvicorn says that it could not listen; it has logged why
        raise Missing(f"cannot listen on {settings.host} port {settings.port}") from error
