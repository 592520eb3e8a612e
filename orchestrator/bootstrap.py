"""Wiring: from settings to a running service, in one place.

Settings ──▶ Store ──▶ Compiler, Publisher ──▶ Control, Enforcement ──▶ the application ──▶ uvicorn
"""

from __future__ import annotations

import datetime as dt
import fcntl
import gc
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import structlog
import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.context import Services
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.counting import CountDesk
from orchestrator.control.enforcement import Enforcement
from orchestrator.control.feed import Feed
from orchestrator.control.firewalls import FirewallTier
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.control.timekeeper import Timekeeper
from orchestrator.control.workbench import Workbench
from orchestrator.errors import Conflict, Missing
from orchestrator.logs import configure_logging
from orchestrator.settings import Settings
from orchestrator.store import Store, open_store
from orchestrator.store.clock import utc_now
from orchestrator.store.records import NewToken, Role
from orchestrator.store.transaction import HistorySettings, StoreSettings

log = structlog.get_logger()

_SQLITE_FILE = "sqlite:///"

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may keep the interpreter while others wait. Python's 5 ms are as long as a whole change takes, and
what was published must not wait for the thread that published it."""
COLLECT_EVERY = 10_000
"""How many more objects are made than freed before the garbage collector looks at the young ones. Python's 700 let it
run several times in a change of one rule, of which next to nothing is garbage: reference counts have freed it."""
_SHARED_RECHECK_S = 1.0
"""How often a wait looks for reports that another replica took. SQLite has exactly one process, and nobody looks."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a service is made of, below its application."""

    control: Control
    publishers: tuple[Publisher, ...]
    enforcement: Enforcement
    workbench: Workbench
    feed: Feed
    store: Store

    def release(self) -> None:
        """Answer everybody who waits, so that the connections can end."""
        for publisher in self.publishers:
            publisher.close()
        self.enforcement.close()
        self.feed.close()

    def close(self) -> None:
        """Stop the loops and give the database back."""
        self.release()
        self.workbench.close()
        self.control.stop()
        self.store.close()

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """From the application's start to its end."""
        self.control.start()
        yield
        self.close()


@dataclass(frozen=True, slots=True)
class Service:
    """A service as a value: the application, and what starts and stops with it."""

    app: FastAPI
    parts: Parts


def build_service(settings: Settings, *, clock: Callable[[], dt.datetime] = utc_now) -> Service:
    """Wire a service. It is started by its application's lifespan. Raises what `open_store` raises."""
    store = _open(settings, clock)
    metrics, workbench = Metrics(), Workbench()
    publisher = Publisher()
    metrics.watch(publisher.programs, lambda: publisher.watching)
    timekeeper = Timekeeper(
        expiry_lead=dt.timedelta(seconds=settings.expiry_lead_s), silence_s=settings.enforcer_silence_s
    )
    firewalls = FirewallTier(Publisher())
    control = Control(store, Compiler(metrics), publisher, timekeeper, firewalls)
    feed = Feed(store)
    is_shared = not settings.database_url.startswith(_SQLITE_FILE)
    recheck_s = _SHARED_RECHECK_S if is_shared else None
    enforcement = Enforcement(store, metrics, recheck_s=recheck_s, told=control.reported)
    services = Services(
        control=control,
        enforcement=enforcement,
        counts=CountDesk(store),
        metrics=metrics,
        clock=clock,
        workbench=workbench,
        feed=feed,
        body_limit_bytes=settings.body_limit_bytes,
        watch_limit_s=settings.watch_limit_s,
        review_limit_s=settings.review_limit_s,
        heartbeat_s=settings.heartbeat_s,
        expiry_lead=dt.timedelta(seconds=settings.expiry_lead_s),
    )
    parts = Parts(control, (publisher, firewalls.publisher), enforcement, workbench, feed, store)
    return Service(create_app(services, parts.lifespan), parts)


def _open(settings: Settings, clock: Callable[[], dt.datetime] = utc_now) -> Store:
    _make_state_dir(settings)
    history = HistorySettings(
        moments_s=settings.history_moments_s,
        minutes_s=settings.history_minutes_s,
        hours_s=settings.history_hours_s,
        limit_bytes=int(settings.history_limit_mb * (1 << 20)),
    )
    limits = StoreSettings(busy_timeout_s=settings.busy_timeout_s, history=history)
    return open_store(settings.database_url, settings=limits, clock=clock)


def _make_state_dir(settings: Settings) -> None:
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Missing(f"the state directory cannot be made: {error.strerror}", place=str(settings.state_dir)) from None


@contextmanager
def opened_store(settings: Settings) -> Iterator[Store]:
    """The store alone, for commands that work on it without a service."""
    store = _open(settings)
    try:
        yield store
    finally:
        store.close()


def create_token(
    settings: Settings,
    role: Role,
    *,
    tenant: str | None = None,
    expires: dt.datetime | None = None,
    description: str = "",
) -> NewToken:
    """Make a token straight in the store: how the first administrator comes to one. Raises BadInput, NotFound, Busy."""
    with opened_store(settings) as store, store.write() as unit:
        return unit.tokens.create(role, tenant=tenant, expires=expires, description=description)


# ---------------------------------------------------------------------------------------------------- serving


class _Server(uvicorn.Server):
    """uvicorn that first answers those who wait, for it stops only when all connections have ended."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            address = self.servers[0].sockets[0].getsockname()
            log.info("listening", host=address[0], port=address[1])

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._service.parts.release()
        await super().shutdown(sockets)  # type: ignore[arg-type]


def serve(settings: Settings) -> None:
    """Run a service until SIGTERM or SIGINT.

    Raises what wiring raises, Missing when the address cannot be had, Conflict when another service has the database.
    """
    configure_logging(settings)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(COLLECT_EVERY)
    with _alone(settings):
        _serve(settings)


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Keep a second service away from a SQLite file: each would serve programs that the other has replaced."""
    if not settings.database_url.startswith(_SQLITE_FILE):
        yield
        return
    _make_state_dir(settings)
    database, _, _ = settings.database_url.removeprefix(_SQLITE_FILE).partition("?")
    try:
        mark = os.open(f"{database}.serving", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Missing(f"the database cannot be kept there: {error.strerror}", place=database) from None
    try:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("another service has this database: one at a time on SQLite", place=database) from None
        yield
    finally:
        os.close(mark)


def _serve(settings: Settings) -> None:
    service = build_service(settings)
    config = uvicorn.Config(
        service.app,
        host=settings.listen_host,
        port=settings.listen_port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on a caller's address or scheme
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )
    try:
        config.load()
        gc.freeze()  # modules, routes and schemas stay for good: the collector need not look at them again
        _Server(config, service).run()
    except SystemExit as error:  # how uvicorn says that it could not listen; it has logged why
        raise Missing(f"cannot listen on {settings.listen_host} port {settings.listen_port}") from error
    except OSError as error:
        raise Missing(f"the certificate or its key cannot be used: {error}", place="tls_certificate") from error
    finally:
        service.parts.close()
