"""A download and idle connections in a lab, watched for pauses and losses.

Both ends are sockets of this process, made in the nodes' namespaces; threads send, receive and echo.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from orchestrator.errors import Unreachable
from orchestrator.lab.pop import Lab
from orchestrator.lab.sockets import address_of
from orchestrator.policy.addresses import Family, format_address

BYTES_PER_S = 20_000_000
_TICK_S = 0.005
_BEGINS_S = 10.0
_ANSWERS_S = 10.0
_MOST_PAUSES = 10_000
_LEAST_PAUSE_S = 0.01


class _Service:
    """A listener in a server's namespace, and connections to it from a client's."""

    def __init__(self, lab: Lab, client: str, server: str, port: int) -> None:
        self._lab = lab
        self._client = client
        self._source, to = (
            format_address(Family.IPV4, address_of(lab, node, Family.IPV4)) for node in (client, server)
        )
        self._target = to, port
        self._listener = lab.inside(server, lambda: socket.create_server(self._target, backlog=128))
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _connect(self) -> tuple[socket.socket, socket.socket]:
        """Return the ends of a new connection, the client's first. Raises Unreachable."""

        def connect_inside() -> socket.socket:
            return socket.create_connection(self._target, _BEGINS_S, (self._source, 0))

        try:
            near = self._lab.inside(self._client, connect_inside)
            self._sockets.append(near)
            far, _ = self._listener.accept()
        except OSError as error:
            raise Unreachable(f"{self._client} does not reach {self._target[0]}:{self._target[1]}: {error}") from None
        self._sockets.append(far)
        return near, far

    def _run_in_thread(self, work: Callable[[], None]) -> None:
        def run_until_closed() -> None:
            with suppress(OSError):  # a connection ended
                work()

        self._threads.append(threading.Thread(target=run_until_closed, daemon=True))
        self._threads[-1].start()


class Download(_Service):
    """A transfer of `BYTES_PER_S` to a client, until it is left."""

    def __init__(self, lab: Lab, client: str, server: str, port: int) -> None:
        super().__init__(lab, client, server, port)
        self.received = 0
        self._last = time.monotonic()
        self._pauses: deque[tuple[float, float]] = deque(maxlen=_MOST_PAUSES)

    def __enter__(self) -> Self:
        near, far = self._connect()
        self._last = time.monotonic()
        self._run_in_thread(lambda: self._send_bytes(far))
        self._run_in_thread(lambda: self._receive_bytes(near))
        return self

    def paused_since(self, moment: float) -> float:
        """Return the longest pause, in seconds, since a moment (monotonic seconds)."""
        pauses = (*self._pauses, (self._last, time.monotonic()))
        return max((until - max(since, moment) for since, until in pauses if until > moment), default=0.0)

    def _send_bytes(self, link: socket.socket) -> None:
        link.settimeout(None)
        chunk = bytes(int(BYTES_PER_S * _TICK_S))
        while not self._ended.wait(_TICK_S):
            link.sendall(chunk)

    def _receive_bytes(self, link: socket.socket) -> None:
        link.settimeout(None)
        while got := len(link.recv(1 << 20)):
            now = time.monotonic()
            if now - self._last >= _LEAST_PAUSE_S:
                self._pauses.append((self._last, now))
            self._last = now
            self.received += got


class Echoes(_Service):
    """Connections that are open and idle; each is asked for an echo when somebody counts."""

    def __init__(self, lab: Lab, client: str, server: str, port: int) -> None:
        super().__init__(lab, client, server, port)
        self._near: list[socket.socket] = []

    @property
    def count(self) -> int:
        """How many were opened."""
        return len(self._near)

    def open(self, count: int) -> None:
        """Open so many. Raises Unreachable."""
        fars = []
        for _ in range(count):
            near, far = self._connect()
            self._near.append(near)
            fars.append(far)
        self._run_in_thread(lambda: self._echo_bytes(fars))

    def count_alive(self) -> int:
        """Return how many echo a byte, within ten seconds for all."""
        alive = 0
        until = time.monotonic() + _ANSWERS_S
        for each in self._near:
            with suppress(OSError):
                each.sendall(b"?")
        for each in self._near:
            each.settimeout(max(until - time.monotonic(), 0.01))
            with suppress(OSError):
                alive += each.recv(1) == b"?"
        return alive

    def _echo_bytes(self, fars: list[socket.socket]) -> None:
        with selectors.DefaultSelector() as selector:
            for each in fars:
                selector.register(each, selectors.EVENT_READ)
            while not self._ended.is_set():
                for key, _ in selector.select(0.2):
                    link = key.fileobj
                    assert isinstance(link, socket.socket)
                    if asked := link.recv(16):
                        link.sendall(asked)
                    else:
                        selector.unregister(link)
