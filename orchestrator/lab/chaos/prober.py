"""Packets on the wire without a pause, each with its kind and time of sending.

A batch sends every kind once, and waits until the packets that every list permits have arrived, or for a moment. So
nothing is lost by haste where all is well, and where it is not, packets go on at a slower pace.
"""

from __future__ import annotations

import selectors
import struct
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab.chaos.ledger import Arrival, Ledger
from orchestrator.lab.chaos.world import Kind, World
from orchestrator.lab.pop import Lab
from orchestrator.lab.wire import raw_socket

_MAGIC = b"chs\xf1"
_MARK = struct.Struct("!4sHIIHxx")
"""Magic, kind, moment, batch, and a number that keeps the packet's checksum as it was with zeros here."""
_PATIENCE_S = 0.05
_LONGEST_FRAME = 2048


def mark(kind: int, moment: int, batch: int) -> bytes:
    """Return the bytes at a packet's end; their checksum equals that of zeros."""
    without = _MARK.pack(_MAGIC, kind, moment, batch, 0)
    total = sum(struct.unpack(f"!{_MARK.size // 2}H", without))
    return _MARK.pack(_MAGIC, kind, moment, batch, (0xFFFF - total % 0xFFFF) % 0xFFFF)


def read_mark(frame: bytes) -> tuple[int, int, int] | None:
    """Return kind, moment and batch of a frame; None where it bears no mark."""
    if len(frame) < _MARK.size or frame[-_MARK.size : -_MARK.size + len(_MAGIC)] != _MAGIC:
        return None
    _, kind, moment, batch, _ = _MARK.unpack_from(frame, len(frame) - _MARK.size)
    return kind, moment, batch


class Prober:
    """Sends within a `with` statement, in a thread of its own."""

    def __init__(self, lab: Lab, world: World, ledger: Ledger) -> None:
        self._ledger = ledger
        self._always = sum(kind.is_always for kind in world.kinds)
        self._sockets = {node.name: lab.inside(node.name, raw_socket) for node in world.spec.nodes}
        self._selector = selectors.DefaultSelector()
        for name, each in self._sockets.items():
            self._selector.register(each, selectors.EVENT_READ, name)
        # permitted ones last, so that their arrival says that the others have passed
        order = sorted(world.kinds, key=lambda kind: kind.is_always)
        self._frames = [(kind.number, self._sockets[kind.sender], _template(lab, kind)) for kind in order]
        self._canaries = frozenset(kind.number for kind in world.kinds if kind.is_always)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send_until_stopped, name="prober")
        self._batch = 0
        self.arrivals: Counter[Arrival] = Counter()
        self.batches: Counter[int] = Counter()
        """How many batches were sent in each moment; those whose moment changed meanwhile count for the first one."""
        self.sent = 0
        """How many packets were handed to the wire; those that no queue took are none."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._selector.close()
        for each in self._sockets.values():
            each.close()

    @property
    def is_alive(self) -> bool:
        """Whether it still sends."""
        return self._thread.is_alive()

    def _send_until_stopped(self) -> None:
        while not self._stopping.is_set():
            self._send()
        self._collect(time.monotonic() + _PATIENCE_S, None)

    def _send(self) -> None:
        """Send one batch, and wait for what must arrive."""
        self._batch += 1
        moment = self._ledger.moment
        for number, sender, template in self._frames:
            try:
                sender.send(template + mark(number, moment, self._batch))
            except OSError:  # the queue is full while the switch is away
                continue
            self.sent += 1
        self._collect(time.monotonic() + _PATIENCE_S, self._batch)
        self.batches[moment] += 1

    def _collect(self, until: float, batch: int | None) -> None:
        """Receive until a time, or until a batch's certainly permitted packets arrived."""
        missing = self._always
        while missing and (left_s := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left_s):
                missing -= self._take(key.data, batch)

    def _take(self, node: str, batch: int | None) -> int:
        """Note a node's arrivals; return how many of a batch's certain packets were among them."""
        found = 0
        while True:
            try:
                frame = self._sockets[node].recv(_LONGEST_FRAME)
            except (BlockingIOError, OSError):
                return found
            said = read_mark(frame)
            if said is not None:
                kind, moment, of = said
                self.arrivals[Arrival(kind, node, moment, self._ledger.moment)] += 1
                found += of == batch and kind in self._canaries


def _template(lab: Lab, kind: Kind) -> bytes:
    """A frame of a kind without its mark."""
    mac = lab.spec.node(kind.sender).mac
    whole = frames.frame(kind.packet, src_mac=mac, dst_mac=GATEWAY_MAC, payload=bytes(_MARK.size))
    return whole[: -_MARK.size]
