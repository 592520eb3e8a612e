"""Kernel queues in memory: `FakeMachine` sends packets through an iptables table and queues.

A queue holds so many packets, and drops further ones while it is full; where nobody listens, packets are dropped unless
the rule has a bypass; packets that wait when a listener goes are dropped. Packets keep their queue by their addresses,
as with `--queue-balance`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from orchestrator.classify.packets import PACKET, record
from orchestrator.enforce.drivers.iptables.fake import FakeIptables
from orchestrator.enforce.drivers.queue.machine import ACCEPT, DROP, QUEUE, U32, Batch, Batching, Lost
from orchestrator.errors import Missing, Unreachable
from orchestrator.policy.model import Packet

_PATIENCE_S = 10.0


@dataclass(slots=True, eq=False)
class _Waiting:
    """A packet in a queue, and what became of it."""

    packet: Packet
    size: int
    done: threading.Event = field(default_factory=threading.Event)
    verdict: int = DROP

    def end(self, verdict: int) -> None:
        """Give the waiting packet its verdict."""
        self.verdict = verdict
        self.done.set()


class FakeMachine:
    """A kernel with an iptables and queues."""

    def __init__(self) -> None:
        self.iptables = FakeIptables()
        self.run = self.iptables.run
        self.queues: dict[int, FakeQueue] = {}
        self._lost: dict[int, Lost] = {}

    def open(self, queue: int, batching: Batching) -> FakeQueue:
        """See `Machine.open`."""
        if queue in self.queues:
            raise Missing(f"NFQUEUE {queue}: somebody else listens to it in this network namespace")
        self._lost[queue] = Lost(0, 0)
        self.queues[queue] = opened = FakeQueue(self, queue, batching)
        return opened

    def lost(self) -> Mapping[int, Lost]:
        """See `Machine.lost`."""
        return dict(self._lost)

    def forward(self, packets: Sequence[Packet], size: int = 100) -> list[bool]:
        """Which of some packets come through.

        They are all under way before the first is answered.
        """
        sent = [self.send(packet, size) for packet in packets]
        return [self.has_passed(each) for each in sent]

    def send(self, packet: Packet, size: int = 100) -> _Waiting:
        """A packet to be forwarded; `has_passed` says what became of it."""
        journey = self.iptables.tables[packet.family].send(packet, size=size, came_by="left")
        waiting = _Waiting(packet, size)
        if journey.queues is None:
            waiting.end(ACCEPT if journey.accepted else DROP)
            return waiting
        first, last, bypass = journey.queues
        queue = self.queues.get(first + hash((packet.source, packet.destination)) % (last + 1 - first))
        if queue is None:
            waiting.end(ACCEPT if bypass else DROP)
        else:
            queue.put(waiting)
        return waiting

    def has_passed(self, waiting: _Waiting) -> bool:
        """Whether a packet that was sent came through, wherever it was queued."""
        if not waiting.done.wait(_PATIENCE_S):
            raise Unreachable("a packet was never answered")
        if waiting.verdict & 0xFFFF != QUEUE:
            return waiting.verdict == ACCEPT
        queue = self.queues.get(waiting.verdict >> 16)
        if queue is None:
            return False
        again = _Waiting(waiting.packet, waiting.size)
        queue.put(again)
        return self.has_passed(again)

    def is_heard(self, queue: int) -> bool:
        """Whether somebody listens to a queue."""
        return queue in self.queues

    def lose(self, queue: int) -> None:
        """Count a packet that found its queue full."""
        self._lost[queue] = Lost(self._lost[queue].full + 1, 0)

    def close(self, queue: int) -> None:
        """Stop listening to a queue."""
        self.queues.pop(queue, None)


class FakeQueue:
    """A queue with a listener. `broken` makes every call of the listener fail."""

    def __init__(self, machine: FakeMachine, number: int, batching: Batching) -> None:
        self._machine, self._number, self._batching = machine, number, batching
        self._turn = threading.Condition()
        self._coming: deque[tuple[int, _Waiting]] = deque()
        self._waiting: dict[int, _Waiting] = {}
        self._last = 0
        self.broken = False

    def put(self, waiting: _Waiting) -> None:
        """Add a packet that waits for its verdict."""
        with self._turn:
            if len(self._waiting) >= self._batching.waiting:
                self._machine.lose(self._number)
                waiting.end(DROP)
                return
            self._last += 1
            self._waiting[self._last] = waiting
            self._coming.append((self._last, waiting))
            self._turn.notify()

    def receive(self, patience_s: float) -> Batch | None:
        """See `PacketQueue.receive`."""
        with self._turn:
            self._turn.wait_for(lambda: self._coming or self.broken, patience_s)
            self._check_open()
            most = min(self._batching.most, len(self._coming))
            taken = [self._coming.popleft() for _ in range(most)]
        if not taken:
            return None
        packets = np.array([record(each.packet, each.size) for _, each in taken], PACKET)
        return Batch(np.array([number for number, _ in taken], np.uint32), packets)

    def answer(self, batch: Batch, verdicts: U32) -> None:
        """See `PacketQueue.answer`."""
        self._check_open()
        with self._turn:
            for number, verdict in zip(batch.ids.tolist(), verdicts.tolist(), strict=True):
                self._waiting.pop(number).end(verdict)

    def close(self) -> None:
        """See `PacketQueue.close`."""
        with self._turn:
            self._machine.close(self._number)
            for waiting in self._waiting.values():
                waiting.end(DROP)
            self._waiting.clear()
            self._coming.clear()

    def _check_open(self) -> None:
        if self.broken:
            raise Unreachable(f"NFQUEUE {self._number}: no such device")
