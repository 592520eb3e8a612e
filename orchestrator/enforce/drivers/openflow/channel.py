"""The boundary between OpenFlow driver and connection: raw messages out, raw answers back.

The driver says what to write and what the answer meant; a channel says how bytes travel. One channel is one live
connection to one switch, after hello and features. It knows no OpenFlow beyond the eight header bytes:

    0        1        2                 4                                   8
    | version|  type  |     length      |                xid                |

An *exchange* is a run of whole messages whose xids were reserved together and whose last message is a barrier request.
Every message from the switch that carries one of those xids belongs to it (replies, parts of multipart replies,
errors), in order of arrival, and it is over when the barrier's own answer has come. `Channel.begin` starts one, so that
one thread may have exchanges under way with several switches; `Channel.exchange` waits for it at once.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from orchestrator.errors import Unreachable

HEADER = struct.Struct("!BBHI")
"""Version, type, length of the whole message, xid."""

ERROR = 1
BARRIER_REPLY = 21

AT_ONCE_BYTES = 1 << 15
"""The bytes that a connection takes at once, whether or not the switch reads."""

MOST_BYTES = 1 << 30
"""More than a switch answers: a flow is told in about 200 bytes, and a program has some million flows at the most."""

MOST_BYTES_TOGETHER = 2 << 30
"""The bytes that exchanges of all connections keep before those end that keep more than their part."""

FIRST_XID = 0x40000000
LAST_XID = 0x7FFFFFFF
"""Exchanges number their messages in this range; the library beneath numbers its own (echo, hello) elsewhere or
happens to meet it, which is why only a barrier's answer or an error can end an exchange."""

Pump = Callable[[float], bool]
"""Reads for so many seconds at most and delivers what comes. False: somebody else will, or the connection has ended."""


class Channel(Protocol):
    """One connection to one switch. Safe to use from several threads; exchanges may overlap."""

    @property
    def datapath_id(self) -> int:
        """The switch's 64-bit name, from its features reply."""
        ...

    @property
    def hosts(self) -> frozenset[str] | None:
        """The hosts that its certificate names as the switch's.

        None where it was not asked for one.
        """
        ...

    @property
    def address(self) -> str:
        """The address that the switch's connection comes from."""
        ...

    @property
    def ports(self) -> Mapping[str, int]:
        """Interface name -> OpenFlow port number, as last reported.

        Replaced as a whole whenever a port changes.
        """
        ...

    @property
    def down_ports(self) -> frozenset[str]:
        """The interfaces that the switch finds down, by their link or by BFD."""
        ...

    @property
    def closed(self) -> bool:
        """True once the connection is gone.

        It never comes back; a new connection is a new channel.
        """
        ...

    def reserve(self, count: int) -> range:
        """Take `count` consecutive xids that no other exchange uses at the same time."""
        ...

    def begin(self, messages: bytes, xids: range, *, timeout_s: float) -> AbstractContextManager[Exchange]:
        """Write whole messages numbered within `xids`, the last one a barrier request numbered `xids[-1]`.

        Within the block the exchange can be waited for. Raises Unreachable when the connection is closed.
        """
        ...

    def exchange(self, messages: bytes, xids: range, *, timeout_s: float) -> list[bytes]:
        """Send messages; return all that answers them, the barrier's reply included.

        Raises Unreachable when the connection closes or the barrier is not answered in time; what the switch did by
        then is unknown.
        """
        ...

    def exchange_parts(self, parts: Iterable[bytes], xids: range, *, timeout_s: float) -> list[bytes]:
        """Exchange in parts, each some whole messages, written as they come."""
        ...


class AnswerMemory:
    """Counts the bytes that exchanges of all connections keep. Safe to use from several threads.

    Where it is too much, an exchange that keeps more than an equal part is refused more, and others are not: so no
    switch takes the memory, and none keeps others from being answered.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exchanges = 0
        self._bytes = 0

    def begin(self) -> None:
        """Count an exchange."""
        with self._lock:
            self._exchanges += 1

    def end(self) -> None:
        """Count an exchange no more."""
        with self._lock:
            self._exchanges -= 1

    def take(self, more: int, own: int) -> bool:
        """Count more bytes of an exchange, `own` in all, if it may keep them."""
        with self._lock:
            if self._bytes + more > MOST_BYTES_TOGETHER and own * self._exchanges > MOST_BYTES_TOGETHER:
                return False
            self._bytes += more
            return True

    def give_back(self, count: int) -> None:
        """Count bytes no more."""
        with self._lock:
            self._bytes -= count


class Exchange:
    """An exchange under way, which has until `deadline` (of `time.monotonic`)."""

    __slots__ = (
        "_bytes", "_datapath_id", "_deadline", "_is_too_much", "_memory", "_messages", "_over", "_pump", "_timeout_s",
        "xids",
    )  # fmt: skip

    def __init__(
        self, datapath_id: int, xids: range, timeout_s: float, pump: Pump | None, memory: AnswerMemory | None = None
    ) -> None:
        self._memory = memory or AnswerMemory()
        self._is_too_much = False
        self._datapath_id = datapath_id
        self._pump = pump
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._messages: list[bytes] = []
        self._bytes = 0
        self._over = threading.Event()
        self.xids = xids

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a limited time.

        Returns whether there is nothing more to wait for: it is over, or its time is.
        """
        until = self._deadline if timeout_s is None else min(self._deadline, time.monotonic() + timeout_s)
        while not self._over.is_set() and (left := until - time.monotonic()) > 0:
            if self._pump is None or not self._pump(left):
                self._over.wait(left)
        return self._over.is_set() or time.monotonic() >= self._deadline

    def answers(self) -> list[bytes]:
        """Every message that answered. Raises Unreachable unless the barrier was among them."""
        if self._is_complete():
            return self._messages
        if self._is_too_much:
            raise Unreachable(
                f"switch {self._datapath_id:016x} answers with more than {MOST_BYTES} bytes, or than its part of "
                f"{MOST_BYTES_TOGETHER} while others answer"
            )
        if self._over.is_set():
            raise Unreachable(f"the connection to switch {self._datapath_id:016x} is closed")
        raise Unreachable(f"switch {self._datapath_id:016x} did not answer within {self._timeout_s:g} s")

    def take(self, message: bytes) -> None:
        """Take one answer.

        Where they are too much, none is kept and there is nothing more to wait for.
        """
        if self._is_too_much:
            return
        more, own = len(message), self._bytes + len(message)
        if own > MOST_BYTES or not self._memory.take(more, own):
            self._is_too_much = True
            self._messages.clear()
            self.forget()
            self._over.set()
            return
        self._bytes = own
        self._messages.append(message)
        if self._is_complete():
            self._over.set()

    def forget(self) -> None:
        """Give back what was counted for it."""
        self._memory.give_back(self._bytes)
        self._bytes = 0

    def end(self) -> None:
        """Note that no more answers come."""
        self._over.set()

    def _is_complete(self) -> bool:
        """Whether the barrier was answered, be it just before the connection closed."""
        if not self._messages:
            return False
        _, kind, _, xid = HEADER.unpack_from(self._messages[-1])
        return bool(xid == self.xids[-1] and kind in (BARRIER_REPLY, ERROR))


class StreamChannel:
    """A channel over anything that writes bytes; its owner delivers each message.

    `send` writes all bytes in order, may block, and raises OSError when the connection is gone. The owner calls
    `deliver` from its reading thread (never from within `send` while holding a lock of its own), `set_ports` when
    ports are reported, and `close` at the end. `reading`, where there is one, lets who waits for an answer read in the
    owner's place: see `stream.SharedStream`. `hosts` are those that the switch has proven to be of. `memory` is shared
    by the connections of a process.
    """

    def __init__(
        self,
        datapath_id: int,
        ports: Mapping[str, int],
        send: Callable[[bytes], None],
        reading: Callable[[], AbstractContextManager[Pump | None]] = nullcontext,
        *,
        hosts: frozenset[str] | None = None,
        address: str = "",
        down_ports: frozenset[str] = frozenset(),
        memory: AnswerMemory | None = None,
    ) -> None:
        self._memory = memory or AnswerMemory()
        self._datapath_id = datapath_id
        self._hosts = hosts
        self._address = address
        self._ports = dict(ports)
        self._down_ports = down_ports
        self._send = send
        self._reading = reading
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._next = FIRST_XID
        self._waiting: list[Exchange] = []
        self._closed = False

    @property
    def datapath_id(self) -> int:
        return self._datapath_id

    @property
    def hosts(self) -> frozenset[str] | None:
        return self._hosts

    @property
    def address(self) -> str:
        return self._address

    @property
    def ports(self) -> Mapping[str, int]:
        return self._ports

    def set_ports(self, ports: Mapping[str, int]) -> None:
        """Put a new port map in place of the old one."""
        self._ports = dict(ports)

    @property
    def down_ports(self) -> frozenset[str]:
        return self._down_ports

    def set_down_ports(self, names: frozenset[str]) -> None:
        """Put other interfaces in place of those that were down."""
        self._down_ports = names

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End every exchange under way as Unreachable. May be called twice."""
        with self._lock:
            self._closed = True
            for waiting in self._waiting:
                waiting.end()

    def reserve(self, count: int) -> range:
        with self._lock:
            if self._next + count > LAST_XID:
                self._next = FIRST_XID
            first = self._next
            self._next += count
        return range(first, first + count)

    def deliver(self, message: bytes) -> bool:
        """Deliver one whole message of the switch; return whether an exchange waited for it."""
        xid = HEADER.unpack_from(message)[3]
        with self._lock:
            waiting = next((each for each in self._waiting if xid in each.xids), None)
            if waiting is None:
                return False
            waiting.take(message)
        return True

    @contextmanager
    def begin(self, messages: bytes, xids: range, *, timeout_s: float) -> Iterator[Exchange]:
        # While much is written somebody else must read, or a switch that answers meanwhile stands still, and so do we.
        with (
            self._reading() if len(messages) <= AT_ONCE_BYTES else nullcontext() as pump,
            self._begin_exchange(Exchange(self._datapath_id, xids, timeout_s, pump, self._memory)) as exchange,
        ):
            self._write((messages,))
            yield exchange

    def exchange(self, messages: bytes, xids: range, *, timeout_s: float) -> list[bytes]:
        with self.begin(messages, xids, timeout_s=timeout_s) as exchange:
            exchange.wait()
            return exchange.answers()

    def exchange_parts(self, parts: Iterable[bytes], xids: range, *, timeout_s: float) -> list[bytes]:
        with self._begin_exchange(Exchange(self._datapath_id, xids, timeout_s, None, self._memory)) as exchange:
            self._write(parts)
            exchange.wait()
            return exchange.answers()

    @contextmanager
    def _begin_exchange(self, exchange: Exchange) -> Iterator[Exchange]:
        """Have what answers an exchange delivered to it. Raises Unreachable."""
        with self._lock:
            if self._closed:
                raise Unreachable(f"the connection to switch {self._datapath_id:016x} is closed")
            self._waiting.append(exchange)
            self._memory.begin()
        try:
            yield exchange
        finally:
            with self._lock:
                self._waiting.remove(exchange)
            exchange.forget()
            self._memory.end()

    def _write(self, parts: Iterable[bytes]) -> None:
        try:
            with self._writing:
                for part in parts:
                    self._send(part)
        except OSError as error:
            self.close()
            raise Unreachable(f"switch {self._datapath_id:016x} is gone: {error}") from error
