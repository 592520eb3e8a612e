"""The console's process: a web server of its own, beside the service."""

from __future__ import annotations

import gc
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from nicegui import app as pages_app
from nicegui import ui

from api.console import pages, signing
from api.console.guards import Departures, Headers
from api.console.sessions import Sessions
from api.guests import Guest, limit_guests
from orchestrator.errors import Missing
from orchestrator.memory import collect_seldom

STATIC = Path(__file__).with_name("static")


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Where the console listens, and the service it shows."""

    host: str
    port: int
    url: str
    authority: Path | None = None
    clusters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Where the members of a domain's firewall cluster tell of themselves, as ADDRESS:PORT."""


def build(settings: ConsoleSettings) -> FastAPI:
    """The console as an application."""
    sessions = Sessions(settings.url, settings.authority)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        sessions.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
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


def serve(settings: ConsoleSettings, tls: ssl.SSLContext | None = None) -> None:
    """Run the console until SIGTERM or SIGINT, over TLS where it is given.

    Raises Missing when the address is taken.
    """
    config = uvicorn.Config(
        build(settings),
        host=settings.host,
        port=settings.port,
        http=limit_guests(Guest),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )
    collect_seldom()  # somebody waits for a page while it walks over every rule of the lists that are looked at
    gc.freeze()
    try:
        uvicorn.Server(config).run()
    except SystemExit as error:  # how uvicorn says that it could not listen; it has logged why
        raise Missing(f"cannot listen on {settings.host} port {settings.port}") from error
