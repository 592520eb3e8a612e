"""Runs inside a client or a server of a lab: connections that are held open while a firewall dies.

    python -m orchestrator.bench.state_sync.holding serve ADDRESS PORT
    python -m orchestrator.bench.state_sync.holding hold ADDRESS PORT CONNECTIONS

`hold` opens so many connections and prints ``ready``. Then it sends numbered datagrams in `FLOWS` flows, each every
`EVERY_S`, and begins a connection every `BEGIN_EVERY_S`, until its input ends. At last every connection says a line. It
prints a JSON object: connections that had no answer, connections begun and how many of them failed, and for each flow
when its answers came (monotonic seconds).
"""

from __future__ import annotations

import json
import resource
import select
import socket
import sys
import time
from dataclasses import dataclass, field

from orchestrator.bench.elastic.sender import say

FLOWS = 64
EVERY_S = 0.004
BEGIN_EVERY_S = 0.02
PATIENCE_S = 15.0
"""TCP repairs a lost packet within this time; a connection that stays silent for so long is lost."""


def serve(address: str, port: int) -> None:
    """Echo whatever comes, over TCP and UDP."""
    door = socket.create_server((address, port), backlog=4096)
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((address, port))
    waiting = select.epoll()
    links = {}
    for one in (door, datagrams):
        waiting.register(one, select.EPOLLIN)
    say("ready")
    while True:
        for number, _ in waiting.poll():
            if number == datagrams.fileno():
                datagrams.sendto(*datagrams.recvfrom(100))
            elif number == door.fileno():
                link = door.accept()[0]
                links[link.fileno()] = link
                waiting.register(link, select.EPOLLIN)
            else:
                _echo(links, number)


def _echo(links: dict[int, socket.socket], number: int) -> None:
    try:
        said = links[number].recv(100)
        if said:
            links[number].sendall(said)
            return
    except OSError:
        pass
    links.pop(number).close()


@dataclass(slots=True)
class Load:
    """What a client holds and sends."""

    address: str
    port: int
    arrivals: list[list[float]] = field(default_factory=lambda: [[] for _ in range(FLOWS)])
    begun: int = 0
    failed: int = 0
    beginning: dict[socket.socket, float] = field(default_factory=dict)

    def hold(self, connections: int) -> dict[str, object]:
        """Open connections, send until the input ends, and see what is left."""
        held = [self._opened() for _ in range(connections)]
        say("ready")
        self._send()
        return {
            "lost": _silent(held), "begun": self.begun, "failed": self.failed, "arrivals": self.arrivals,
            "held": len(held),
        }  # fmt: skip

    def _opened(self) -> socket.socket:
        link = socket.create_connection((self.address, self.port), PATIENCE_S)
        link.setblocking(False)
        return link

    def _send(self) -> None:
        flows = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(FLOWS)]
        places = {flow: place for place, flow in enumerate(flows)}
        for flow in flows:
            flow.connect((self.address, self.port))
        due = begin = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= due:
                for flow in flows:
                    flow.send(b"?")
                due = max(due + EVERY_S, now)
            if now >= begin:
                self._begin(now)
                begin = now + BEGIN_EVERY_S
            ready, able, _ = select.select([*flows, sys.stdin], list(self.beginning), [], max(0.0, due - now))
            now = time.monotonic()
            for begun in able:
                self._begun(begun)
            for one in ready:
                if not isinstance(one, socket.socket):
                    self._finish()
                    return
                one.recv(10)
                self.arrivals[places[one]].append(now)

    def _begin(self, now: float) -> None:
        link = socket.socket()
        link.setblocking(False)
        link.connect_ex((self.address, self.port))
        self.beginning[link] = now
        self.begun += 1
        for late in [each for each, since in self.beginning.items() if now - since > PATIENCE_S]:
            self._begun(late, is_late=True)

    def _begun(self, link: socket.socket, *, is_late: bool = False) -> None:
        del self.beginning[link]
        self.failed += is_late or link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
        link.close()

    def _finish(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while self.beginning and time.monotonic() < until:
            for one in select.select([], list(self.beginning), [], 0.1)[1]:
                self._begun(one)
        self.failed += len(self.beginning)


def _silent(links: list[socket.socket]) -> int:
    """How many connections have no answer for a line that each says now."""
    waiting, left = select.epoll(), {}
    for link in links:
        try:
            link.send(b"still there?\n")
        except OSError:
            continue
        left[link.fileno()] = link
        waiting.register(link, select.EPOLLIN)
    lost, until = len(links) - len(left), time.monotonic() + PATIENCE_S
    while left and time.monotonic() < until:
        for number, _ in waiting.poll(0.1):
            link = left.pop(number)
            waiting.unregister(link)
            try:
                lost += not link.recv(100)
            except OSError:
                lost += 1
    return lost + len(left)


def main(words: list[str]) -> None:
    """Serve, or hold."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if words[0] == "serve":
        serve(words[1], int(words[2]))
    else:
        say(json.dumps(Load(words[1], int(words[2])).hold(int(words[3]))))


if __name__ == "__main__":
    main(sys.argv[1:])
