"""Connections that talk until an edit cuts some, and how soon these are silent.

    this process: edits, and asks ──pipe──▶ the ends that opened connections, every other of which speaks
                                  ──pipe──▶ the ends that accepted them, where the others speak

Each side is a process of its own: what talks takes no interpreter's time from the compiler that is measured, and no
process has to hold the files of both. Connections that are to be cut speak so often that of a thousand one is heard
every tenth of a millisecond.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection as Pipe

from orchestrator.errors import Drifted, Missing

_FORKED = multiprocessing.get_context("fork")
_STEP_S = 0.002
_PATIENCE_S = 10.0
_TRIES = 3
_OPENED_S = 120.0
"""Within this time all connections are open, through whatever firewall."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often connections speak, and for how long after an edit.

    `missed` are those that are heard in the last fifth of the time since it began.
    """

    forbidden_every_s: float
    kept_every_s: float
    after_s: float

    @classmethod
    def of(cls, connections: int) -> Pace:
        """Return the pace of so many connections.

        Fewer speak more often, and their round is shorter.
        """
        kept_every_s = max(0.5, connections / 5_000)
        return cls(0.1, kept_every_s, 2 * kept_every_s + 1.0)


@dataclass(frozen=True, slots=True)
class Cut:
    """The outcome of a round: when the cut was complete, and how many were wrong.

    `missed` are forbidden and go on, `lost` are permitted and silent.
    """

    cut_ms: float
    missed: int
    lost: int


def draw_tenth(connections: int, seed: int) -> frozenset[int]:
    """Return the numbers of a random tenth of the connections."""
    dice = random.Random(seed)  # noqa: S311  (no secret)
    return frozenset(dice.sample(range(connections), connections // 10))


def measure_cut(talks: Talks, edit: Callable[[], None]) -> Cut:
    """Let connections talk, make an edit, and listen to how they end.

    Raises Drifted where one is silent before the edit.
    """
    pace = Pace.of(len(talks.forbidden))
    talks.begin(pace)
    _wait_until_heard(talks, pace.kept_every_s)
    began_s = time.monotonic()
    edit()
    time.sleep(pace.after_s)
    return conclude(talks.hear_all(), began_s, time.monotonic())


def _wait_until_heard(talks: Talks, every_s: float) -> None:
    ends_s = time.monotonic() + every_s + _PATIENCE_S
    while not all(each.heard_s for each in talks.hear_all()):
        if time.monotonic() > ends_s:
            raise Drifted("a connection is silent before anything was forbidden")
        time.sleep(every_s / 4)


@dataclass(frozen=True, slots=True)
class Heard:
    """When a connection was heard last, in monotonic seconds, and whether it is forbidden.

    0: never.
    """

    heard_s: float
    forbidden: bool


def conclude(talks: Sequence[Heard], began_s: float, ended_s: float) -> Cut:
    """Return what became of connections of which some were forbidden when the clock began."""
    silent = [talk for talk in talks if talk.forbidden]
    cut_s = max(talk.heard_s for talk in silent)
    lost = [talk for talk in talks if not talk.forbidden and talk.heard_s <= cut_s]
    missed = [talk for talk in silent if talk.heard_s > ended_s - (ended_s - began_s) / 5]
    return Cut(1e3 * max(0.0, cut_s - began_s), len(missed), len(lost))


@dataclass(slots=True, eq=False)
class Talk:
    """An end of a connection, which either speaks or hears.

    `heard_s` is when it heard something last, in monotonic seconds; 0: never.
    """

    end: socket.socket
    speaks: bool
    forbidden: bool
    heard_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Talks:
    """Connections, which of them are forbidden, and pipes to the processes with their ends."""

    forbidden: Sequence[bool]
    sides: Sequence[Pipe]

    def begin(self, pace: Pace) -> None:
        """Have both sides talk from now on, until their processes end."""
        for side in self.sides:
            side.send(pace)

    def hear_all(self) -> list[Heard]:
        """Return when each connection was heard last, as of now."""
        for side in self.sides:
            side.send(None)
        times: list[list[float]] = [side.recv() for side in self.sides]
        return [Heard(max(both), forbidden) for forbidden, *both in zip(self.forbidden, *times, strict=True)]


def connect_all(
    stack: ExitStack, door: socket.socket, clients: Sequence[tuple[str, int]], forbidden: frozenset[int]
) -> Talks:
    """Open a connection from each of these addresses and ports to a socket that listens.

    Called inside the client. The connections end with the stack. Raises Drifted where one does not open.
    """
    raise_limit(len(clients))
    is_forbidden = [number in forbidden for number in range(len(clients))]
    accepts = _start_side(stack, partial(_accept_all, door, clients, is_forbidden))
    opens = _start_side(stack, partial(_open_all, door.getsockname(), clients, is_forbidden))
    for side in (opens, accepts):
        try:
            opened = side.poll(_OPENED_S) and side.recv()
        except EOFError:
            opened = False
        if not opened:
            raise Drifted("a connection does not open, or at one end alone")
    return Talks(is_forbidden, (opens, accepts))


def _start_side(stack: ExitStack, make_talks: Callable[[], Sequence[Talk]]) -> Pipe:
    """Start a process that makes one side's ends and talks; return the pipe to it."""
    ours, its = _FORKED.Pipe()
    process = _FORKED.Process(target=_talk_aside, args=(make_talks, its, ours), daemon=True)
    process.start()
    its.close()
    stack.callback(process.join, _PATIENCE_S)
    stack.callback(process.kill)
    return ours


def _talk_aside(make_talks: Callable[[], Sequence[Talk]], asks: Pipe, other: Pipe) -> None:
    other.close()  # else it would wait for itself when the process that asks has ended
    talks = make_talks()
    asks.send(True)
    pace: Pace = asks.recv()
    threading.Thread(target=_go_on, args=(talks, pace), daemon=True).start()
    with suppress(EOFError):
        while True:
            asks.recv()
            asks.send([talk.heard_s for talk in talks])


def _open_all(door: tuple[str, int], clients: Sequence[tuple[str, int]], forbidden: Sequence[bool]) -> list[Talk]:
    """Open connections; every other one speaks from here."""
    talks = []
    for number, client in enumerate(clients):
        talks.append(_talk(_open_end(door, client), number % 2 == 1, forbidden[number]))
    return talks


def _open_end(door: tuple[str, int], client: tuple[str, int]) -> socket.socket:
    """Connect from an address; from another port where the first is not answered.

    A connection that a round before has left at the server alone answers a SYN of its port with an ACK.
    """
    for tries_left in reversed(range(_TRIES)):
        end = socket.socket()
        end.settimeout(_PATIENCE_S)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        end.bind(client)
        try:
            end.connect(door)
        except TimeoutError:
            end.close()
            if not tries_left:
                raise
        else:
            return end
    raise AssertionError("the last try returns or raises")


def _accept_all(door: socket.socket, clients: Sequence[tuple[str, int]], forbidden: Sequence[bool]) -> list[Talk]:
    """Accept connections, in whatever order their last ACKs come."""
    numbers = {client: number for number, client in enumerate(clients)}
    talks: dict[int, Talk] = {}
    while len(talks) < len(clients):
        end, (address, port) = door.accept()
        number = numbers.get((address, port), numbers.get((address, 0), -1))
        talks[number] = _talk(end, number % 2 == 0, forbidden[number])
    return [talks[number] for number in range(len(clients))]


def _talk(end: socket.socket, speaks: bool, forbidden: bool) -> Talk:
    """Return a talk over a connected socket that does not block."""
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setblocking(False)
    return Talk(end, speaks, forbidden)


def _go_on(talks: Sequence[Talk], pace: Pace) -> None:
    """Talk for ever: in each step the share of the connections whose turn it is."""
    speakers = [talk for talk in talks if talk.speaks]
    groups = [
        Turns([talk for talk in speakers if talk.forbidden], pace.forbidden_every_s),
        Turns([talk for talk in speakers if not talk.forbidden], pace.kept_every_s),
    ]
    of = {talk.end.fileno(): talk for talk in talks if not talk.speaks}
    with select.epoll() as waiting:
        for number in of:
            waiting.register(number, select.EPOLLIN)
        began_s = time.monotonic()
        while True:
            for group in groups:
                group.speak(time.monotonic() - began_s)
            for number, _ in waiting.poll(_STEP_S):
                if _hears(of[number].end):
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
                self.talks[turn % len(self.talks)].end.send(b"speaking")
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
