"""The TCP port of a member: connections that have not proven the key are few.

    connection ─▶ from a member's address? ─▶ at most `MOST_OF_AN_ADDRESS` unproven ones ─▶ proven: a session
                      │ no: closed                │ one more: the oldest is closed

How long one may take to prove the key is the session's to say.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

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
