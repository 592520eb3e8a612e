"""How many of a thousand connections each setting loses, and how many it may lose.

Three firewalls behind a router. Most connections are known to all whom their setting tells. Then the owner's messages
are lost, as those are that a machine has on its way when it dies; more connections begin, and it dies. A connection
counts if both its ends had it open by then, and is lost unless each end hears the other through another firewall.

    level none                    may lose all
    confirmation asynchronous     may lose those of which no message arrived
    confirmation synchronous      may lose none: what nobody confirms does not open
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import product
from typing import NamedTuple

from orchestrator.bench.progress import Steps
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.state_sync.programs import OWNER, Cluster
from orchestrator.bench.state_sync.syncworld import CLIENT, MEMBERS, MIDDLE, SERVER, SERVER4, Between, Sizes, World
from orchestrator.bench.traffic.journal import Journal
from orchestrator.bench.traffic.talks import raise_limit
from orchestrator.errors import Refused
from orchestrator.lab.processes import wait_until
from orchestrator.statesync.states import Confirmation, Context, Level, State

_PORT = 7002
_SUCCESSOR = OWNER + 1
_EVERY = 10
"""A connection here for so many of a failover, and one that nobody is told of for so many here."""
_FEWEST = 10
_SILENT_S = 0.5
_OPENED_S, _WAITING_S, _HEARD_S = 10.0, 0.5, 2.0
"""Within these times connections open, those do that wait for nobody, and both ends are heard."""
_RESETS_AT_ONCE = struct.pack("ii", 1, 0)
_LOSING = f"table ip losses {{ chain f {{ type filter hook forward priority 0; ip saddr 10.9.{OWNER}.1 drop; }}; }}"


class Setting(NamedTuple):
    """How much is shared, and how surely."""

    level: Level
    context: Context
    confirmation: Confirmation

    @property
    def figure(self) -> str:
        """The name of its figure."""
        words = [self.level.name, *([self.context.name, self.confirmation.name] if self.level else [])]
        return "_".join(["lost", *words]).lower()

    def bound(self, told: int, untold: int) -> int:
        """Return how many it may lose (`docs/failover.md`, *Which setting loses what*)."""
        if self.level is Level.NONE:
            return told + untold
        return untold if self.confirmation is Confirmation.ASYNCHRONOUS else 0


SETTINGS = (
    Setting(Level.NONE, Context.DIRTY, Confirmation.SYNCHRONOUS),  # its four ways to share nothing are one
    *(Setting(*each) for each in product((Level.ESTABLISHED, Level.FULL), Context, Confirmation)),
)
FIGURES = tuple(setting.figure for setting in SETTINGS)


@dataclass(frozen=True, slots=True)
class Loss:
    """Connections that both ends had open when their firewall died, and how many were cut."""

    opened: float
    cut: float


Pair = tuple[socket.socket, socket.socket]
"""Both ends of a connection."""


def count_connections(sizes: Sizes) -> tuple[int, int]:
    """Return how many connections others are told of, and how many they are not."""
    told = max(sizes.connections // _EVERY, _FEWEST)
    return told, told // _EVERY


def measure(results: Results, prefix: str, sizes: Sizes, steps: Steps, journal: Journal) -> None:
    """Record the figures. Raises Refused where connections do not open, Missing, Unreachable."""
    told, untold = count_connections(sizes)
    raise_limit(2 * (told + untold))
    found: dict[Setting, list[Mapping[str, float]]] = {setting: [] for setting in SETTINGS}
    with ExitStack() as stack:
        open_cluster = cache(lambda: stack.enter_context(_cluster(prefix)))  # a journal may know every measurement
        for turn in range(sizes.failovers):
            steps.next(f"losses of each setting, {turn + 1} of {sizes.failovers}, {told + untold} connections")
            for setting in SETTINGS:
                fail = partial(_fail, open_cluster, setting, told, untold)
                found[setting].append(journal.row(f"losses {turn}: {setting.figure}", fail))
    for setting, rows in found.items():
        target = Target(setting.bound(told, untold), whole=True)
        results.figures[setting.figure] = Figure.of([row["cut"] for row in rows], "1", target)


@contextmanager
def _cluster(prefix: str) -> Iterator[Cluster]:
    """Open a cluster of firewalls between two routers."""
    with World(MEMBERS[0], prefix, between=Between.ROUTER) as world:
        first = SETTINGS[0]._asdict()
        with Cluster(world, silent_s=_SILENT_S, **first) as cluster:
            yield cluster


def _fail(open_cluster: Callable[[], Cluster], setting: Setting, told: int, untold: int) -> dict[str, float]:
    """Open connections, lose the owner's messages, open more, kill it, and count what is left."""
    cluster = open_cluster()
    world = cluster.world
    world.via(OWNER)
    cluster.change(**setting._asdict())
    cluster.wait_whole()
    cluster.forget_all()
    with ExitStack() as stack:
        door = stack.enter_context(world.inside(SERVER, _listen))
        pairs = _open(stack, world, door, told, _OPENED_S)
        if len(pairs) < told:
            raise Refused(f"{told - len(pairs)} of {told} connections do not open ({setting.figure})")
        if setting.level is not Level.NONE:
            wait_until(lambda: _count_open(cluster, _SUCCESSOR) >= told, "a member is not told what opened")
        _end_process(cluster)
        world.run(MIDDLE, "nft", "-f", "-", text=_LOSING)
        pairs += _open(stack, world, door, untold, _WAITING_S)
        cluster.stop(OWNER)
        world.via(_SUCCESSOR)
        world.run(MIDDLE, "nft", "delete", "table", "ip", "losses")
        cut = count_silent(pairs, _HEARD_S)
    cluster.start(OWNER)
    cluster.wait_whole()
    return asdict(Loss(len(pairs), cut))


def _count_open(cluster: Cluster, number: int) -> int:
    """Return how many open connections a member knows."""
    return cluster.nodes[number].kernel.states().get((socket.IPPROTO_TCP, State.ESTABLISHED), 0)


def _end_process(cluster: Cluster) -> None:
    """Leave the owner's program with its settings, and nobody who sends lost messages again."""
    owner = cluster.nodes[OWNER]
    settings = owner.kernel.settings()
    owner.member.stop()
    owner.kernel.configure(settings)


def _listen() -> socket.socket:
    return socket.create_server((SERVER4, _PORT), backlog=4096)


def _open(stack: ExitStack, world: World, door: socket.socket, count: int, within_s: float) -> list[Pair]:
    """Begin connections at once; return both ends of those that both have open in time."""
    begun = {}
    for link in world.inside(CLIENT, lambda: [socket.socket() for _ in range(count)]):
        stack.enter_context(link)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS_AT_ONCE)
        link.setblocking(False)
        link.connect_ex((SERVER4, _PORT))
        begun[link.getsockname()] = link
    opened: list[Pair] = []
    until_s = time.monotonic() + within_s
    with suppress(TimeoutError):
        while len(opened) < count and (left_s := until_s - time.monotonic()) > 0:
            door.settimeout(left_s)
            far, client = door.accept()
            stack.enter_context(far)
            if client in begun:
                opened.append((begun[client], far))
    return opened


def count_silent(pairs: Sequence[Pair], within_s: float) -> int:
    """Have both ends speak; return how many connections have one that is not heard."""
    heard = [0] * len(pairs)
    quiet: dict[int, tuple[socket.socket, int]] = {}
    with select.epoll() as waiting:
        for place, pair in enumerate(pairs):
            for end in pair:
                end.setblocking(False)
                quiet[end.fileno()] = end, place
                waiting.register(end, select.EPOLLIN)
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.send(b"?")
        until_s = time.monotonic() + within_s
        while quiet and time.monotonic() < until_s:
            for number, _ in waiting.poll(0.05):
                end, place = quiet.pop(number)
                waiting.unregister(number)
                with suppress(OSError):
                    heard[place] += bool(end.recv(10))
    return sum(ends < 2 for ends in heard)
