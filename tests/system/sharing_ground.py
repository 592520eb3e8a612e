"""Firewalls that share their connections between a client and a server, for tests: fixtures, and questions to them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from orchestrator.bench.state_sync.programs import Cluster
from orchestrator.bench.state_sync.syncworld import CLIENT, MIDDLE, SERVER, SERVER4, SERVER6, Between, World
from orchestrator.statesync.states import Confirmation, Context, Level, State

PORT = 80
FULL = {"level": Level.FULL, "context": Context.DIRTY, "confirmation": Confirmation.SYNCHRONOUS}
SILENT_S = 0.5
STEP_S = 0.6
"""Less than the second after which a TCP stack sends its SYN again."""
REPEATED_S = 8.0
"""Within this time a TCP stack has sent again what was lost."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(3, "sstest-", between=Between.ROUTER) as made:
        yield made


@pytest.fixture(scope="module")
def running(world: World) -> Iterator[Cluster]:
    with Cluster(world, silent_s=SILENT_S) as made:
        yield made


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    running.world.via(1)
    running.change(**FULL)
    running.wait_whole()
    running.forget_all()
    return running


@pytest.fixture
def ends(world: World) -> Iterator[Ends]:
    with ExitStack() as stack:
        yield Ends(world, stack)


@pytest.fixture
def lossy(world: World) -> Iterator[Callable[[str], None]]:
    """Says what the router between members does with their messages, in words of nft."""

    def lose(words: str) -> None:
        restrict(world, f"udp dport 3781 {words}")

    yield lose
    heal(world)


def restrict(world: World, rule: str, *, anew: bool = False) -> None:
    """Give the router between members one more rule, or `anew` this one for all others, in one step."""
    table = f"table ip sstest {{ chain f {{ type filter hook forward priority 0; {rule}; }}; }}"
    world.run(MIDDLE, "nft", "-f", "-", text=f"delete table ip sstest\n{table}" if anew else table)


def heal(world: World) -> None:
    """Take all of the router's rules away."""
    with suppress(Exception):
        world.run(MIDDLE, "nft", "delete", "table", "ip", "sstest")


class Ends:
    """A client and a server that talk through the firewalls."""

    def __init__(self, world: World, stack: ExitStack) -> None:
        self._world, self._stack = world, stack
        self._doors = {
            family: stack.enter_context(world.inside(SERVER, lambda family=family: self._door(family)))
            for family in (socket.AF_INET, socket.AF_INET6)
        }

    @staticmethod
    def _door(family: socket.AddressFamily) -> socket.socket:
        address = SERVER4 if family == socket.AF_INET else SERVER6
        return socket.create_server((address, PORT), family=family, backlog=256)

    @classmethod
    @contextmanager
    def only(cls, world: World) -> Iterator[Ends]:
        """In a world of its own."""
        with ExitStack() as stack:
            yield cls(world, stack)

    def connect(
        self, family: socket.AddressFamily = socket.AF_INET, *, port: int = 0, patience_s: float = STEP_S
    ) -> tuple[socket.socket, socket.socket]:
        """Both sides of a new connection. Raises OSError when it takes as long as a SYN that is sent again."""
        address = SERVER4 if family == socket.AF_INET else SERVER6
        near = self._stack.enter_context(self._world.inside(CLIENT, lambda: socket.socket(family, socket.SOCK_STREAM)))
        near.settimeout(patience_s)
        if port:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            near.bind(("", port))
        try:
            near.connect((address, PORT))
        except OSError:
            near.close()
            raise
        self._doors[family].settimeout(patience_s)
        far = self._accepted(family)
        while far.getpeername() != near.getsockname():  # it answers a connection that was given up before
            far.close()
            far = self._accepted(family)
        far.settimeout(patience_s)
        return near, far

    def _accepted(self, family: socket.AddressFamily) -> socket.socket:
        return self._stack.enter_context(self._doors[family].accept()[0])

    def datagrams(self) -> tuple[socket.socket, socket.socket]:
        """A client's and a server's UDP socket; nothing is sent yet."""
        near, far = (
            self._stack.enter_context(self._world.inside(end, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            for end in (CLIENT, SERVER)
        )
        far.bind((SERVER4, PORT))
        near.connect((SERVER4, PORT))
        near.settimeout(STEP_S)
        far.settimeout(STEP_S)
        return near, far


def talks(near: socket.socket, far: socket.socket) -> bool:
    """Whether what either side says arrives at the other."""
    with suppress(TimeoutError):
        near.sendall(b"ping")
        if far.recv(4) == b"ping":
            far.sendall(b"pong")
            return near.recv(4) == b"pong"
    return False


def states(cluster: Cluster, number: int, protocol: int = socket.IPPROTO_TCP) -> list[State]:
    """The states of a member's connections of a protocol."""
    counts = cluster.nodes[number].kernel.states()
    return sorted(state for (of, state), count in counts.items() if of == protocol for _ in range(count))


def counted(cluster: Cluster, number: int, name: str) -> int:
    """A counter of a member's program."""
    return cluster.nodes[number].kernel.counters()[name]


def held(cluster: Cluster, number: int) -> int:
    """How many packets a member holds."""
    return int((cluster.nodes[number].kernel.waiting() != 0).sum())
