"""The kernel's queues to user space, and how many packets they lost.

    kernel ── queue 0 ──▶ socket ──▶ receive: a batch of packets ──▶ answer: a verdict each ──▶ kernel goes on, or drops
           ── queue 1 ──▶ ...

`Machine` is the boundary: `LinuxMachine` is the kernel of this network namespace, `fake.FakeMachine` stands in for it.

The netlink is our own: a queue takes five messages to set up, and the libraries for Python there are (NetfilterQueue,
scapy's, pyroute2) answer packet by packet, in calls of Python. `_native/nfqueue.c` receives and answers a batch in one
system call each.

Nothing is open where we fail: no queue has a bypass, and none fails open. Nobody who listens, a full queue, a full
socket, a packet that is not answered: all of them drop.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from orchestrator.classify.frames import Frames, read_frames
from orchestrator.classify.packets import Packets
from orchestrator.enforce import _nfqueue
from orchestrator.enforce.drivers.filters.command import Run, run
from orchestrator.enforce.drivers.nftables.netlink import attribute, number, replies
from orchestrator.errors import Missing, Unreachable

U32 = npt.NDArray[np.uint32]

DROP, ACCEPT, QUEUE = 0, 1, 3
"""Verdicts. QUEUE has the number of another queue in its upper half."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Packets that wait for a verdict, in the order in which the kernel numbered them."""

    ids: U32
    packets: Packets


@dataclass(frozen=True, slots=True)
class Lost:
    """Packets that a queue has dropped since it was opened."""

    full: int
    """Because as many packets waited as may."""
    unheard: int
    """Because the socket was full."""


class PacketQueue(Protocol):
    """One queue of a machine. One thread receives from it and answers."""

    def receive(self, patience_s: float) -> Batch | None:
        """The next packets; None when none came for so long.

        Raises Unreachable where the queue is gone.
        """
        ...

    def answer(self, batch: Batch, verdicts: U32) -> None:
        """Return the verdict of each packet of a batch to the kernel.

        Packets without an answer are dropped with the next answer.

        Raises Unreachable.
        """
        ...

    def close(self) -> None:
        """Close the queue.

        Packets that wait in it are dropped.
        """
        ...


@dataclass(frozen=True, slots=True)
class Batching:
    """How packets are put together."""

    most: int = 256
    """Packets of a batch."""
    latency_us: int = 0
    """How long the first packet of a batch waits for others; 0: a batch is what is there."""
    waiting: int = 4096
    """Packets that may wait in the kernel; more are dropped."""


class Machine(Protocol):
    """Queues, and the packet filter that leads to them."""

    @property
    def run(self) -> Run:
        """Runs programs of the packet filter."""
        ...

    def open(self, queue: int, batching: Batching) -> PacketQueue:
        """Listen to a queue.

        Raises Missing where the kernel has none, or somebody else listens to it.
        """
        ...

    def lost(self) -> Mapping[int, Lost]:
        """Return the packets dropped by each queue, by its number."""
        ...


class LinuxMachine:
    """The kernel of this network namespace."""

    @property
    def run(self) -> Run:
        """See `Machine.run`."""
        return run

    def open(self, queue: int, batching: Batching) -> PacketQueue:
        """See `Machine.open`."""
        return KernelQueue(queue, batching)

    def lost(self) -> Mapping[int, Lost]:
        """See `Machine.lost`."""
        try:
            lines = _COUNTS.read_text().splitlines()
        except OSError:
            return {}
        fields = [list(map(int, line.split())) for line in lines]
        return {each[0]: Lost(each[5], each[6]) for each in fields}


_COUNTS = Path("/proc/thread-self/net/netfilter/nfnetlink_queue")
"""number, listener, waiting, copy mode, copy range, dropped because full, dropped because unheard, last id, 1"""

SEEN_BYTES = 512
"""So much of a packet is copied here: all headers but those of odd length. One cut inside a header is dropped."""

_NETFILTER = 12
_QUEUES = 3 << 8
_CONFIG = _QUEUES | 2
_ERROR = 2
_REQUEST, _ACK = 1, 4
_HEADER = struct.Struct("=IHHII")
_GENERIC = struct.Struct("!BBH")
_COMMAND, _PARAMS, _MAXLEN, _MASK, _FLAGS = 1, 2, 3, 4, 5
_BIND, _COPY_PACKETS = 1, 2
_FAIL_OPEN, _GSO = 1, 4
_SOL_NETLINK, _NO_ENOBUFS = 270, 5
_SO_RCVBUFFORCE = 33
_SOCKET_BYTES = 1 << 23
_SLOT_BYTES = 1024
_MESSAGE_BYTES = 1 << 13


class KernelQueue:
    """A queue of the kernel that gives whole packets, without cutting them into GSO segments."""

    def __init__(self, queue: int, batching: Batching) -> None:
        """Raises Missing."""
        self._queue, self._latency_us = queue, batching.latency_us
        self._before = 0
        room = batching.most
        self._data = np.empty(room * _SLOT_BYTES, np.uint8)
        self._ids, self._captured, self._wire, self._links = np.empty((4, room), np.uint32)
        self._starts = np.empty(room, np.int64)
        try:
            self._socket = _bound(queue, batching.waiting)
        except OSError as error:
            because = _TAKEN if error.errno in (errno.EPERM, errno.EBUSY) else os.strerror(error.errno or 0)
            raise Missing(f"NFQUEUE {queue}: {because}") from None

    def receive(self, patience_s: float) -> Batch | None:
        """See `PacketQueue.receive`."""
        arrays = self._ids, self._starts, self._captured, self._wire, self._links
        try:
            count, _ = _nfqueue.receive(
                self._socket.fileno(), self._data, _SLOT_BYTES, *arrays, int(1e6 * patience_s), self._latency_us
            )
        except OSError as error:
            raise Unreachable(f"NFQUEUE {self._queue}: {error.strerror}") from None
        if not count:
            return None
        captured, wire, links = (each[:count] for each in (self._captured, self._wire, self._links))
        frames = Frames(self._data, self._starts[:count], captured, wire, links)
        return Batch(self._ids[:count].copy(), read_frames(frames))

    def answer(self, batch: Batch, verdicts: U32) -> None:
        """See `PacketQueue.answer`."""
        try:
            _nfqueue.answer(self._socket.fileno(), self._queue, self._before, batch.ids, verdicts)
        except OSError as error:
            raise Unreachable(f"NFQUEUE {self._queue}: {error.strerror}") from None
        self._before = int(batch.ids[-1])

    def close(self) -> None:
        """See `PacketQueue.close`."""
        self._socket.close()


_TAKEN = "somebody else listens to it in this network namespace, or the right CAP_NET_ADMIN is missing"


def _bound(queue: int, waiting: int) -> socket.socket:
    """A socket that hears a queue. Raises OSError."""
    found = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)
    try:
        found.bind((0, 0))
        found.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _SOCKET_BYTES)
        found.setsockopt(_SOL_NETLINK, _NO_ENOBUFS, 1)  # the kernel counts what it could not send
        _configure(found, queue, attribute(_COMMAND, struct.pack("!BBH", _BIND, 0, 0)))
        params = attribute(_PARAMS, struct.pack("!IB", SEEN_BYTES, _COPY_PACKETS))
        flags = number(_MASK, _GSO | _FAIL_OPEN) + number(_FLAGS, _GSO)
        _configure(found, queue, params + number(_MAXLEN, waiting) + flags)
    except OSError:
        found.close()
        raise
    return found


def _configure(sock: socket.socket, queue: int, wanted: bytes) -> None:
    """Configure a queue of the kernel's. Raises OSError with the kernel's reason."""
    body = _GENERIC.pack(socket.AF_UNSPEC, 0, queue) + wanted
    sock.send(_HEADER.pack(_HEADER.size + len(body), _CONFIG, _REQUEST | _ACK, 0, 0) + body)
    while True:  # packets may come before the answer does; they are never answered, and so dropped
        for kind, _, answer in replies(sock.recv(_MESSAGE_BYTES)):
            if kind == _ERROR:
                code = -struct.unpack_from("=i", answer)[0]
                if code:
                    raise OSError(code, os.strerror(code))
                return
