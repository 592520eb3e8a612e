"""Frames are found among others that arrive all the time."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

from orchestrator.lab import specfile
from orchestrator.lab.pop import Lab
from orchestrator.lab.wire import Shot, Wire

SPEC = specfile.parse(
    """
    hosts: [{name: host1}]
    clients: [{name: outside, addresses: ["2001:db8::1"]}]
    tenants: [{id: shop, prefixes: ["2001:db8:100::/48"]}]
    endpoints: [{name: web, tenant: shop, host: host1, addresses: ["2001:db8:100::10"]}]
    """
)
NOISE = bytes(60)
ROUNDS = 12
"""How often noise comes before the frame does: more often than a volley asks before it waits for quiet."""


class NoisySocket:
    """What arrives at a node: a frame of somebody's each time that it is asked, and after a while what was sent."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.write(self._writing, b"x")  # there is always something to read
        self._asked = 0
        self.sent = b""

    def fileno(self) -> int:
        return self._reading

    def send(self, frame: bytes) -> int:
        self.sent = frame
        return len(frame)

    def recvfrom(self, _size: int) -> tuple[bytes, tuple[object, ...]]:
        self._asked += 1
        if self._asked % 2 == 0:
            raise BlockingIOError
        return self.sent if self._asked // 2 == ROUNDS else NOISE, ("eth0", 0, socket.PACKET_HOST)

    def close(self) -> None:
        for each in (self._reading, self._writing):
            os.close(each)


def test_a_frame_is_waited_for_however_much_else_arrives() -> None:
    def inside(_node: str, _call: Callable[[], socket.socket]) -> NoisySocket:
        return NoisySocket()

    with Wire(cast("Lab", SimpleNamespace(spec=SPEC, inside=inside)), ["outside"]) as wire:
        (landing,) = wire.fire([Shot("outside", lambda marker: bytes(14) + marker)])
    assert landing.nodes == ("outside",)
