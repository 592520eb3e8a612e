"""The byte stream to one switch: os-ken's socket, safe for several writers.

os-ken's own socket use has three faults that matter here. Two writers may interleave their bytes; a writer that waits
for a stuck switch is not woken when the connection is closed; and over TLS its reader and writer use one SSL object at
the same time, which OpenSSL does not allow. A `Stream` takes a socket's place: whole writes under a lock, in pieces
that each have the full time-out; `close` wakes everybody first; `TlsStream` never reads and writes at the same moment.

One thread reads (`serve`). A thread that waits for an answer may borrow its place (`SharedStream.borrow_reading`), so
that the answer comes to that thread and no other is woken.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from orchestrator.enforce.drivers.openflow import compat
from orchestrator.enforce.drivers.openflow.channel import Pump
from orchestrator.errors import BadInput
from orchestrator.identity.names import Subject, Usage

T = TypeVar("T")

PIECE_BYTES = 1 << 17
"""The most bytes of one write: a time-out covers a piece, not a whole bundle of megabytes."""

READ_BYTES = 1 << 18
"""The most bytes of one read."""

Take = Callable[[bytes], None]
"""Takes bytes that have arrived."""


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files for OpenFlow over TLS: key, certificate, and the switches' authority.

    With `domain` that authority is aclflow's own: a certificate must then be one of a switch of that domain, for it
    signs those of other machines too.
    """

    key: Path
    certificate: Path
    authority: Path
    domain: str | None = None


class Stream:
    """A connected TCP socket. Any thread may write; one thread reads."""

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self._socket = sock
        self._timeout_s = timeout_s
        self._writing = threading.Lock()
        self.heard = 0
        """How often the switch has said something."""
        self.unanswered_bytes = 0
        """The bytes written since the switch last confirmed that it was done; whoever hears that sets it to 0."""

    @property
    def certificate(self) -> Mapping[str, object]:
        """Return the switch's certificate (as `ssl` reads it); nothing without TLS."""
        return {}

    @property
    def certificate_pem(self) -> str:
        """Return the switch's certificate in PEM."""
        return ""

    def setsockopt(self, level: int, name: int, value: int) -> None:
        """Set an option of the socket."""
        self._socket.setsockopt(level, name, value)

    def settimeout(self, _timeout_s: float | None) -> None:
        """os-ken sets its own here; ours was given at birth."""
        self._socket.settimeout(self._timeout_s)

    def serve(self, take: Take) -> None:
        """Pass everything that arrives to `take` until the stream ends.

        Raises OSError.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                if not self._read(take):
                    return

    def borrow_reading(self, take: Take) -> AbstractContextManager[Pump | None]:  # noqa: ARG002 -- see SharedStream
        """Read in place of who serves, within the block; None where that cannot be."""
        return nullcontext()

    def sendall(self, data: bytes | memoryview) -> None:
        """Write all of it, uninterrupted by other writers.

        Raises OSError, and ends the stream, when that fails.
        """
        whole = memoryview(data)
        with self._writing:
            self.unanswered_bytes += len(whole)
            try:
                for start in range(0, len(whole), PIECE_BYTES):
                    self._send_piece(whole[start : start + PIECE_BYTES])
            except OSError:
                with contextlib.suppress(OSError):
                    self.shutdown(socket.SHUT_RDWR)  # half a message went out: nothing sensible can follow it
                raise

    def shutdown(self, how: int) -> None:
        """End the stream; whoever reads or writes is woken."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """Wake everybody, wait for a writer to leave, and give the descriptor back."""
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)
        with self._writing:
            self._socket.close()

    def _read(self, take: Take) -> bool:
        """Wait for what arrives and have it taken. False when the stream has ended."""
        data = self._receive(READ_BYTES)
        self.heard += 1
        if data:
            take(data)
        return bool(data)

    def _receive(self, size: int) -> bytes:
        """Receive up to so many bytes from the socket."""
        return self._socket.recv(size)

    def _send_piece(self, piece: memoryview) -> None:
        self._socket.sendall(piece)


class SharedStream(Stream):
    """A TCP socket whose reader changes.

    The serving thread sleeps on an epoll, from which the socket is taken out for as long as somebody else reads.
    """

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        super().__init__(sock, timeout_s)
        self.reading = threading.Lock()
        self._arrivals = select.epoll()
        self._arrivals.register(sock, select.EPOLLIN)

    def serve(self, take: Take) -> None:
        """Serve as `Stream.serve` does."""
        with self._arrivals:
            while True:
                ((_, events),) = self._arrivals.poll(maxevents=1)
                # A stream that ended must be seen to end; anything else may just have been borrowed, and then it rests.
                ended = events & (select.EPOLLHUP | select.EPOLLERR)
                if self.reading.acquire(blocking=bool(ended)):
                    try:
                        if not self._read_now(take):
                            return
                    finally:
                        self.reading.release()

    @contextmanager
    def borrow_reading(self, take: Take) -> Iterator[Pump | None]:
        """Lend reading; None while the serving thread is at work or the stream ended."""
        if not self.reading.acquire(blocking=False):
            yield None
            return
        waiter = select.poll()
        try:
            waiter.register(self._socket, select.POLLIN)
        except ValueError:  # closed by who served: nothing will come
            self.reading.release()
            yield None
            return
        self._rest(0)
        with ExitStack() as giving_back:
            giving_back.callback(self._rest, select.EPOLLIN)
            giving_back.callback(self.reading.release)

            def pump_once(timeout_s: float) -> bool:
                if not waiter.poll(timeout_s * 1000) or self._read_now(take):
                    return True
                giving_back.close()  # who serves has to see the end
                return False

            yield pump_once

    def _rest(self, events: int) -> None:
        """Set the events that wake the serving thread besides the stream's end."""
        with contextlib.suppress(OSError, ValueError):  # it has ended, and there is nobody to wake
            self._arrivals.modify(self._socket, events)

    def _read_now(self, take: Take) -> bool:
        """Have what is there taken. False when the stream has ended."""
        try:
            data = self._socket.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:  # reset by the other side, which is an end like others
            data = b""
        self.heard += 1
        if data:
            take(data)
        return bool(data)


class TlsStream(Stream):
    """A stream over TLS.

    The SSL object is only touched under a lock, and waiting happens outside of it.
    """

    def __init__(self, sock: ssl.SSLSocket, timeout_s: float) -> None:
        super().__init__(sock, timeout_s)
        self._tls = sock
        self._tls.setblocking(False)
        self._certificate = sock.getpeercert() or {}  # a closed socket would not say it any more
        self._pem = ssl.DER_cert_to_PEM_cert(sock.getpeercert(binary_form=True) or b"")
        self._touching = threading.Lock()

    @property
    def certificate(self) -> Mapping[str, object]:
        """Return the switch's certificate (as `ssl` reads it)."""
        return self._certificate

    @property
    def certificate_pem(self) -> str:
        """Return the switch's certificate in PEM."""
        return self._pem

    def settimeout(self, _timeout_s: float | None) -> None:
        """Do nothing: the socket never blocks, `_insist` counts the time."""

    def shutdown(self, how: int) -> None:
        """End the connection below TLS: `SSLSocket.shutdown` drops the SSL object while others still use it."""
        socket.socket.shutdown(self._tls, how)

    def _receive(self, size: int) -> bytes:
        """Receive up to so many bytes through TLS, within the time that is left."""
        return self._insist(lambda: self._tls.recv(size))

    def _send_piece(self, piece: memoryview) -> None:
        rest = piece
        while rest:
            sent = self._insist(functools.partial(self._tls.send, rest))
            rest = rest[sent:]

    def _insist(self, attempt: Callable[[], T]) -> T:
        """Retry an operation, waiting for the socket as TLS asks, until its time-out."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                with self._touching:
                    return attempt()
            except ssl.SSLWantReadError:
                wanted = select.POLLIN
            except ssl.SSLWantWriteError:
                wanted = select.POLLOUT
            self._wait_for_stream(wanted, deadline)

    def _wait_for_stream(self, wanted: int, deadline: float) -> None:
        waiter = select.poll()
        try:
            waiter.register(self._tls, wanted)
        except ValueError as error:
            raise OSError(errno.EBADF, "the stream is closed") from error
        if not waiter.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError("the switch neither takes nor gives data")


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Switches must show a certificate of our authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    context.load_verify_locations(tls.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def hosts_named(certificate: Mapping[str, object], domain: str) -> frozenset[str]:
    """Return the hosts of a domain whose switch a peer's certificate names.

    The certificate is as `ssl` reads it.

    Raises OSError for one of no switch there.
    """
    said = certificate.get("subjectAltName", ())
    try:
        bearers = [Subject.of_uri(value) for kind, value in said if kind == "URI"] if isinstance(said, tuple) else []
    except BadInput:
        bearers = []
    if not bearers:
        raise OSError("its certificate does not say which machine it is")
    for each in bearers:
        if each.usage is not Usage.SWITCH or each.domain != domain:
            raise OSError(f"its certificate is of {each.common_name}, not of a switch of {domain}")
    return frozenset(each.name for each in bearers)


def serial_of(certificate: Mapping[str, object]) -> str | None:
    """The serial of a peer's certificate (as `ssl` reads it), as the authority writes it."""
    said = certificate.get("serialNumber")
    return f"{int(said, 16):040x}" if isinstance(said, str) else None


def _shake_hands(sock: socket.socket, context: ssl.SSLContext, taken: Callable[[socket.socket], None]) -> ssl.SSLSocket:
    """The connection over TLS, after the handshake. Raises OSError, and closes it, when that fails."""
    secured = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
    taken(secured)
    try:
        secured.do_handshake()
    except BaseException:
        secured.close()
        raise
    return secured


def open_stream(
    sock: socket.socket,
    context: ssl.SSLContext | None,
    timeout_s: float,
    taken: Callable[[socket.socket], None] = lambda _: None,
) -> Stream:
    """Take an accepted connection over, after TLS's handshake if used.

    Raises OSError when that fails.

    `taken` is given the socket that is in the place of the accepted one, before hands are shaken.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(timeout_s)
    secured = sock if context is None else _shake_hands(sock, context, taken)
    if not compat.NATIVE_THREADS:  # green threads take turns, and their sockets wait in a way of their own
        return Stream(secured, timeout_s)
    return TlsStream(secured, timeout_s) if isinstance(secured, ssl.SSLSocket) else SharedStream(secured, timeout_s)
