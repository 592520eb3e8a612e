"""Single packets from outside, none of which is lost by haste.

The switch takes packets from a socket whose queue holds some hundreds. So they go in batches, and the next one waits
until the kernel's list of packet sockets says that the queue is empty.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TextIO

from orchestrator.bench.pop.edge import EdgeSwitch
from orchestrator.bench.pop.links import EDGE, EDGE_MAC, OUTSIDE, SENDER_MAC, Links
from orchestrator.bench.pop.world import ATTACKED_PORT, PERMITTED_PORT, Grid
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab.network import INTERFACE
from orchestrator.lab.processes import wait_until
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import UDP

_BATCH = 64
_POLL_S = 0.0005
_PATIENCE_S = 30.0
_UNTAKEN = "the edge has not taken what it was sent"
_QUEUED = 6
"""The column of /proc/net/packet that says how many bytes wait in a socket."""


def datagram(grid: Grid, destination: int, *, size: int = 18) -> bytes:
    """A frame from outside to the edge that nobody permits."""
    return _make_frame(grid, grid.stranger, destination, ATTACKED_PORT, size)


def permitted_frame(grid: Grid, destination: int) -> bytes:
    """A frame of the one client's: the machine of that address permits it."""
    return _make_frame(grid, grid.client.network, destination, PERMITTED_PORT, 18)


def _make_frame(grid: Grid, source: int, destination: int, port: int, size: int) -> bytes:
    packet = Packet(grid.family, source, destination, UDP, 40_000, port)
    return frames.frame(packet, src_mac=SENDER_MAC, dst_mac=EDGE_MAC, payload=bytes(size))


def fire(links: Links, switch: EdgeSwitch, shots: Sequence[bytes]) -> None:
    """Send every frame once; return when the switch has handled all.

    Raises Unreachable if it does not.
    """
    before = switch.count_handled()
    with closing(links.inside(OUTSIDE, raw_socket)) as sender, links.inside(EDGE, _sockets) as queues:
        for start in range(0, len(shots), _BATCH):
            for frame in shots[start : start + _BATCH]:
                sender.send(frame)
            wait_until(lambda: not _waiting(queues), _UNTAKEN, _PATIENCE_S, every_s=_POLL_S)
    wait_until(lambda: switch.count_handled() - before >= len(shots), _UNTAKEN, _PATIENCE_S, every_s=_POLL_S)


def raw_socket() -> socket.socket:
    """Return a socket that sends frames from its namespace's interface."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.bind((INTERFACE, 0))
    return opened


def _sockets() -> TextIO:
    """The kernel's list of packet sockets, of the namespace that it is opened in."""
    return Path("/proc/thread-self/net/packet").open(encoding="ascii")


def _waiting(queues: TextIO) -> bool:
    """Whether anything waits in one of them."""
    queues.seek(0)
    return any(int(line.split()[_QUEUED]) for line in queues.read().splitlines()[1:])
