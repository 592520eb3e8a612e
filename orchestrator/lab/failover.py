"""`aclflow demo --failover`: a download goes on while the firewalls that carry it die.

    web ─ host1 ═ spreading switch ═ fw1 | fw2 | fw3 ═ spreading switch ─ outside

A point of presence with three firewalls that share their connections; a download and idle connections from outside. The
firewall that carries the download loses its power, then the one that took over; the third has everything. Both come
back. Afterwards all of it stays up, and the download with it, for whoever wants to kill firewalls by hand.

Both ends of the download and of idle connections are sockets of this process, made in the nodes' namespaces; threads
send, receive and echo.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from orchestrator.errors import AclflowError, Unreachable
from orchestrator.lab import cluster, pop, specfile
from orchestrator.lab.cluster import Death, Firewall, Return
from orchestrator.lab.demo import stay_up
from orchestrator.lab.interrupts import Interrupts
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab
from orchestrator.lab.processes import wait_until
from orchestrator.lab.screen import Screen
from orchestrator.lab.service import ControlPlane
from orchestrator.lab.sockets import address_of
from orchestrator.policy.addresses import Family, format_address
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import TenantId

BYTES_PER_S = 20_000_000
_TICK_S = 0.005
_BEGINS_S = 10.0
_ANSWERS_S = 10.0
_MOST_PAUSES = 10_000
_LEAST_PAUSE_S = 0.01


class _Service:
    """A listener in a server's namespace, and connections to it from a client's."""

    def __init__(self, lab: Lab, client: str, server: str, port: int) -> None:
        self._lab = lab
        self._client = client
        self._source, to = (
            format_address(Family.IPV4, address_of(lab, node, Family.IPV4)) for node in (client, server)
        )
        self._target = to, port
        self._listener = lab.inside(server, lambda: socket.create_server(self._target, backlog=128))
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _connect(self) -> tuple[socket.socket, socket.socket]:
        """Return the ends of a new connection, the client's first. Raises Unreachable."""

        def connect_inside() -> socket.socket:
            return socket.create_connection(self._target, _BEGINS_S, (self._source, 0))

        try:
            near = self._lab.inside(self._client, connect_inside)
            self._sockets.append(near)
            far, _ = self._listener.accept()
        except OSError as error:
            raise Unreachable(f"{self._client} does not reach {self._target[0]}:{self._target[1]}: {error}") from None
        self._sockets.append(far)
        return near, far

    def _run_in_thread(self, work: Callable[[], None]) -> None:
        def run_until_closed() -> None:
            with suppress(OSError):  # a connection ended
                work()

        self._threads.append(threading.Thread(target=run_until_closed, daemon=True))
        self._threads[-1].start()


class Download(_Service):
    """A transfer of `BYTES_PER_S` to a client, until it is left."""

    def __init__(self, lab: Lab, client: str, server: str, port: int) -> None:
        super().__init__(lab, client, server, port)
        self.received = 0
        self._last = time.monotonic()
        self._pauses: deque[tuple[float, float]] = deque(maxlen=_MOST_PAUSES)

    def __enter__(self) -> Self:
        near, far = self._connect()
        self._last = time.monotonic()
        self._run_in_thread(lambda: self._send_bytes(far))
        self._run_in_thread(lambda: self._receive_bytes(near))
        return self

    def paused_since(self, moment: float) -> float:
        """Return the longest pause, in seconds, since a moment (monotonic seconds)."""
        pauses = (*self._pauses, (self._last, time.monotonic()))
        return max((until - max(since, moment) for since, until in pauses if until > moment), default=0.0)

    def _send_bytes(self, link: socket.socket) -> None:
        link.settimeout(None)
        chunk = bytes(int(BYTES_PER_S * _TICK_S))
        while not self._ended.wait(_TICK_S):
            link.sendall(chunk)

    def _receive_bytes(self, link: socket.socket) -> None:
        link.settimeout(None)
        while got := len(link.recv(1 << 20)):
            now = time.monotonic()
            if now - self._last >= _LEAST_PAUSE_S:
                self._pauses.append((self._last, now))
            self._last = now
            self.received += got


class Echoes(_Service):
    """Connections that are open and idle; each is asked for an echo when somebody counts."""

    def __init__(self, lab: Lab, client: str, server: str, port: int) -> None:
        super().__init__(lab, client, server, port)
        self._near: list[socket.socket] = []

    @property
    def count(self) -> int:
        """How many were opened."""
        return len(self._near)

    def open(self, count: int) -> None:
        """Open so many. Raises Unreachable."""
        fars = []
        for _ in range(count):
            near, far = self._connect()
            self._near.append(near)
            fars.append(far)
        self._run_in_thread(lambda: self._echo_bytes(fars))

    def count_alive(self) -> int:
        """Return how many echo a byte, within ten seconds for all."""
        alive = 0
        until = time.monotonic() + _ANSWERS_S
        for each in self._near:
            with suppress(OSError):
                each.sendall(b"?")
        for each in self._near:
            each.settimeout(max(until - time.monotonic(), 0.01))
            with suppress(OSError):
                alive += each.recv(1) == b"?"
        return alive

    def _echo_bytes(self, fars: list[socket.socket]) -> None:
        with selectors.DefaultSelector() as selector:
            for each in fars:
                selector.register(each, selectors.EVENT_READ)
            while not self._ended.is_set():
                for key, _ in selector.select(0.2):
                    link = key.fileobj
                    assert isinstance(link, socket.socket)
                    if asked := link.recv(16):
                        link.sendall(asked)
                    else:
                        selector.unregister(link)


POP = specfile.parse(
    """
    hosts: [{name: host1}]
    clients: [{name: outside, addresses: [192.0.2.1]}]
    tenants: [{id: shop, prefixes: [198.51.100.0/24]}]
    endpoints: [{name: web, tenant: shop, host: host1, addresses: [198.51.100.10]}]
    spread: true
    """
)
_LIST = acl_from_json({"rules": [{"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": [80, 7]}]})
SIZE = 3
DEATHS = SIZE - 1
_HELD = 50
"""Connections that are open, and idle, while firewalls die."""
_LOOK_S = 0.3
_GOES_ON_BYTES = BYTES_PER_S // 4
_TOLD_PAUSE_S = 0.03
"""Shorter pauses of a download are the machine's own."""
_HINTS = ("aclflow lab kill fw1", "aclflow lab revive fw1", "aclflow lab status")


def run(layout: Layout, screen: Screen, *, once: bool) -> bool:
    """Run the demo and clean up, even after Ctrl-C; return whether no connection was lost.

    Raises as `demo.run`.
    """
    deaths: list[Death] = []
    with Interrupts() as interrupts:
        try:
            with pop.temporary(layout, POP, screen.step) as lab:
                try:
                    plane = ControlPlane(lab)
                    plane.start({TenantId("shop"): _LIST}, progress=screen.step)
                    screen.step("three firewalls that share their connections")
                    with plane.client() as client:
                        members = cluster.start(lab, client, SIZE)
                    with Download(lab, "outside", "web", 80) as download, Echoes(lab, "outside", "web", 7) as echoes:
                        echoes.open(_HELD)
                        while len(deaths) < DEATHS:
                            deaths.append(_kill_carrier(members, download, echoes, screen))
                        back = _revive(members, [each.victim for each in deaths], download, screen)
                        screen.show_deaths(deaths, back, download.received)
                        if not once:
                            stay_up(lab, plane, screen, _tell_pauses(lab, members, download, screen), _HINTS)
                finally:
                    interrupts.ignore()
                    screen.step("removing everything")
        except KeyboardInterrupt:
            screen.show_interrupted()
            if len(deaths) < DEATHS:
                raise
    return not any(each.lost for each in deaths)


def _kill_carrier(members: Sequence[Firewall], download: Download, echoes: Echoes, screen: Screen) -> Death:
    """Kill the firewall that carries the download, and see how it goes on."""
    victim = find_carrier(members)
    screen.step(f"{victim.name} carries the download, and loses its power")
    died, noticed_s = cluster.kill_and_watch(victim)
    before = download.received
    wait_until(lambda: download.received > before + _GOES_ON_BYTES, "the download does not go on", every_s=0.1)
    pause_s = download.paused_since(died)
    return Death(victim.name, find_carrier(members).name, noticed_s, pause_s, echoes.count_alive(), echoes.count)


def _revive(members: Sequence[Firewall], dead: Sequence[str], download: Download, screen: Screen) -> Return:
    """Give firewalls their power back, and wait until they have taken all entries and serve."""
    screen.step(f"{' and '.join(dead)} come back")
    begun = time.monotonic()
    for each in members:
        if each.name in dead:
            cluster.revive(each)
    wait_until(lambda: all(map(cluster.is_up, members)), "a firewall does not serve again", every_s=0.1)
    whole_s = time.monotonic() - begun
    return Return(tuple(dead), whole_s, download.paused_since(begun))


def find_carrier(members: Sequence[Firewall]) -> Firewall:
    """Return the firewall that forwards most just now."""
    before = [each.forwarder.count_forwarded() for each in members]
    time.sleep(_LOOK_S)
    forwarded = [each.forwarder.count_forwarded() - was for each, was in zip(members, before, strict=True)]
    return members[forwarded.index(max(forwarded))]


def _tell_pauses(lab: Lab, members: Sequence[Firewall], download: Download, screen: Screen) -> Callable[[], None]:
    """Return a function that tells the download's pause since its last call."""
    since = time.monotonic()

    def tell_pause() -> None:
        nonlocal since
        now = time.monotonic()
        pause_s = download.paused_since(since)
        since = now
        if pause_s < _TOLD_PAUSE_S or not lab.layout.state_file.exists():
            return
        try:
            screen.show_pause(pause_s, find_carrier(members).name)
        except AclflowError:  # the lab is being removed
            return

    return tell_pause
