"""Limit the bytes of a body, and of all bodies that are held at once.

The limits count what arrives, so a body without Content-Length is held to them as well; one that announces too much is
refused before any of it is read. Bodies are held until their requests are answered: those of one caller are at most
twice the largest body, all of them `OF_ALL` times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PRINCIPAL = "aclflow.principal"
"""Where a request's scope says who asks, once that is known."""
SMALL_BODY_BYTES = 1 << 20
OF_ONE, OF_ALL = 2, 16
"""How many of the largest bodies one caller's requests hold at once, and those of all."""
_OF_STRANGERS_BYTES = 1 << 16
"""So much of a body is taken without a look at all others, where the caller is not known yet."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a body, as errors name it."""

    name: str
    is_known: bool = True


class BodyLimit:
    """Middleware that bounds the bytes of one body, and of all of a sender.

    None is read beyond `limit_bytes`. `sender` tells whose a request is; `refuse` answers one that announces too much.
    For one event loop.
    """

    def __init__(
        self, app: ASGIApp, limit_bytes: int, sender: Callable[[Scope], Sender], refuse: Callable[[str], ASGIApp]
    ) -> None:
        self._app = app
        self._limit_bytes = limit_bytes
        self._sender = sender
        self._refuse = refuse
        self._held: Counter[str] = Counter()
        """Bytes of bodies by the name of their sender."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif announced_length(scope) > self._limit_bytes:
            await self._refuse(too_large(self._limit_bytes))(scope, receive, send)
        else:
            body = _HeldBody(self._held, self._limit_bytes, lambda: self._sender(scope))
            try:
                await self._app(scope, body.counting(counting(receive, self._limit_bytes)), send)
            finally:
                body.release()


class _HeldBody:
    """The body of one request under way, counted among all bodies that are `held`."""

    def __init__(self, held: Counter[str], limit_bytes: int, sender: Callable[[], Sender]) -> None:
        self._held = held
        self._limit_bytes = limit_bytes
        self._find_sender = sender
        self._sender = Sender("", is_known=False)
        self._bytes = 0

    def counting(self, receive: Receive) -> Receive:
        """Return `receive` with what it brings counted."""

        async def receive_counted() -> Message:
            message = await receive()
            if message.get("body"):
                self._add(len(message["body"]))
            return message

        return receive_counted

    def release(self) -> None:
        """Count the body no more: the request was answered."""
        if self._bytes:
            self._held[self._sender.name] -= self._bytes
            if not self._held[self._sender.name]:
                del self._held[self._sender.name]

    def _add(self, count: int) -> None:
        """Count bytes that came for their sender, who is known with the first of them.

        Raises HTTPException, which FastAPI leaves as it is: too much of one sender, or of all.
        """
        if not self._bytes:
            self._sender = self._find_sender()
        name = self._sender.name
        others = self._held[name] - self._bytes
        self._held[name] += count
        self._bytes += count
        small = SMALL_BODY_BYTES if self._sender.is_known else _OF_STRANGERS_BYTES
        if self._bytes <= small and others <= self._limit_bytes:
            return
        if self._held[name] > OF_ONE * self._limit_bytes:
            raise HTTPException(429, _refuse_crowd(f"requests of {name}", OF_ONE * self._limit_bytes))
        if self._held.total() > OF_ALL * self._limit_bytes:
            raise HTTPException(503, _refuse_crowd("requests", OF_ALL * self._limit_bytes))


def announced_length(scope: Scope) -> int:
    """Return how long a request says that its body is; 0 where it does not."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def counting(receive: Receive, limit_bytes: int) -> Receive:
    """Return `receive` for a body of at most `limit_bytes`.

    It raises HTTPException beyond them.
    """
    read = 0

    async def receive_counted() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > limit_bytes:
            raise HTTPException(413, too_large(limit_bytes))
        return message

    return receive_counted


def too_large(limit_bytes: int) -> str:
    """Return what is said of a body beyond a limit."""
    return f"the body is larger than {limit_bytes} bytes, which is the limit here"


def _refuse_crowd(whose: str, most: int) -> str:
    return f"{whose} that are under way bring {most} bytes already: wait for their answers"
