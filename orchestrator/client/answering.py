"""Read HTTP answers with httptools, the parser of the service's requests.

It is strict: what is no HTTP, or does not come to its end, is broken and not guessed at.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from http.client import BadStatusLine, HTTPException, IncompleteRead, RemoteDisconnected

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

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
        """One more, as it came."""
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
        """All of the body."""
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
