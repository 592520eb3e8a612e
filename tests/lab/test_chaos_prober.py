"""The prober of a chaos run counts what it sent."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace

from orchestrator.lab.chaos.ledger import Ledger
from orchestrator.lab.chaos.prober import Prober, read_mark
from orchestrator.lab.chaos.world import FIRST, TENANTS, World

ROOM = 4096
"""Bytes of a queue's buffer: room for a few packets, for less than a batch."""


def test_packets_that_no_queue_takes_are_not_counted_as_sent() -> None:
    world = World(1)
    ends: dict[str, socket.socket] = {}

    def open_wire(name: str, _: object) -> socket.socket:
        end, ends[name] = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
        return end

    lab = SimpleNamespace(spec=world.spec, inside=open_wire)
    ledger = Ledger(world.permits(dict.fromkeys(TENANTS, FIRST)), 1)
    with Prober(lab, world, ledger) as prober:  # type: ignore[arg-type]
        until = time.monotonic() + 10
        while not prober.batches[ledger.moment] and time.monotonic() < until:
            time.sleep(0.01)
    assert prober.batches.total()
    assert prober.sent == sum(map(marked_packets, ends.values())) < len(world.kinds)


def marked_packets(end: socket.socket) -> int:
    """Take what waits at the other end of a wire; return how many packets with a mark."""
    end.setblocking(False)
    found = 0
    with end:
        while True:
            try:
                found += read_mark(end.recv(2048)) is not None
            except BlockingIOError:
                return found
