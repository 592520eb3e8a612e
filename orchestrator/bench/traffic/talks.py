"""Connections that talk, until an edit cuts some of them: how soon these are silent, and which others are.

Half of the connections speak from the end that opened them, and half from the other end; both ends are this process.
Those that are to be cut speak so often that of a thousand one is heard every tenth of a millisecond.
"""

from __future__ import annotations

import random
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from orchestrator.errors import Drifted, Missing

_STEP_S = 0.002
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How often connections speak, and for how long before an edit and after it.

    `missed` are those that are heard in the last fifth of the time after it.
    """

    forbidden_every_s: float
    kept_every_s: float
    before_s: float
    after_s: float

    @classmethod
    def of(cls, connections: int) -> Pace:
        """Return the pace of so many connections: fewer speak more often, and their round is shorter."""
        kept_every_s = max(0.5, connections / 5_000)
        return cls(0.1, kept_every_s, kept_every_s + 0.5, 2 * kept_every_s + 1.0)


@dataclass(frozen=True, slots=True)
class Cut:
    """What became of the connections of a round."""

    cut_ms: float
    missed: int
    lost: int


def draw_tenth(connections: int, seed: int) -> frozenset[int]:
    """Return the numbers of a random tenth of the connections."""
    dice = random.Random(seed)  # noqa: S311  (no secret)
    return frozenset(dice.sample(range(connections), connections // 10))


def measure_cut(talks: Sequence[Talk], edit: Callable[[], None]) -> Cut:
    """Let connections talk, make an edit, and listen. Raises Drifted where one is silent before it."""
    ended, pace = threading.Event(), Pace.of(len(talks))
    talking = threading.Thread(target=_go_on, args=(talks, pace, ended))
    talking.start()
    try:
        time.sleep(pace.before_s)
        if not all(each.heard_s for each in talks):
            raise Drifted("a connection is silent before anything was forbidden")
        began_s = time.monotonic()
        edit()
        time.sleep(max(0.0, began_s + pace.after_s - time.monotonic()))
    finally:
        ended.set()
        talking.join()
    return conclude(talks, began_s, time.monotonic())


def conclude(talks: Sequence[Talk], began_s: float, ended_s: float) -> Cut:
    """Return what became of connections of which some were forbidden when the clock began."""
    silent = [talk for talk in talks if talk.forbidden]
    cut_s = max(talk.heard_s for talk in silent)
    lost = [talk for talk in talks if not talk.forbidden and talk.heard_s <= cut_s]
    missed = [talk for talk in silent if talk.heard_s > ended_s - (ended_s - began_s) / 5]
    return Cut(1e3 * max(0.0, cut_s - began_s), len(missed), len(lost))


@dataclass(slots=True, eq=False)
class Talk:
    """A connection: one end speaks, the other hears, and when it did last (monotonic seconds; 0: never)."""

    speaker: socket.socket
    hearer: socket.socket
    forbidden: bool
    heard_s: float = 0.0


def connect_all(
    stack: ExitStack, door: socket.socket, clients: Sequence[tuple[str, int]], forbidden: frozenset[int]
) -> Iterator[Talk]:
    """Open a connection from each of these addresses and ports to a socket that listens.

    Every other one speaks from the end that accepts it. Called inside the client.
    """
    raise_limit(2 * len(clients))
    server = door.getsockname()
    for number, client in enumerate(clients):
        near = stack.enter_context(socket.socket())
        near.settimeout(_PATIENCE_S)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        near.bind(client)
        near.connect(server)
        far = stack.enter_context(door.accept()[0])
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setblocking(False)
        yield Talk(*((near, far) if number % 2 else (far, near)), number in forbidden)


def _go_on(talks: Sequence[Talk], pace: Pace, ended: threading.Event) -> None:
    """Talk, until it is ended: in each step the share of the connections whose turn it is."""
    groups = [
        Turns([talk for talk in talks if talk.forbidden], pace.forbidden_every_s),
        Turns([talk for talk in talks if not talk.forbidden], pace.kept_every_s),
    ]
    of = {talk.hearer.fileno(): talk for talk in talks}
    with select.epoll() as waiting:
        for number in of:
            waiting.register(number, select.EPOLLIN)
        began_s = time.monotonic()
        while not ended.is_set():
            for group in groups:
                group.speak(time.monotonic() - began_s)
            for number, _ in waiting.poll(_STEP_S):
                if _hears(of[number].hearer):
                    of[number].heard_s = time.monotonic()
                else:
                    waiting.unregister(number)


@dataclass(slots=True)
class Turns:
    """Connections that speak one after the other, each once in `every_s`."""

    talks: Sequence[Talk]
    every_s: float
    spoken: int = 0

    def speak(self, passed_s: float) -> None:
        """Have those speak whose turn has come, at most each once."""
        due = int(passed_s * len(self.talks) / self.every_s)
        for turn in range(max(self.spoken, due - len(self.talks)), due):
            with suppress(OSError):  # a connection that was cut; its buffer takes minutes of this
                self.talks[turn % len(self.talks)].speaker.send(b"speaking")
        self.spoken = due


def _hears(end: socket.socket) -> bool:
    """Take what has come; False if the connection is over."""
    try:
        return bool(end.recv(1 << 12))
    except OSError:
        return False


def raise_limit(files: int) -> None:
    """Let this process hold so many files more. Raises Missing where it may not."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files + 1_000
    if most != resource.RLIM_INFINITY and most < wanted:
        raise Missing(f"this process may hold {most} files, and {wanted} are needed: ulimit -Hn {wanted}")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
