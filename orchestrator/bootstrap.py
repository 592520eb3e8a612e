"""From settings to a running service: its store, parts, application, and server.

Settings ──▶ Store ──▶ `wiring.py`: Control, Enforcement ... ──▶ the application ──▶ uvicorn
"""

from __future__ import annotations

import datetime as dt
import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from fastapi import FastAPI

from api.app import create_app
from orchestrator.errors import BadInput, Missing
from orchestrator.interpreter import collect_seldom, take_turns
from orchestrator.largepages import keep_gathered
from orchestrator.logs import configure_logging
from orchestrator.serving import Server
from orchestrator.settings import Settings
from orchestrator.statedir import alone, make_state_dir
from orchestrator.store import Store, open_store
from orchestrator.store.audit import Actor
from orchestrator.store.records import NewToken, Role
from orchestrator.store.sql.clock import utc_now
from orchestrator.store.transaction import HistorySettings, StoreSettings
from orchestrator.wire.codec import encode
from orchestrator.wiring import Parts, wire_parts

log = structlog.get_logger()


_HERE = "machine"
"""How one is named who works on the store itself, on the service's machine."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service as a value: the application, and what starts and stops with it."""

    app: FastAPI
    parts: Parts


def build_service(settings: Settings, *, clock: Callable[[], dt.datetime] | None = None) -> Service:
    """Build a service. It is started by its application's lifespan. Raises what `open_store` raises."""
    store = _open_store(settings, clock)
    parts = wire_parts(store, settings, clock or store.now)
    return Service(create_app(parts.services, parts.lifespan), parts)


def _open_store(settings: Settings, clock: Callable[[], dt.datetime] | None = None) -> Store:
    make_state_dir(settings)
    history = HistorySettings(
        moments_s=settings.history_moments_s,
        minutes_s=settings.history_minutes_s,
        hours_s=settings.history_hours_s,
        limit_bytes=int(settings.history_limit_mb * (1 << 20)),
    )
    limits = StoreSettings(
        busy_timeout_s=settings.busy_timeout_s,
        packets_kept=settings.packet_log_kept,
        packets_key=read_packets_key(settings.packet_log_key),
        token_lasts=dt.timedelta(days=settings.token_days),
        cached_rules=settings.cached_rules,
        connections=settings.database_connections,
        history=history,
    )
    return open_store(settings.database_url, settings=limits, clock=clock)


def read_packets_key(path: Path | None) -> bytes | None:
    """Read the key of recorded headers.

    Raises Missing and BadInput: a service with a wrong key must not begin.
    """
    if path is None:
        return None
    try:
        text = path.read_text("ascii").strip()
    except (OSError, ValueError) as error:
        raise Missing(f"the key of the packet log cannot be read: {error}", place="packet_log_key") from None
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise BadInput(f"{path} holds no key: 64 hexadecimal digits", place="packet_log_key")
    return bytes.fromhex(text)


@contextmanager
def opened_store(settings: Settings) -> Iterator[Store]:
    """The store alone, for commands that work on it without a service."""
    store = _open_store(settings)
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
    person: str = "",
) -> NewToken:
    """Make a token directly in the store, such as the first administrator's.

    Raises BadInput, NotFound, Busy.
    """
    with opened_store(settings) as store, store.write() as unit:
        made = unit.tokens.create(role, tenant=tenant, expires=expires, description=description, person=person)
        text = encode({"role": role.value, "tenant": tenant, "person": made.record.bearing.person}).decode()
        number = None if tenant is None else unit.tenants.get(tenant).number
        subject, actor = str(made.record.id), Actor(_HERE)
        unit.audit.append("token.created", subject, text, actor=actor, tenant=number, domain=None)
        return made


# ---------------------------------------------------------------------------------------------------- serving


def serve(settings: Settings) -> None:
    """Run a service until SIGTERM or SIGINT.

    Raises what wiring raises, Missing when the address cannot be had, Conflict when another service has the database,
    and BadInput where it would speak HTTP in clear over a network and nobody has asked for that.
    """
    if settings.tells_secrets:
        raise BadInput(
            f"at '{settings.listen_host}' tokens could be read on the way: speak TLS (`aclflow serve --tls`), or say "
            "--plain-http (ACLFLOW_PLAIN_HTTP=yes)",
            place="listen_host",
        )
    configure_logging(settings)
    take_turns()
    collect_seldom()
    with alone(settings):
        _run_service(settings)


def _run_service(settings: Settings) -> None:
    service = build_service(settings)
    try:
        server = build_server(service, settings)
        keep_gathered()
        gc.freeze()  # modules, routes and schemas stay for good: the collector need not look at them again
        server.run()
    except SystemExit as error:  # how uvicorn says that it could not listen; it has logged why
        raise Missing(f"cannot listen on {settings.listen_host} port {settings.listen_port}") from error
    except OSError as error:
        raise Missing(f"the certificate or its key cannot be used: {error}", place="tls_certificate") from error
    finally:
        service.parts.close()


def build_server(service: Service, settings: Settings, clock: Callable[[], dt.datetime] = utc_now) -> Server:
    """Build the server of a service.

    Raises Missing and BadInput where TLS lacks something, OSError for files of it.
    """
    return Server(service.app, settings, service.parts.store, service.parts.release, clock)
