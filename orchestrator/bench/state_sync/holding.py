"""Runs in a lab's client or server: connections kept open while a firewall dies.

    python -m orchestrator.bench.state_sync.holding serve ADDRESS PORT
    python -m orchestrator.bench.state_sync.holding hold ADDRESS PORT CONNECTIONS SOURCE...

`hold` opens so many connections and prints ``ready``. Until its input ends it sends a datagram from each source every
`EVERY_S` (datagrams are spread by addresses alone), and begins a connection every `BEGIN_EVERY_S`. At last every
connection says a line, `AT_ONCE` of them and a pause. It prints a JSON object: connections that had no answer,
connections begun and how many of them failed, and for each source when its answers came (monotonic seconds).
"""

from __future__ import annotations

import json
import resource
import select
import selectors
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from orchestrator.bench.elastic.sender import say

EVERY_S = 0.004
BEGIN_EVERY_S = 0.02
_RESETS_AT_ONCE = struct.pack("ii", 1, 0)
"""A connection that is closed leaves its port free: runs that follow each other would use up a client's ports."""
AT_ONCE, PAUSE_S = 100, 0.01
"""Connections that speak or end at once, and the pause then.

A port of a user-space switch keeps some 270 packets that wait. Packets that a burst of 10,000 loses there are lost
again each time that their timers, started together, run out together; and an RST that is lost leaves the server's end
open.
"""
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
                _echo_bytes(links, number)


def _echo_bytes(links: dict[int, socket.socket], number: int) -> None:
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
    """The connections that a client holds, and the data that it sends."""

    address: str
    port: int
    sources: tuple[str, ...]
    arrivals: list[list[float]] = field(default_factory=list)
    begun: int = 0
    failed: int = 0
    beginning: dict[socket.socket, float] = field(default_factory=dict)
    ready: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def hold(self, connections: int) -> dict[str, object]:
        """Open connections, send until the input ends, and see what is left."""
        held = [self._open_connection() for _ in range(connections)]
        say("ready")
        self._send_packets()
        lost = _silent(held)
        for link in _pace(held):
            link.close()
        return {
            "lost": lost, "begun": self.begun, "failed": self.failed, "arrivals": self.arrivals, "held": len(held),
        }  # fmt: skip

    def _open_connection(self) -> socket.socket:
        link = socket.create_connection((self.address, self.port), PATIENCE_S)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS_AT_ONCE)
        link.setblocking(False)
        return link

    def _send_packets(self) -> None:
        for source in self.sources:
            arrivals: list[float] = []
            self.arrivals.append(arrivals)
            flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            flow.bind((source, 0))
            flow.connect((self.address, self.port))
            self.ready.register(flow, selectors.EVENT_READ, arrivals)
        self.ready.register(sys.stdin, selectors.EVENT_READ)
        flows = [each.fileobj for each in self.ready.get_map().values() if isinstance(each.fileobj, socket.socket)]
        due = begin = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= due:
                for flow in flows:
                    flow.send(b"?")
                due = max(due + EVERY_S, now)
            if now >= begin:
                self._begin_connection(now)
                begin = now + BEGIN_EVERY_S
            if not self._hear(max(0.0, due - now)):
                break
        until = time.monotonic() + PATIENCE_S
        while self.beginning and time.monotonic() < until:
            self._hear(0.1)
        self.failed += len(self.beginning)

    def _hear(self, wait_s: float) -> bool:
        """Take what came. False: the input has ended."""
        goes_on = True
        for key, _ in self.ready.select(wait_s):
            if not isinstance(key.fileobj, socket.socket):
                self.ready.unregister(key.fileobj)
                goes_on = False
            elif key.data is None:
                self._end_connection(key.fileobj, key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0)
            else:
                with suppress(OSError):
                    key.fileobj.recv(10)
                    key.data.append(time.monotonic())
        return goes_on

    def _begin_connection(self, now: float) -> None:
        link = socket.socket()
        link.setblocking(False)
        link.connect_ex((self.address, self.port))
        self.ready.register(link, selectors.EVENT_WRITE)
        self.beginning[link] = now
        self.begun += 1
        for late in [each for each, since in self.beginning.items() if now - since > PATIENCE_S]:
            self._end_connection(late, True)

    def _end_connection(self, link: socket.socket, has_failed: bool) -> None:
        del self.beginning[link]
        self.ready.unregister(link)
        self.failed += has_failed
        link.close()


def _silent(links: list[socket.socket]) -> int:
    """Return how many connections have no answer to a line that is sent on each."""
    waiting, left, lost = select.epoll(), {}, 0
    for link in _pace(links):
        try:
            link.send(b"still there?\n")
        except OSError:
            lost += 1
            continue
        left[link.fileno()] = link
        waiting.register(link, select.EPOLLIN)
    until = time.monotonic() + PATIENCE_S
    while left and time.monotonic() < until:
        for number, _ in waiting.poll(0.1):
            link = left.pop(number)
            waiting.unregister(link)
            try:
                lost += not link.recv(100)
            except OSError:
                lost += 1
    return lost + len(left)


def _pace(links: list[socket.socket]) -> Iterator[socket.socket]:
    """Yield each connection, with a pause after every `AT_ONCE` of them.

    Then no port of the switch drops their packets.
    """
    for place, link in enumerate(links, 1):
        yield link
        if not place % AT_ONCE:
            time.sleep(PAUSE_S)


def main(words: list[str]) -> None:
    """Serve, or hold connections, as the first word says."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if words[0] == "serve":
        serve(words[1], int(words[2]))
    else:
        say(json.dumps(Load(words[1], int(words[2]), tuple(words[4:])).hold(int(words[3]))))


if __name__ == "__main__":
    main(sys.argv[1:])
