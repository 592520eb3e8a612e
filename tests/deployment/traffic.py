"""Packets all the time: from clients to endpoints, each with a number, and what of them should never have arrived.

alice ── udp 80 ──▶ web1    permitted        alice ── udp 22 ──▶ web1      refused
mallory ─ udp 80 ─▶ web1    refused          alice ── udp 80 ──▶ db1       refused (another host)
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from deployment.fabric import ALICE, DB1, MALLORY, WEB1, Fabric, Node
from patience import until

from orchestrator.lab import namespaces

PERIOD_S = 0.02
STILL_S, LOST_S = 1.0, 20.0
"""When so long nothing has arrived any more, nothing will; the longer one where a permitted packet is missing."""


@dataclass(frozen=True)
class Stream:
    """Packets of one kind."""

    source: Node
    target: Node
    port: int
    permitted: bool


STREAMS = (
    Stream(ALICE, WEB1, 80, permitted=True),
    Stream(ALICE, WEB1, 22, permitted=False),
    Stream(MALLORY, WEB1, 80, permitted=False),
    Stream(ALICE, DB1, 80, permitted=False),
)


@dataclass
class Count:
    """What was sent and what of it arrived, by the packets' numbers."""

    sent: int = 0
    arrived: set[int] = field(default_factory=set)


class Traffic:
    """Runs within a `with`; `counts` holds what came of it afterwards."""

    def __init__(self, fabric: Fabric, streams: Sequence[Stream] = STREAMS) -> None:
        self.counts = {stream: Count() for stream in streams}
        self._stopping = threading.Event()
        self._quiet = threading.Event()
        senders = [
            threading.Thread(target=self._send, args=(stream, _sender(fabric.namespace(stream.source))))
            for stream in streams
        ]
        ends = sorted({(stream.target, stream.port) for stream in streams}, key=lambda end: (end[0].name, end[1]))
        receivers = [
            threading.Thread(target=self._receive, args=(node, port, _listener(fabric.namespace(node), port)))
            for node, port in ends
        ]
        self._senders, self._receivers = senders, receivers

    def __enter__(self) -> Traffic:
        for thread in (*self._receivers, *self._senders):
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._senders:
            thread.join()
        self._settle()
        self._quiet.set()
        for thread in self._receivers:
            thread.join()

    def carry(self, packets: int) -> None:
        """Wait until so many have been sent on every stream."""
        until(lambda: all(count.sent >= packets for count in self.counts.values()))

    def _settle(self) -> None:
        """What is on its way arrives: on a loaded machine a switch may lag behind."""
        before, since = -1, time.monotonic()
        while time.monotonic() - since < (LOST_S if self._missing() else STILL_S):
            arrived = sum(len(count.arrived) for count in self.counts.values())
            if arrived != before:
                before, since = arrived, time.monotonic()
            time.sleep(STILL_S / 10)

    def _missing(self) -> bool:
        return any(self.wrong[stream] for stream in self.counts if stream.permitted)

    @property
    def wrong(self) -> dict[Stream, int]:
        """Packets that arrived and never should have, and permitted ones that did not arrive."""
        return {
            stream: count.sent - len(count.arrived) if stream.permitted else len(count.arrived)
            for stream, count in self.counts.items()
        }

    def _send(self, stream: Stream, sender: socket.socket) -> None:
        count = self.counts[stream]
        word = f"{stream.source.name} {stream.port} ".encode()
        with sender:
            while not self._stopping.wait(PERIOD_S):
                sender.sendto(word + str(count.sent).encode(), (stream.target.address, stream.port))
                count.sent += 1

    def _receive(self, node: Node, port: int, receiver: socket.socket) -> None:
        by_source = {
            stream.source.name: stream for stream in self.counts if (stream.target, stream.port) == (node, port)
        }
        with receiver:
            while not self._quiet.is_set():
                try:
                    packet = receiver.recv(64)
                except TimeoutError:
                    continue
                source, _, number = packet.decode().split()
                self.counts[by_source[source]].arrived.add(int(number))


def _sender(namespace: str) -> socket.socket:
    return namespaces.inside(namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))


def _listener(namespace: str, port: int) -> socket.socket:
    def made() -> socket.socket:
        receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiving.bind(("0.0.0.0", port))
        receiving.settimeout(0.2)
        return receiving

    return namespaces.inside(namespace, made)
