"""The console's process: a web server of its own, beside the service."""

from __future__ import annotations

import gc
import ssl
from asyncio import BaseTransport
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Response
from nicegui import app as pages_app
from nicegui import ui
from starlette.types import Scope
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from api.bodies import BodyLimit, Sender
from api.console import pages, signing
from api.console.guards import Departures, Headers, Origins, SignedIn
from api.console.sessions import Sessions
from api.guests import GUEST_LOOP, Door, Guest, limit_guests
from orchestrator.client.connections import split_url
from orchestrator.errors import Missing
from orchestrator.interpreter import collect_seldom

STATIC = Path(__file__).with_name("static")
LARGEST_BODY_BYTES = 33 << 20
"""A file of the largest size that is taken, and what a form writes around it."""


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
    app.include_router(signing.routes(sessions))
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
