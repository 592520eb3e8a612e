"""A network between members of a cluster that delivers messages late, twice and in another order.

The router forwards none of them itself: each is taken off its links, and sent on after a while of chance.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
import select
import socket
import threading
import time
from types import TracebackType

from system.sharing_ground import heal, restrict

from orchestrator.bench.state_sync.syncworld import MIDDLE, World

_IPV4 = 0x0800
_SOL_PACKET, _VNET_HEADER = 263, 15
_HEADER_BYTES = 10
"""What the kernel says of a packet's checksum, which may be unfinished; it goes on with the packet."""
_ETHERNET, _MESSAGES = 14, 3781
_LATE_S = 0.02
_TWICE = 0.3


class Unruly:
    """Use it with `with`. `twice` and `overtaken` count messages that came again, and that others passed by."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._random = world, random.Random(seed)
        self._ended = threading.Event()
        self._links: dict[int, socket.socket] = {}
        self._macs: dict[int, bytes] = {}
        self.twice = self.overtaken = 0

    def __enter__(self) -> Unruly:
        for member in self._world.members:
            self._links[member] = self._world.inside(MIDDLE, lambda member=member: self._open(f"m{member}"))
            (link,) = json.loads(self._world.run(member, "ip", "-json", "link", "show", "dev", MIDDLE))
            (ours,) = json.loads(self._world.run(MIDDLE, "ip", "-json", "link", "show", "dev", f"m{member}"))
            self._macs[member] = bytes.fromhex((link["address"] + ours["address"]).replace(":", ""))
        restrict(self._world, f"udp dport {_MESSAGES} drop")
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        heal(self._world)
        for link in self._links.values():
            link.close()

    @staticmethod
    def _open(name: str) -> socket.socket:
        link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_IPV4))
        link.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
        link.bind((name, _IPV4))
        return link

    def _carry(self) -> None:
        waiting: list[tuple[float, int, int, bytes]] = []
        numbers, last = itertools.count(), -1
        while not self._ended.is_set() or waiting:
            wait_s = min(0.05, max(0.0, waiting[0][0] - time.monotonic())) if waiting else 0.05
            for link in select.select([*self._links.values()], [], [], wait_s)[0]:
                found, sent_by = link.recvfrom(4096)
                to = _addressee(found)
                if sent_by[2] != socket.PACKET_HOST or to is None:
                    continue
                is_twice = self._random.random() < _TWICE
                self.twice += is_twice
                for _ in range(1 + is_twice):
                    due = time.monotonic() + self._random.random() * _LATE_S
                    heapq.heappush(waiting, (due, next(numbers), to, found))
            while waiting and waiting[0][0] <= time.monotonic():
                _, number, to, found = heapq.heappop(waiting)
                self.overtaken += number < last
                last = max(last, number)
                self._links[to].send(found[:_HEADER_BYTES] + self._macs[to] + found[_HEADER_BYTES + 12 :])


def _addressee(found: bytes) -> int | None:
    """The member that a message goes to; None: it is no message."""
    inner = found[_HEADER_BYTES + _ETHERNET :]
    if inner[9] != socket.IPPROTO_UDP or int.from_bytes(inner[22:24], "big") != _MESSAGES:
        return None
    return inner[18]
