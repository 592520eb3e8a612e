"""HTTP over TLS with certificates of machines, which ends connections of revoked ones.

The certificate's fingerprint stands in every request. `Certified` is uvicorn's HTTP that keeps, for each connection,
the fingerprint of the certificate that the other side showed. TLS itself has checked that our authority signed it, that
it has not ended, and that the other side holds its key. Whether it still stands for somebody is asked at every request,
as it is of a token.

A connection may be in the middle of an answer that goes on for minutes, though, and nobody asks then: `Guard` looks
several times a second for certificates that stand for nobody any more, and ends their connections.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

import structlog

from api.auth import CERTIFICATE
from api.guests import Guest
from orchestrator.errors import TryAgain

log = structlog.get_logger()

LOOK_EVERY_S = 0.4
_LOOK_ANYHOW_S = 10.0
"""How often to look although nobody was revoked here: certificates end, too."""

Invalid = Callable[[Iterable[bytes]], Collection[bytes]]
"""Which of some fingerprints stand for nobody (any more). Raises TryAgain."""


class Certified(Guest):
    """One connection."""

    fingerprint: bytes | None = None
    """SHA-256 of the certificate that the other side showed; None where it showed none."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As uvicorn's; TLS has shaken hands by now."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        shown = tls.getpeercert(binary_form=True) if tls is not None else None
        self.fingerprint = hashlib.sha256(shown).digest() if shown else None

    def on_message_begin(self) -> None:
        """As uvicorn's: a request begins."""
        super().on_message_begin()
        if self.fingerprint is not None:
            self.scope[CERTIFICATE] = self.fingerprint  # type: ignore[literal-required]  # a key of ours


class Guard:
    """Ends connections whose certificate stands for nobody any more."""

    def __init__(self, invalid: Invalid, revoked: Callable[[], int | None]) -> None:
        self._invalid = invalid
        self._revoked = revoked
        self._seen: int | None = None
        self._looked_s = 0.0

    async def watch(self, connections: Iterable[object]) -> None:
        """Look again and again, until cancelled. `connections` is the server's own set."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look(connections)
            except TryAgain as error:
                log.warning("guard.blind", error=str(error))
            except Exception:
                log.exception("guard.fault")  # of ours; nobody else would look

    async def look(self, connections: Iterable[object]) -> int:
        """Look once, unless nothing can have changed; how many connections were ended. Raises TryAgain."""
        revoked, now_s = self._revoked(), time.monotonic()
        if revoked is not None and revoked == self._seen and now_s - self._looked_s < _LOOK_ANYHOW_S:
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
