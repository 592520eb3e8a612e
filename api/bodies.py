"""Limit the bytes of a body, and of all bodies that are held at once.

The limits count what arrives, so a body without Content-Length is held to them as well; one that announces too much is
refused before any of it is read. Bodies are held until their requests are answered: those of one caller are at most
twice the largest body, all of them `OF_ALL` times.

A refused body took its time all the same. A large one is paid for (`pacing.py`): the next large body of its sender
waits. Where an answer goes out while much of its body is still to come, the connection ends, and the rest is not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from math import ceil

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.pacing import BODY_BYTES_A_SECOND, Account, Pace
from orchestrator.errors import TooOften

PRINCIPAL = "aclflow.principal"
"""Where a request's scope says who asks, once that is known."""
SMALL_BODY_BYTES = 1 << 20
OF_ONE, OF_ALL = 2, 16
"""How many of the largest bodies one caller's requests hold at once, and those of all."""
_OF_STRANGERS_BYTES = 1 << 16
"""So much of a body is taken without a look at all others, where the caller is not known yet."""
LARGE_BODY_BYTES = 1 << 16
"""A larger body is paid for where it is refused."""
UNREAD_BYTES = 1 << 19
"""So much of a body may be read after its answer."""


def address_of(scope: Scope) -> str:
    """Return the address that a request came from."""
    client = scope.get("client")
    return str(client[0]) if client else ""


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a body, as errors name it."""

    name: str
    is_known: bool = True


class BodyLimit:
    """Middleware that bounds the bytes of one body, and of all of a sender.

    None is read beyond `limit_bytes`. `sender` tells whose a request is; `refuse` answers one that announces too much;
    `pace` has the accounts of refused bodies. For one event loop.
    """

    def __init__(
        self,
        app: ASGIApp,
        limit_bytes: int,
        sender: Callable[[Scope], Sender],
        refuse: Callable[[str], ASGIApp],
        pace: Pace | None = None,
    ) -> None:
        self._app = app
        self._limit_bytes = limit_bytes
        self._sender = sender
        self._refuse = refuse
        self._pace = pace
        self._held: Counter[str] = Counter()
        """Bytes of bodies by the name of their sender."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif (announced := announced_length(scope)) > self._limit_bytes:
            await self._refuse(too_large(self._limit_bytes))(scope, receive, send)
        else:
            body = _HeldBody(self._held, self._limit_bytes, lambda: self._sender(scope), self._pace)
            try:
                received = body.counting(counting(receive, self._limit_bytes))
                await self._app(scope, received, body.noting(send, announced))
            finally:
                body.release()


class _HeldBody:
    """The body of one request under way, counted among all bodies that are `held`."""

    def __init__(self, held: Counter[str], limit_bytes: int, sender: Callable[[], Sender], pace: Pace | None) -> None:
        self._pace = pace
        self._account: Account | None = None
        """Where a refusal is counted, for a large body of a known sender."""
        self._status = 0
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
                await self._wait()
            return message

        return receive_counted

    def noting(self, send: Send, announced: int) -> Send:
        """Return `send`, which ends the connection where much of a body stays unread."""

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._status = message["status"]
                headers = message.get("headers", ())
                if announced - self._bytes > UNREAD_BYTES and not any(name == b"connection" for name, _ in headers):
                    message = {**message, "headers": [*headers, (b"connection", b"close")]}
            await send(message)

        return send_noted

    async def _wait(self) -> None:
        """Wait, once, for what refused bodies of the sender took.

        Raises HTTPException where that is long.
        """
        if self._pace is None or self._account is not None:
            return
        if self._sender.is_known and self._bytes > LARGE_BODY_BYTES:
            self._account = self._pace.account(f"refused bodies of {self._sender.name}")
            try:
                await self._account.rest()
            except TooOften as error:
                after_s = {"Retry-After": str(ceil(error.after_s or 1.0))}
                raise HTTPException(429, error.reason, after_s) from None

    def release(self) -> None:
        """Count the body no more: the request was answered."""
        if self._account is not None and HTTPStatus.BAD_REQUEST <= self._status < HTTPStatus.INTERNAL_SERVER_ERROR:
            self._account.spend(self._bytes / BODY_BYTES_A_SECOND)
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
            raise HTTPException(429, _describe_crowd(f"requests of {name}", OF_ONE * self._limit_bytes))
        if self._held.total() > OF_ALL * self._limit_bytes:
            raise HTTPException(503, _describe_crowd("requests", OF_ALL * self._limit_bytes))


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


def _describe_crowd(whose: str, most: int) -> str:
    """Return what is said where bodies that are under way are too large together."""
    return f"{whose} that are under way bring {most} bytes already: wait for their answers"
