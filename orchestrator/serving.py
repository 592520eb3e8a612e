"""uvicorn for the service, its TLS, and the end of connections with revoked certificates.

The certificate that the service shows and those that it believes are two things: it shows one of its own authority,
which it keeps fresh, or one that it was given; machines are always known by certificates of its own authority.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import structlog
import uvicorn
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from fastapi import FastAPI

from api.auth import CERTIFICATE
from api.guests import GUEST_LOOP, Door, Guest, limit_guests
from orchestrator.errors import AclflowError, TryAgain
from orchestrator.identity.authority import MACHINE_LASTS, Authority
from orchestrator.identity.files import AuthorityDir, read_certificate, read_key, write_file, write_key
from orchestrator.identity.names import Subject, Usage
from orchestrator.identity.requests import new_key
from orchestrator.identity.trust import load_chain, service_context
from orchestrator.settings import Settings
from orchestrator.store import Store

GUARD_EVERY_S = 0.4
_GUARD_ANYHOW_S = 10.0
"""How often to look although nobody was revoked here: certificates end, too."""

Invalid = Callable[[Iterable[bytes]], Collection[bytes]]
"""Which of some fingerprints stand for nobody (any more). Raises TryAgain."""


class Certified(Guest):
    """A connection, of which each request carries the fingerprint of the certificate shown.

    TLS itself has checked that our authority signed it, that it has not ended, and that the other side holds its key.
    Whether it still stands for somebody is asked at every request, as it is of a token.
    """

    fingerprint: bytes | None = None
    """SHA-256 of the certificate that the other side showed; None where it showed none."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note the client's certificate, after TLS, and pass the connection to uvicorn."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        shown = tls.getpeercert(binary_form=True) if tls is not None else None
        self.fingerprint = hashlib.sha256(shown).digest() if shown else None

    def on_message_begin(self) -> None:
        """Hand the certificate to the request that begins, and tell uvicorn."""
        super().on_message_begin()
        if self.fingerprint is not None:
            self.scope[CERTIFICATE] = self.fingerprint  # type: ignore[literal-required]  # a key of ours


class Guard:
    """Ends connections whose certificate stands for nobody any more.

    One may be in the middle of an answer that goes on for minutes, and no request asks then.
    """

    def __init__(self, invalid: Invalid, revoked: Callable[[], int | None]) -> None:
        self._invalid = invalid
        self._revoked = revoked
        self._seen: int | None = None
        self._looked_s = 0.0

    async def watch(self, connections: Iterable[object]) -> None:
        """Look again and again, until cancelled. `connections` is the server's own set."""
        while True:
            await asyncio.sleep(GUARD_EVERY_S)
            try:
                await self.look(connections)
            except TryAgain as error:
                log.warning("guard.blind", error=str(error))
            except Exception:
                log.exception("guard.fault")  # of ours; nobody else would look

    async def look(self, connections: Iterable[object]) -> int:
        """Look once, unless nothing can have changed; how many connections were ended. Raises TryAgain."""
        revoked, now_s = self._revoked(), time.monotonic()
        if revoked is not None and revoked == self._seen and now_s - self._looked_s < _GUARD_ANYHOW_S:
            return 0
        open_by = defaultdict(list)
        for each in list(connections):
            if isinstance(each, Certified) and each.fingerprint is not None:
                open_by[each.fingerprint].append(each)
        gone = await asyncio.to_thread(self._invalid, tuple(open_by)) if open_by else ()
        self._seen, self._looked_s = revoked, now_s
        cut = [each for fingerprint in gone for each in open_by[fingerprint]]
        for each in cut:
            each.end()
        if cut:
            log.info("connections.cut", connections=len(cut), certificates=len(gone))
        return len(cut)


RENEWED_AFTER = MACHINE_LASTS * 2 / 3


def ensure_certificate(place: AuthorityDir, authority: Authority, names: Sequence[str], now: dt.datetime) -> bool:
    """Make sure the service has a certificate for these names; return whether it is new.

    Raises BadInput for what is no name of a host, Missing where it cannot be kept.
    """
    if _is_good(place, authority, names, now):
        return False
    key = new_key()
    subject = Subject(Usage.SERVICE, "service", names[0] if names else "service")
    issued = authority.issue(subject, key.public_key(), now, MACHINE_LASTS, hosts=names)
    write_key(place.service_key, key)  # between the two files nobody finds a pair: then this is done again
    write_file(place.service_certificate, issued.pem.encode(), 0o644)
    return True


def _is_good(place: AuthorityDir, authority: Authority, names: Sequence[str], now: dt.datetime) -> bool:
    """Return whether the service's certificate is for these names, and need not be renewed yet."""
    try:
        held = read_certificate(place.service_certificate)
        key = read_key(place.service_key)
        held.verify_directly_issued_by(authority.certificate)
    except (AclflowError, ValueError, TypeError, InvalidSignature):
        return False
    said = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = {str(each.value) for each in said if not isinstance(each, x509.UniformResourceIdentifier)}
    renewed_at = held.not_valid_after_utc - (MACHINE_LASTS - RENEWED_AFTER)
    return held.public_key() == key.public_key() and hosts == set(names) and now < renewed_at


log = structlog.get_logger()

_LOOK_EVERY_S = 3600.0
_ANYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - which addresses name no address


class OwnTls:
    """The TLS of one service.

    Raises Missing and BadInput where there is no authority or nothing can be kept.
    """

    def __init__(self, settings: Settings, clock: Callable[[], dt.datetime]) -> None:
        self._place = AuthorityDir(settings.authority_dir)
        self._authority = self._place.load()
        self._names = names_of(settings)
        self._clock = clock
        self._given = settings.tls_certificate is not None
        certificate, key = self._find_files(settings)
        self.context = service_context(certificate, key, self._place.read_believed())
        """The settings of TLS that connections are made with: a later certificate is put into it."""

    def look(self) -> bool:
        """Renew the certificate if it is time; return whether.

        Raises Missing.
        """
        if self._given or not ensure_certificate(self._place, self._authority, self._names, self._clock()):
            return False
        load_chain(self.context, self._place.service_certificate, self._place.service_key)
        log.info("service.certificate_renewed", names=self._names)
        return True

    async def keep(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                await asyncio.to_thread(self.look)
            except AclflowError as error:
                log.warning("service.certificate_not_renewed", error=str(error))
            except Exception:
                log.exception("service.certificate_fault")  # of ours; nobody else would renew it

    def _find_files(self, settings: Settings) -> tuple[Path, Path]:
        if settings.tls_certificate is not None and settings.tls_key is not None:
            return settings.tls_certificate, settings.tls_key
        ensure_certificate(self._place, self._authority, self._names, self._clock())
        return self._place.service_certificate, self._place.service_key


def names_of(settings: Settings) -> tuple[str, ...]:
    """Return the service's names: the configured ones, else this machine's and loopback's."""
    said = [each.strip() for each in settings.tls_names.split(",") if each.strip()]
    here = [] if settings.listen_host in _ANYWHERE else [settings.listen_host]
    return tuple(dict.fromkeys([*(said or [socket.gethostname()]), *here, "localhost", "127.0.0.1"]))


class Server(uvicorn.Server):
    """uvicorn that first answers waiting requests (`release`), with TLS upkeep beside it.

    It stops only when all connections have ended.

    Raises Missing and BadInput where TLS lacks something, OSError for files that cannot be used.
    """

    def __init__(
        self,
        app: FastAPI,
        settings: Settings,
        store: Store,
        release: Callable[[], None],
        clock: Callable[[], dt.datetime],
    ) -> None:
        self._tls = OwnTls(settings, clock) if settings.tls else None
        super().__init__(_make_config(app, settings, self._tls))
        self._store = store
        self._release = release
        self._beside: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if not self.started:
            return
        address = self.servers[0].sockets[0].getsockname()
        log.info("listening", host=address[0], port=address[1], tls=self.config.is_ssl)
        if self._tls is not None:
            guard = Guard(self._invalid, lambda: self._store.bearers_gone)
            beside = (guard.watch(self.server_state.connections), self._tls.keep())
            self._beside = [asyncio.create_task(each) for each in beside]

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        for each in self._beside:
            each.cancel()
        self._release()
        await super().shutdown(sockets)  # type: ignore[arg-type]

    def _invalid(self, fingerprints: Iterable[bytes]) -> Collection[bytes]:
        """Which certificates stand for nobody (any more). Raises TryAgain."""
        with self._store.read() as unit:
            return unit.certificates.invalid(fingerprints)


def _make_config(app: FastAPI, settings: Settings, tls: OwnTls | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        host=settings.listen_host,
        port=settings.listen_port,
        loop=GUEST_LOOP,
        http=limit_guests(Certified if tls is not None else Guest, Door()),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here depends on a caller's address or scheme
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls.context,
    )
    config.load()
    return config
