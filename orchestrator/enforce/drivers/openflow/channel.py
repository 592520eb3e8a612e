"""The boundary between the OpenFlow driver and whatever holds the connection: raw messages out, raw answers back.

The driver says what to write and what the answer meant; a channel says how bytes travel. One channel is one live
connection to one switch, after hello and features. It knows no OpenFlow beyond the eight header octets:

    0        1        2                 4                                   8
    | version|  type  |     length      |                xid                |

An *exchange* is a run of whole messages whose xids were reserved together and whose last message is a barrier request.
Every message from the switch that carries one of those xids belongs to it (replies, parts of multipart replies,
errors), in order of arrival, and it is over when the barrier's own answer has come.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.errors import Unreachable

HEADER = struct.Struct("!BBHI")
"""Version, type, length of the whole message, xid."""

ERROR = 1
BARRIER_REPLY = 21

FIRST_XID = 0x40000000
LAST_XID = 0x7FFFFFFF
"""Exchanges number their messages in this range; the library beneath numbers its own (echo, hello) elsewhere or
happens to meet it, which is why only a barrier's answer or an error can end an exchange."""


class Channel(Protocol):
    """One connection to one switch. Safe to use from several threads; exchanges may overlap."""

    @property
    def datapath_id(self) -> int:
        """The switch's 64-bit name, from its features reply."""
        ...

    @property
    def ports(self) -> Mapping[str, int]:
        """Interface name -> OpenFlow port number, as last reported. Replaced as a whole whenever a port changes."""
        ...

    @property
    def closed(self) -> bool:
        """True once the connection is gone; it never comes back, a new connection is a new channel."""
        ...

    def reserve(self, count: int) -> range:
        """Take `count` consecutive xids that no other exchange of this channel uses at the same time."""
        ...

    def exchange(self, messages: bytes, xids: range, *, timeout_s: float) -> list[bytes]:
        """Write whole messages numbered within `xids`, the last one a barrier request numbered `xids[-1]`.

        Returns every message that answers them, the barrier's reply included. Raises Unreachable when the connection
        closes or the barrier is not answered in time; what the switch did by then is unknown.
        """
        ...


@dataclass(slots=True)
class _Waiting:
    """An exchange under way."""

    xids: range
    answers: list[bytes] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)


class StreamChannel:
    """A channel over anything that can write bytes; its owner hands in each message that arrives.

    `send` writes all bytes in order, may block, and raises OSError when the connection is gone. The owner calls
    `deliver` from its reading thread (never from within `send` while holding a lock of its own), `set_ports` when
    ports are reported, and `close` at the end.
    """

    def __init__(self, datapath_id: int, ports: Mapping[str, int], send: Callable[[bytes], None]) -> None:
        self._datapath_id = datapath_id
        self._ports = dict(ports)
        self._send = send
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._next = FIRST_XID
        self._waiting: list[_Waiting] = []
        self._closed = False

    @property
    def datapath_id(self) -> int:
        return self._datapath_id

    @property
    def ports(self) -> Mapping[str, int]:
        return self._ports

    def set_ports(self, ports: Mapping[str, int]) -> None:
        """Put a new port map in place of the old one."""
        self._ports = dict(ports)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """The connection is gone: every exchange under way ends as Unreachable. May be called twice."""
        with self._lock:
            self._closed = True
            for waiting in self._waiting:
                waiting.over.set()

    def reserve(self, count: int) -> range:
        with self._lock:
            if self._next + count > LAST_XID:
                self._next = FIRST_XID
            first = self._next
            self._next += count
        return range(first, first + count)

    def deliver(self, message: bytes) -> bool:
        """Hand in one whole message from the switch. Returns whether an exchange was waiting for it."""
        _, kind, _, xid = HEADER.unpack_from(message)
        with self._lock:
            waiting = next((each for each in self._waiting if xid in each.xids), None)
            if waiting is None:
                return False
            waiting.answers.append(message)
            if xid == waiting.xids[-1] and kind in (BARRIER_REPLY, ERROR):
                waiting.over.set()
        return True

    def exchange(self, messages: bytes, xids: range, *, timeout_s: float) -> list[bytes]:
        waiting = _Waiting(xids)
        with self._lock:
            self._refuse_when_closed()
            self._waiting.append(waiting)
        try:
            self._write(messages)
            if not waiting.over.wait(timeout_s):
                raise Unreachable(f"switch {self._datapath_id:016x} did not answer within {timeout_s:g} s")
            if not self._ended(waiting):
                self._refuse_when_closed()
            return waiting.answers
        finally:
            with self._lock:
                self._waiting.remove(waiting)

    def _write(self, messages: bytes) -> None:
        try:
            with self._writing:
                self._send(messages)
        except OSError as error:
            self.close()
            raise Unreachable(f"switch {self._datapath_id:016x} is gone: {error}") from error

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise Unreachable(f"the connection to switch {self._datapath_id:016x} is closed")

    @staticmethod
    def _ended(waiting: _Waiting) -> bool:
        """Whether the barrier was answered, be it just before the connection closed."""
        if not waiting.answers:
            return False
        _, kind, _, xid = HEADER.unpack_from(waiting.answers[-1])
        return bool(xid == waiting.xids[-1] and kind in (BARRIER_REPLY, ERROR))
