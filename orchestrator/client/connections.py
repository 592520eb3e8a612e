"""Connections to one service: HTTP/1.1, each kept open and used again.

A change is answered within milliseconds, so what a request costs its caller counts: `http.client` makes connections
and httptools, the parser of the service's requests, reads what comes over them. It is strict: what is no HTTP, or does
not come to its end, is broken and not guessed at. It speaks to the service directly, follows no redirections and asks
for no compression. A connection serves one request at a time; who asks takes one that is idle, or makes one. One that
the other side has closed meanwhile is not used again.
"""

from __future__ import annotations

import re
import select
import socket
import ssl
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from http.client import (
    BadStatusLine,
    HTTPConnection,
    HTTPException,
    HTTPSConnection,
    IncompleteRead,
    RemoteDisconnected,
)
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from orchestrator.errors import BadInput
from orchestrator.identity.trust import client_context, is_loopback

_PIECE_BYTES = 1 << 16
_LONGEST_HEAD_BYTES = 1 << 18


class Headers(Mapping[str, str]):
    """By name, in letters of any size; of several of one name the first."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, name: bytes, value: bytes) -> None:
        """Add a header as it came; the first of a name counts."""
        self._values.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))


class Answering:
    """An answer whose head is there, and whose body is read as it comes.

    All that reads raises OSError, or HTTPException where what comes is no answer or not a whole one.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.status = 0
        self.headers = Headers()
        self.is_last = False
        """Whether the connection is good for no other request."""
        self._sock = sock
        self._parser = HttpResponseParser(self)
        self._body: list[bytes] = []
        self._has_begun = self._has_ended = False
        taken = 0
        while not self._has_begun:
            taken += self._take()
            if taken > _LONGEST_HEAD_BYTES:
                raise HTTPException("the answer's head does not end")

    def read(self) -> bytes:
        """Return the whole body."""
        while not self._has_ended:
            self._take()
        return b"".join(self._body)

    def read1(self, n: int) -> bytes:
        """Return the next at most `n` bytes of the body; nothing at the end."""
        while not self._body and not self._has_ended:
            self._take()
        body = b"".join(self._body)
        self._body = [body[n:]] if len(body) > n else []
        return body[:n]

    def _take(self) -> int:
        """Read what is there, as soon as there is something; how many bytes that was."""
        piece = self._sock.recv(_PIECE_BYTES)
        if not piece:
            self._hung_up()
            return 0
        try:
            self._parser.feed_data(piece)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self._has_ended:
                raise BadStatusLine(f"this is no answer in HTTP: {error}") from None
            self.is_last = True
        return len(piece)

    def _hung_up(self) -> None:
        """Handle a closed connection, which ends an answer without a length."""
        if not self._has_begun:
            raise RemoteDisconnected("Remote end closed connection without response")
        if "content-length" in self.headers or "transfer-encoding" in self.headers:
            raise IncompleteRead(b"".join(self._body))
        self._end()

    def _end(self) -> None:
        """Note that the answer has ended, and let go of its parser."""
        self._has_ended = True
        del self._parser  # it holds us as we hold it: only the garbage collector would find both

    # ------------------------------------------------------------------------------------------- called by the parser

    def on_message_begin(self) -> None:
        if self._has_ended:
            raise HTTPException("a second answer to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_begun:  # what comes behind the body is none
            self.headers.add(name, value)

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_begun = self.status >= 200
        self.is_last = not self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._has_begun:
            self._end()
        else:  # 100 Continue and its like: the answer itself is still to come
            self.headers = Headers()


BROKEN = (OSError, HTTPException)
"""The errors where nobody answers, or not in HTTP, or not to the end."""

_MOST_IDLE = 16
_SAYS_LENGTH = frozenset({"POST", "PUT", "PATCH"})
"""The methods that have a body, if an empty one."""
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that would end a line of a request's head, or stand in none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer."""

    status_code: int
    content: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name, in letters of any size."""
    url: str = ""


class Streamed(Protocol):
    """An answer of which the body is still coming."""

    status: int

    @property
    def headers(self) -> Mapping[str, str]:
        """By name, in letters of any size."""
        ...

    def read(self) -> bytes:
        """Return all that has not been read yet."""
        ...

    def read1(self, n: int) -> bytes:
        """Return the next at most `n` bytes; nothing at the end."""
        ...


class Connections:
    """The connections to one service, over TLS if its address says so.

    Safe to share between threads.

    Raises BadInput as `split_url`. All that ask raise one of `BROKEN`, and BadInput for a request that cannot be put
    into words.
    """

    def __init__(self, url: str, trust: ssl.SSLContext | None = None, *, plain_http: bool = False) -> None:
        parts = split_url(url, plain_http=plain_http)
        self._port = parts.port
        self._host = parts.hostname or ""
        self._prefix = parts.path.rstrip("/")
        self._trust = (trust or client_context(None)) if parts.scheme == "https" else None
        self.idle: deque[_Connection] = deque(maxlen=_MOST_IDLE)
        self.url = url

    def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        timeout_s: float,
        held_s: float,
    ) -> Answer:
        """Send a request and return the answer.

        `held_s` is how much longer than `timeout_s` that may take.
        """
        trust = self._trust
        connection = self._take_connection(timeout_s)
        try:
            response = connection.ask(method, self._prefix + target, headers, body, timeout_s + held_s)
            content = response.read()
        except BaseException:
            connection.close()
            raise
        if response.is_last or trust is not self._trust:
            connection.close()
        else:
            self.idle.append(connection)
        return Answer(response.status, content, response.headers, self.url + target)

    @contextmanager
    def stream(
        self, target: str, headers: Mapping[str, str], *, timeout_s: float, silence_s: float
    ) -> Iterator[Streamed]:
        """GET an endless stream, read by the block.

        It is broken when nothing comes for `silence_s`.
        """
        connection = self._take_connection(timeout_s)
        try:
            response = connection.ask("GET", self._prefix + target, headers, None, timeout_s)
            connection.patience(silence_s)
            yield response
        finally:
            connection.close()

    def reconnect(self, trust: ssl.SSLContext) -> None:
        """Make new connections by `trust` from now on; none of before is used again."""
        if self._trust is not None:
            self._trust = trust
        self.close()

    def close(self) -> None:
        """Give back those that are idle."""
        with suppress(IndexError):
            while True:
                self.idle.pop().close()

    def _take_connection(self, timeout_s: float) -> _Connection:
        """The connection used last, if it is good, else a new one."""
        with suppress(IndexError):
            while True:
                connection = self.idle.pop()
                if connection.is_quiet():
                    return connection
                connection.close()
        if self._trust is None:
            return _Plain(self._host, self._port, timeout=timeout_s)
        return _Tls(self._host, self._port, timeout=timeout_s, context=self._trust)


def leads_off_in_clear(parts: SplitResult) -> bool:
    """Whether what is sent to a URL leaves this machine without TLS."""
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def split_url(url: str, *, plain_http: bool) -> SplitResult:
    """Return the parts of a service's address.

    Raises BadInput for what is none, and for one without TLS that leads off this machine, unless `plain_http` permits
    it: who is asked there is sent a token.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadInput(f"'{url}' is not the URL of a service: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"'{url}' is not the URL of a service: it begins with http:// or https:// and names a host")
    if leads_off_in_clear(parts) and not plain_http:
        raise BadInput(
            f"at '{url}' tokens could be read on the way: give an address with https://, or, where nobody else can, "
            "say plain_http (ACLFLOW_PLAIN_HTTP=yes)",
            place="url",
        )
    return parts


class _Connection(HTTPConnection):
    """A connection that sends head and body in one piece.

    The other side then wakes up once.
    """

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, patience_s: float
    ) -> Answering:
        """Send a request; return the answer with its head.

        Raises BadInput for what HTTP cannot carry, else one of `BROKEN`.
        """
        try:
            head = _head(method, target, self._named, headers, body)
        except ValueError as error:  # a line break, or letters that HTTP does not have
            raise BadInput(f"this cannot be sent: {error}") from None
        if self.sock is None:
            self.connect()
        self.patience(patience_s)
        try:
            self.sock.sendall(head + (body or b""))
        except (ConnectionError, ssl.SSLEOFError):
            if not body:
                raise  # else it may have been refused before its end: the answer says why
        return Answering(self.sock)

    @cached_property
    def _named(self) -> str:
        """Whom requests are for, as the Host header has it."""
        host = self.host.partition("%")[0] if self.host.isascii() else self.host.encode("idna").decode()
        bracketed = f"[{host}]" if ":" in host else host
        return bracketed if self.port == self.default_port else f"{bracketed}:{self.port}"

    def patience(self, seconds: float) -> None:
        """Set the longest silence from now on, until the answer's end."""
        if self.sock is not None:
            self.sock.settimeout(seconds)

    def is_quiet(self) -> bool:
        """Whether nothing came since the last answer: what would come is the end."""
        if self.sock is None:
            return False
        waiting = select.poll()
        waiting.register(self.sock, select.POLLIN)
        return not waiting.poll(0)


class _Plain(_Connection):
    pass


class _Tls(_Connection, HTTPSConnection):
    pass


def _head(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return a request's head.

    Raises ValueError for what is no line of a head.
    """
    stated = {"Host": host, "Accept-Encoding": "identity", **headers}
    if body is not None or method in _SAYS_LENGTH:
        stated["Content-Length"] = str(len(body or b""))
    lines = [f"{method} {target} HTTP/1.1", *map(": ".join, stated.items())]
    if " " in target or not target.isascii() or _UNSENDABLE.search("".join(lines)):
        raise ValueError("an address or a header has characters that would be taken for something else")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
