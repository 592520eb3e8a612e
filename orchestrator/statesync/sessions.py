"""Sessions between members over TCP: mutual proof of the key, bulk entries, reports.

    follower                                  followed
    nonce ──────────────────────────────────▶
    ◀────────────────────────────────── nonce
    hello (who, sequences) ─────────────────▶ believes the follower's messages above its sequences
    ◀──────────────────── hello (who, sequences)
    again: yes ─────────────────────────────▶ begins to send messages to the follower, which believes them by now
    ◀─────────────── floor (messages above it follow), entries ..., whole (how many)
    ◀──────────────────────────────── report
    again: no, or yes where messages were lost ▶ report, and so on, several times a second

Each frame carries a keyed BLAKE2s MAC under a key of this session, of both nonces, and is numbered; so frames of
another session, or in another order, are refused. Messages between the programs have SipHash instead, which the
kernel can do.

A side that waits sends empty frames (PING), which the other machine's kernel acknowledges even where its process gets
no processor time. A session ends when nothing is acknowledged for `silent_s`, when the other process ends, or by a
frame that is not the member's. A process that is merely slow stays in its session: its program goes on storing. Until
a first frame has proven the key the other side may be anybody: the session ends after `PROVEN_WITHIN_S`.

Of connections to a member's port that have not proven the key there are few (`Door`):

    connection ─▶ from a member's address? ─▶ at most `MOST_OF_AN_ADDRESS` unproven ones ─▶ proven: a session
                      │ no: closed                │ one more: the oldest is closed
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from orchestrator.errors import Forbidden, Unreachable
from orchestrator.statesync.layout import ENTRY_BYTES
from orchestrator.statesync.messages import VERSION

NONCE_BYTES = 16
_MAC_BYTES = 16
_HEAD = struct.Struct("<IB")
FRAME_MOST, _FIRST_MOST = 1 << 20, 1 << 12
"""Bytes of a frame, and of the first one, which is read before its sender is known."""
PROVEN_WITHIN_S = 10.0
"""So long the other side of a session has to prove the key."""
JSON, ENTRIES, PING = 0, 1, 2
_AT_ONCE = 1000
"""Entries in a frame."""
_PINGS = 5
"""So often a side that waits says that it is there, in the time after which a silent machine is left."""


@dataclass(frozen=True, slots=True)
class Following:
    """A followed member.

    `lag` counts messages of theirs that have not come (yet).
    """

    is_whole: bool = False
    taken: int = 0
    lag: int = 0
    seen_s: float = 0.0


@dataclass(slots=True)
class Session:
    """One side of a TCP connection between two members that have proven the key.

    `is_follower` tells the two sides' frames apart, so that none can be sent back to its sender.
    """

    connection: socket.socket
    key: bytes
    is_follower: bool
    sent: int = 0
    received: int = 0
    until_s: float = 0.0
    """When it ends, unless a frame has proven the key by then."""

    @classmethod
    def begin(cls, connection: socket.socket, secret: bytes, *, is_follower: bool, silent_s: float) -> Session:
        """Exchange nonces, within `silent_s`. Raises Unreachable. The key is proven by the first frame."""
        until_s = time.monotonic() + PROVEN_WITHIN_S
        mine = os.urandom(NONCE_BYTES)
        try:
            connection.settimeout(silent_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silent_s * 1000))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(mine)
            theirs = _read_exactly(connection.recv, NONCE_BYTES)
            connection.settimeout(silent_s / _PINGS)
        except OSError as error:
            raise Unreachable(f"a member does not answer: {error}") from None
        both = mine + theirs if is_follower else theirs + mine
        key = hashlib.blake2s(both, key=secret, person=b"statesyn").digest()
        return cls(connection, key, is_follower, until_s=until_s)

    def send(self, kind: int, payload: bytes) -> None:
        """Send a frame. Raises Unreachable."""
        head = _HEAD.pack(len(payload), kind)
        mac = self._mac(self.is_follower, self.sent, head + payload)
        self.sent += 1
        left = memoryview(head + payload + mac)
        try:
            while left:
                with suppress(TimeoutError):  # the kernel ends the connection where the other machine is silent
                    left = left[self.connection.send(left) :]
        except OSError as error:
            raise Unreachable(f"a member does not answer: {error}") from None

    def receive(self) -> tuple[int, bytes]:
        """Return the next frame's kind and payload.

        Waits for as long as the other machine acknowledges. Raises Unreachable, and Forbidden for a frame that is not
        the member's.
        """
        kind, payload = PING, b""
        while kind == PING:
            kind, payload = self._next()
        return kind, payload

    def _next(self) -> tuple[int, bytes]:
        """Receive a frame. Raises Unreachable, or Forbidden where its MAC is another key's."""
        try:
            head = self._read(_HEAD.size)
            length, kind = _HEAD.unpack(head)
            if length > (FRAME_MOST if self.received else _FIRST_MOST):
                raise Forbidden(f"a member sends a frame of {length} bytes")
            payload = self._read(length)
            mac = self._read(_MAC_BYTES)
        except OSError as error:
            raise Unreachable(f"a member does not answer: {error}") from None
        if not hmac.compare_digest(mac, self._mac(not self.is_follower, self.received, head + payload)):
            raise Forbidden("a frame between members has another key's MAC")
        self.received += 1
        return kind, payload

    def say(self, **document: Any) -> None:
        """Send a document."""
        self.send(JSON, json.dumps(document).encode())

    def hear(self) -> dict[str, Any]:
        """The next frame, which must be a document. Raises what `receive` raises."""
        kind, payload = self.receive()
        return read_document(kind, payload)

    def give(self, entries: Sequence[bytes]) -> None:
        """Send entries, each of `ENTRY_BYTES`, and say how many they were. Raises Unreachable."""
        for at in range(0, len(entries), _AT_ONCE):
            self.send(ENTRIES, b"".join(entries[at : at + _AT_ONCE]))
        self.say(whole=len(entries))

    def take(self) -> Iterator[bytes]:
        """Yield entries until the other side says that these were all.

        Raises what `receive` raises, and Forbidden where it says another number.
        """
        taken = 0
        kind, payload = self.receive()
        while kind == ENTRIES:
            for at in range(0, len(payload), ENTRY_BYTES):
                yield payload[at : at + ENTRY_BYTES]
                taken += 1
            kind, payload = self.receive()
        whole = int(read_document(kind, payload)["whole"])
        if whole != taken:
            raise Forbidden(f"a member sent {taken} entries and says that they were {whole}")

    def end(self) -> None:
        """End it, from any thread: whoever waits in it gets Unreachable."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _read(self, count: int) -> bytes:
        return _read_exactly(self._receive, count)

    def _receive(self, most: int) -> bytes:
        """Wait for bytes; send the other side a PING whenever none came for a while."""
        while True:
            if not self.received and time.monotonic() > self.until_s:
                raise TimeoutError("it does not prove the key")
            try:
                return self.connection.recv(most)
            except TimeoutError:
                self.send(PING, b"")

    def _mac(self, is_follower: bool, number: int, content: bytes) -> bytes:
        """Return the MAC of a frame, by its direction and number."""
        label = struct.pack("<?Q", is_follower, number)
        return hashlib.blake2s(label + content, key=self.key, digest_size=_MAC_BYTES).digest()


def read_document(kind: int, payload: bytes) -> dict[str, Any]:
    """The document in a frame. Raises Forbidden for what is none."""
    try:
        found = json.loads(payload) if kind == JSON else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Forbidden("a member sends a frame that is no document")
    return found


def check_version(number: int, hello: Mapping[str, Any]) -> None:
    """Refuse a member whose messages this one does not understand. Raises Forbidden."""
    if hello.get("version") != VERSION:
        raise Forbidden(f"member {number} speaks version {hello.get('version')} of messages, this one {VERSION}")


def _read_exactly(receive: Callable[[int], bytes], count: int) -> bytes:
    """Return so many bytes of a receiver that gives some of them at a time."""
    parts = bytearray()
    while len(parts) < count:
        part = receive(count - len(parts))
        if not part:
            raise ConnectionError("it has closed the connection")
        parts += part
    return bytes(parts)


log = structlog.get_logger()

MOST_OF_AN_ADDRESS = 8
_WAIT_S = 0.2


class Door:
    """Listens at one address.

    One thread calls `admit`; any thread may call `forget`, for each connection once it is proven or over.
    """

    def __init__(self, address: str, port: int, is_member: Callable[[str], bool]) -> None:
        self._listener = socket.create_server((address, port))
        self._listener.settimeout(_WAIT_S)
        self._is_member = is_member
        self._lock = threading.Lock()
        self._unproven: dict[socket.socket, str] = {}
        """By age; the addresses that they come from."""
        self._is_shut = False

    def admit(self) -> socket.socket | None:
        """Return a connection from a member's address, or None if none came for a moment."""
        try:
            connection, (address, *_) = self._listener.accept()
        except TimeoutError:
            return None
        except OSError as error:  # this process has no file descriptors left, say
            log.warning("statesync.cannot_accept", error=str(error))
            time.sleep(_WAIT_S)
            return None
        with self._lock:
            if self._is_shut or not self._is_member(address):
                connection.close()
                return None
            before = [each for each, of in self._unproven.items() if of == address]
            if len(before) >= MOST_OF_AN_ADDRESS:
                del self._unproven[before[0]]
                _end(before[0])
            self._unproven[connection] = address
        return connection

    def forget(self, connection: socket.socket) -> None:
        """Count a connection no more: it has proven the key, or is over."""
        with self._lock:
            self._unproven.pop(connection, None)

    def shut(self) -> None:
        """Admit nobody any more, and end connections that have not proven the key."""
        with self._lock:
            self._is_shut = True
            for connection in self._unproven:
                _end(connection)

    def close(self) -> None:
        """Free the port, once nobody calls `admit` any more."""
        self._listener.close()


def _end(connection: socket.socket) -> None:
    """End a connection that another thread reads: it finds that it is closed."""
    with suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)
