"""Limits of connections: how many there may be, and how long a request may take.

    handshake of TLS within `HANDSHAKE_S`; the connection is counted before it
    headers   within `headers_s` of the connection or of their own first byte, in `headers_bytes`
    body      within `body_s` of the headers
    answer    without an end: streams have patience of their own (`streams.py`)

There is always room for one more: where an address, or all together, have too many connections, the one ends that has
been idle longest. A connection is idle unless a request with whole headers is under way on it; one whose body has not
come whole counts from the moment that its caller is known. So whoever is silent, or says a byte at a time, keeps nobody
else out. Only where none is idle is the newcomer turned away.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, cast

import structlog
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr
from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]  # its stubs leave it out

from api.bodies import PRINCIPAL

log = structlog.get_logger()

_KEPT_FILES = 256
"""Descriptors that are left for databases, logs and the like."""
_WANTED_FILES = 65536

HANDSHAKE_S = 10.0
"""asyncio gives a minute."""
LINGER_S = 1.0
"""So long a caller may take to read an answer that came before the end of its body; the rest is not read."""


class GuestLoop(uvloop.Loop):
    """An event loop that counts guests before their TLS handshake, and bounds that."""

    async def create_server(self, protocol_factory: Callable[[], Any], *arguments: Any, **named: Any) -> Any:
        """Create a server as asyncio does, which limits connections before TLS."""
        context, handshake_s = named.pop("ssl", None), HANDSHAKE_S

        def shaking_hands() -> _Handshake:
            guest = protocol_factory()
            return _Handshake(self, guest, context, None, server_side=True, ssl_handshake_timeout=handshake_s)

        factory = protocol_factory if context is None else shaking_hands
        return await super().create_server(factory, *arguments, **named)


GUEST_LOOP = f"{GuestLoop.__module__}:{GuestLoop.__name__}"
"""The same as uvicorn is told of it."""


@dataclass(frozen=True, slots=True)
class GuestLimits:
    """Times in seconds; how many connections there may be, and how many of one address."""

    headers_s: float = 10.0
    body_s: float = 120.0
    headers_bytes: int = 1 << 16
    connections: int = 8192
    of_address: int = 1024

    def within(self, files: int) -> GuestLimits:
        """Return these limits where so many files may be open at once."""
        room = max(64, files - _KEPT_FILES)
        return replace(self, connections=min(self.connections, room), of_address=min(self.of_address, room))


class Visitor(Protocol):
    """A connection as the door knows it."""

    @property
    def address(self) -> str:
        """The address that the connection comes from."""

    @property
    def is_idle(self) -> bool:
        """Whether it may end for others."""

    def end(self) -> None:
        """End it now, whatever it is at."""


class Door:
    """The connections of one server, the oldest first. For one event loop."""

    def __init__(self, limits: GuestLimits | None = None) -> None:
        self.limits = (limits or GuestLimits()).within(open_files())
        self._guests: dict[Visitor, None] = {}
        self._of_address: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many connections there are."""
        return len(self._guests)

    def enter(self, guest: Visitor) -> bool:
        """Let a connection in, if need be in place of an idle one.

        False where there are too many and none is idle. One that has entered stays.
        """
        if guest in self._guests:
            return True
        of_address = self._of_address[guest.address] >= self.limits.of_address
        if of_address or len(self._guests) >= self.limits.connections:
            idle = (each for each in self._guests if each.is_idle and (not of_address or each.address == guest.address))
            oldest = next(idle, None)
            log.debug("guest.too_many", address=guest.address, ended=oldest is not None)
            if oldest is None:
                return False
            self.leave(oldest)
            oldest.end()
        self._guests[guest] = None
        self._of_address[guest.address] += 1
        return True

    def rest(self, guest: Visitor) -> None:
        """Note that a connection has just been used: it is the last to end."""
        if guest in self._guests:
            del self._guests[guest]
            self._guests[guest] = None

    def leave(self, guest: Visitor) -> None:
        """Forget a connection that has ended. May be called twice."""
        if guest in self._guests:
            del self._guests[guest]
            self._of_address[guest.address] -= 1
            if not self._of_address[guest.address]:
                del self._of_address[guest.address]


class Guest(HttpToolsProtocol):
    """One connection: uvicorn's, with deadlines and a place at the door."""

    def __init__(self, *arguments: Any, door: Door, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._door = door
        self._deadline: asyncio.TimerHandle | None = None
        self._header_bytes: int | None = 0
        self._beneath: asyncio.Transport | None = None
        """The connection beneath TLS."""
        self._is_page = False
        """Whether it is a `GuestSocket`'s by now."""

    @property
    def address(self) -> str:
        """The address that the connection comes from."""
        return self.client[0] if self.client is not None else ""

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way, but for a stranger's incomplete body."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete or (cycle.more_body and PRINCIPAL not in cycle.scope)

    def arrive(self, transport: asyncio.Transport) -> None:
        """Enter before the TLS handshake, unless there is no room; `transport` is beneath TLS."""
        self.transport, self.client = transport, get_remote_addr(transport)
        self._beneath = transport
        if not self._door.enter(self):
            self.end()

    def depart(self) -> None:
        """Leave: the connection has ended, maybe before the end of the handshake."""
        self._door.leave(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection as uvicorn does, unless there is no room."""
        super().connection_made(transport)
        if self._door.enter(self):
            self._expect(self._door.limits.headers_s)
        else:
            self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the connection's place back, and tell uvicorn."""
        self._expect(None)
        self.depart()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data to uvicorn, with headers of a bounded length."""
        if self._header_bytes is not None:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._header_bytes is not None and self._header_bytes > self._door.limits.headers_bytes:
            self.end()
        elif self._deadline is None and self.is_idle and not self._is_page:  # empty lines before a request, say
            self._expect(self._door.limits.headers_s)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to a `GuestSocket`, as uvicorn does."""
        self._expect(None)
        self._is_page = True
        self.depart()
        super().handle_websocket_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing, unlike uvicorn's: anybody may ask for another protocol, and the request is answered."""

    def on_message_begin(self) -> None:
        """Note that headers begin, and tell uvicorn."""
        super().on_message_begin()
        self._header_bytes = self._header_bytes or 0
        self._expect(self._door.limits.headers_s)

    def on_headers_complete(self) -> None:
        """Note that a body may follow, and tell uvicorn."""
        self._header_bytes = None
        self._expect(self._door.limits.body_s)
        self._door.rest(self)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request is complete, and tell uvicorn."""
        self._expect(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """End a response as uvicorn does, and read no more of its request's body.

        Under TLS a connection that closes reads on for half a minute.
        """
        super().on_response_complete()
        cycle = self.cycle
        if cycle.more_body and not cycle.keep_alive:
            beneath = self._beneath or self.transport
            if not beneath.is_closing():
                beneath.pause_reading()
            self._expect(LINGER_S)

    def end(self) -> None:
        """End the connection now, whatever it is at."""
        self.transport.abort()

    def _expect(self, within_s: float | None) -> None:
        """A request under way has so long; None: as long as it takes."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if within_s is None else self.loop.call_later(within_s, self.end)


class _Handshake(SSLProtocol):  # type: ignore[misc]
    """TLS of a guest that is counted from the moment it connects."""

    def __init__(self, loop: GuestLoop, guest: Guest, *arguments: Any, **named: Any) -> None:
        super().__init__(loop, guest, *arguments, **named)
        self._guest = guest

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Pass the connection on, and watch how long TLS takes."""
        super().connection_made(transport)
        self._guest.arrive(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching, and pass on that the connection is lost."""
        super().connection_lost(exc)
        self._guest.depart()


def open_files() -> int:
    """Raise this process's limit of open files as far as possible, and return it."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if most == resource.RLIM_INFINITY else min(most, _WANTED_FILES)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
        now = wanted
    return _WANTED_FILES if now == resource.RLIM_INFINITY else now


def limit_guests(protocol: Callable[..., asyncio.Protocol], door: Door) -> type[asyncio.Protocol]:
    """A protocol as uvicorn wants it, whose connections have a place at a door."""
    return cast("type[asyncio.Protocol]", partial(protocol, door=door))
