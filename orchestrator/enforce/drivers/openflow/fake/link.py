"""Connections to the fake switch: a channel in process, or TCP as a real switch."""

from __future__ import annotations

import contextlib
import socket
import threading

from orchestrator.enforce.drivers.openflow.channel import HEADER, StreamChannel
from orchestrator.enforce.drivers.openflow.fake.session import Session
from orchestrator.enforce.drivers.openflow.fake.switch import FakeSwitch


def channel_to(switch: FakeSwitch) -> StreamChannel:
    """Return a channel to the switch that answers every message synchronously."""

    def send(data: bytes) -> None:
        deliver(session.feed(data))

    def deliver(data: bytes) -> None:
        at = 0
        while at < len(data):
            length = HEADER.unpack_from(data, at)[2]
            channel.deliver(data[at : at + length])
            at += length

    channel = StreamChannel(switch.datapath_id, switch.ports, send)
    session = Session(switch, push=deliver)
    switch.port_watchers.append(lambda: channel.set_ports(switch.ports))
    return channel


class TcpLink:
    """The switch's end of a TCP connection to a controller, with its own thread."""

    def __init__(self, switch: FakeSwitch, address: tuple[str, int], *, timeout_s: float = 5.0) -> None:
        """Connect. Raises OSError if nobody listens at the address."""
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.settimeout(None)
        self._writing = threading.Lock()
        self._session = Session(switch, push=self._write)
        self._thread = threading.Thread(target=self._serve, name="fake-switch", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether the connection is still there."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Cut the connection, as when a switch dies."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            self._write(self._session.hello())
            while data := self._socket.recv(1 << 16):
                self._write(self._session.feed(data))
        self._session.close()
        self._socket.close()

    def _write(self, data: bytes) -> None:
        with self._writing:
            self._socket.sendall(data)
