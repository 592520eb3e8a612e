"""How soon a changed list cuts the connections that it forbids, of 10,000 that talk.

    clients, an address each ──▶ switch, or a kernel's nftables ──▶ server        both ends are this process

An edit forbids a random tenth of the connections: one rule, first in the list, that denies their clients. Half of the
connections speak from the end that opened them, and half from the other end; forbidden ones so often that some of them
is heard every tenth of a millisecond. The clock begins with the edited policy, and ends when the last byte of a
forbidden connection is heard. So it has the compiler, the change of the rows and the caches behind them in it, and
neither the service nor the way to it. What the list still permits is heard afterwards, each connection.
"""

from __future__ import annotations

import random
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.traffic import filters
from orchestrator.bench.traffic.addresses import SERVER, SERVER_ADDRESS, Clients, policy
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.line import CLIENT, MIDDLE, RIGHT, Line
from orchestrator.bench.traffic.line import SERVER as SERVER_END
from orchestrator.bench.traffic.rules import Listed
from orchestrator.bench.traffic.site import site
from orchestrator.bench.traffic.vnf import Ports, VnfAcl, vnf_acl
from orchestrator.compile.filters.filterprogram import filter_program
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.enforce import gap
from orchestrator.enforce.drivers.nftables.tool import nftables_driver
from orchestrator.errors import Drifted, Missing
from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, Policy, ReturnTraffic, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.program import Program
from orchestrator.wire.firewalls import Plane

CONNECTIONS = 10_000
TALK = PortRange(7001, 7001)
_RULES = 1_000
_FORBIDDEN_EVERY_S, _KEPT_EVERY_S = 0.1, 2.0
_BEFORE_S, _AFTER_S = 2.5, 5.0
"""So long all talk before the edit, so that each is heard, and after it."""
_STEP_S = 0.002
_PATIENCE_S = 10.0
_CUT, _NONE = Target(1000, whole=True), Target(0, whole=True)


def domain_policy(*rules: Rule) -> Policy:
    """Return the policy of a domain that tracks connections: these rules, others, and one that permits the talk."""
    talk = Rule(
        RuleId("talk"), Action.PERMIT, protocol=TCP, destination=Addresses((SERVER,)), destination_ports=(TALK,)
    )
    acl = Acl((*rules, *Listed(_RULES).acl().rules, talk), egress_default=Action.DENY)
    return replace(policy(acl, server_port=RIGHT), return_traffic=ReturnTraffic.TRACKED)


def forbid(clients: Sequence[str]) -> Rule:
    """Return the rule that forbids the connections of these clients."""
    sources = Addresses(tuple(Prefix.parse(each) for each in clients))
    return Rule(RuleId("forbidden"), Action.DENY, source=sources)


class Firewall(Protocol):
    """What enforces a policy in the middle of a line, and remembers connections."""

    def begin(self, wanted: Policy) -> None:
        """Hold a policy, and no connection."""
        ...

    def edit(self, wanted: Policy) -> None:
        """Go over to another policy as in production, from its compilation on."""
        ...


@dataclass(slots=True)
class _SwitchFirewall:
    vnf: VnfAcl
    cache: CompileCache = field(default_factory=CompileCache)

    def begin(self, wanted: Policy) -> None:
        self.cache = CompileCache()
        self.vnf.load(self.cache.compile_program(wanted, domain="bench", generation=1))
        self.vnf.forget_connections()

    def edit(self, wanted: Policy) -> None:
        program = self.cache.compile_program(wanted, domain="bench", generation=2)
        if self.cache.change is None:
            raise Drifted("an edit has no program before it")
        self.vnf.change(self.cache.change, program)


class _FilterFirewall:
    """The kernel's nftables in the middle, written by our driver."""

    def __init__(self, line: Line) -> None:
        self._driver = nftables_driver(lambda command, text: line.run(MIDDLE, *command, text=text))
        self._line = line
        self._held: Program | None = None

    def begin(self, wanted: Policy) -> None:
        filters.clear(self._line, Filter.NFTABLES)
        self._held = self._compile(wanted, 1)
        self._driver.apply(
            gap.correction(self._driver.observe(), self._held, self._driver.resolve), gap.stamp_of(self._held)
        )

    def edit(self, wanted: Policy) -> None:
        if self._held is None:
            raise Drifted("an edit has no program before it")
        program = self._compile(wanted, 2)
        self._driver.apply(gap.step(self._held, program, (), self._driver.resolve), gap.stamp_of(program))

    @staticmethod
    def _compile(wanted: Policy, generation: int) -> Program:
        return filter_program(wanted, [Plane.NFTABLES], domain="bench", generation=generation)


@contextmanager
def _switch(line: Line) -> Iterator[Firewall]:
    with vnf_acl(line, Ports.SYSTEM, tracks_prefixes=True) as vnf:
        yield _SwitchFirewall(vnf)


@contextmanager
def _filter(line: Line) -> Iterator[Firewall]:
    try:
        yield _FilterFirewall(line)
    finally:
        filters.clear(line, Filter.NFTABLES)


FIREWALLS: Mapping[str, Callable[[Line], AbstractContextManager[Firewall]]] = MappingProxyType(
    {"cut_10k": _switch, "cut_10k_nftables": _filter}
)
"""What is measured, by how its figures begin."""


def measure(
    results: Results,
    rounds: int,
    progress: Callable[[str], None],
    layout: Layout | None = None,
    connections: int = CONNECTIONS,
) -> None:
    """Record for each firewall how soon forbidden connections end, which went on, and which of the others ended."""
    for name, begin in FIREWALLS.items():
        try:
            found = list(_measure_firewall(name, begin, rounds, progress, layout, connections))
        except Missing as missing:
            results.absent[f"{name}_ms"] = str(missing)
            continue
        results.figures[f"{name}_ms"] = Figure.of([each.cut_ms for each in found], "ms", _CUT)
        results.figures[f"{name}_missed"] = Figure.of([float(each.missed) for each in found], "1", _NONE)
        results.figures[f"{name}_lost"] = Figure.of([float(each.lost) for each in found], "1", _NONE)
    results.notes.append(
        f"cut_10k: {CONNECTIONS:,} connections, each of a client of its own, through a list of {_RULES:,} rules; an"
        " edit forbids a random tenth. _ms: from the edited policy (compiler, change, caches) to the last byte that one"
        f" of these says and the other end hears; each speaks every {1e3 * _FORBIDDEN_EVERY_S:.0f} ms, from the process"
        f" that compiles. missed: forbidden connections that are heard in the last second of {_AFTER_S:.0f}; lost:"
        " permitted ones that are not heard after the cut"
    )


def _measure_firewall(
    name: str,
    begin: Callable[[Line], AbstractContextManager[Firewall]],
    rounds: int,
    progress: Callable[[str], None],
    layout: Layout | None,
    connections: int,
) -> Iterator[Cut]:
    with site(layout) as place, Line(place, "cuts") as line, begin(line) as firewall:
        for turn in range(rounds):
            progress(f"connections of which an edit forbids a tenth: {name}, round {turn + 1} of {rounds}")
            yield measure_round(line, firewall, connections, turn)


@dataclass(frozen=True, slots=True)
class Cut:
    """What became of the connections of a round."""

    cut_ms: float
    missed: int
    lost: int


def measure_round(line: Line, firewall: Firewall, connections: int, seed: int) -> Cut:
    """Open connections, forbid a random tenth of them, and listen. Raises Drifted where they do not talk before."""
    clients = Clients.OUTSIDE.addresses(connections)
    dice = random.Random(seed)  # noqa: S311  (no secret)
    forbidden = frozenset(dice.sample(range(connections), connections // 10))
    edited = domain_policy(forbid([clients[each] for each in sorted(forbidden)]))
    firewall.begin(domain_policy())
    with ExitStack() as stack:
        talks = Talks(line, stack, clients, forbidden)
        talking = threading.Thread(target=talks.go_on)
        talking.start()
        try:
            time.sleep(_BEFORE_S)
            if not all(each.heard_s for each in talks.all):
                raise Drifted("a connection is silent before anything was forbidden")
            began_s = time.monotonic()
            firewall.edit(edited)
            time.sleep(max(0.0, began_s + _AFTER_S - time.monotonic()))
        finally:
            talks.ended.set()
            talking.join()
    return conclude(talks.all, began_s, time.monotonic())


def conclude(talks: Sequence[Talk], began_s: float, ended_s: float) -> Cut:
    """Return what became of connections of which some were forbidden when the clock began."""
    silent = [talk for talk in talks if talk.forbidden]
    cut_s = max(talk.heard_s for talk in silent)
    lost = [talk for talk in talks if not talk.forbidden and talk.heard_s <= cut_s]
    missed = [talk for talk in silent if talk.heard_s > ended_s - 1.0]
    return Cut(1e3 * max(0.0, cut_s - began_s), len(missed), len(lost))


# ------------------------------------------------------------------------------------------------------- connections


@dataclass(slots=True, eq=False)
class Talk:
    """A connection: one end speaks, the other hears, and when it did last (monotonic seconds; 0: never)."""

    speaker: socket.socket
    hearer: socket.socket
    forbidden: bool
    heard_s: float = 0.0


class Talks:
    """Connections that talk until `ended`, those that are to be forbidden more often than the others."""

    def __init__(self, line: Line, stack: ExitStack, clients: Sequence[str], forbidden: frozenset[int]) -> None:
        _raise_limit(2 * len(clients) + 100)
        self.ended = threading.Event()
        door = stack.enter_context(line.inside(SERVER_END, _listen))
        self.all: list[Talk] = line.inside(CLIENT, lambda: list(_connect_all(stack, door, clients, forbidden)))

    def go_on(self) -> None:
        """Talk, until it is ended: in each step the share of the connections whose turn it is."""
        groups = [
            Turns([talk for talk in self.all if talk.forbidden], _FORBIDDEN_EVERY_S),
            Turns([talk for talk in self.all if not talk.forbidden], _KEPT_EVERY_S),
        ]
        of = {talk.hearer.fileno(): talk for talk in self.all}
        with select.epoll() as waiting:
            for number in of:
                waiting.register(number, select.EPOLLIN)
            began_s = time.monotonic()
            while not self.ended.is_set():
                now = time.monotonic()
                for group in groups:
                    group.speak(now - began_s)
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


def _listen() -> socket.socket:
    return socket.create_server((SERVER_ADDRESS, TALK.low), backlog=1024)


def _connect_all(
    stack: ExitStack, door: socket.socket, clients: Sequence[str], forbidden: frozenset[int]
) -> Iterator[Talk]:
    """Open a connection of each client; every other one speaks from the server's end. Called inside the client."""
    for number, client in enumerate(clients):
        near = stack.enter_context(
            socket.create_connection((SERVER_ADDRESS, TALK.low), timeout=_PATIENCE_S, source_address=(client, 0))
        )
        far = stack.enter_context(door.accept()[0])
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setblocking(False)
        yield Talk(*((near, far) if number % 2 else (far, near)), number in forbidden)


def _hears(end: socket.socket) -> bool:
    """Take what has come; False if the connection is over."""
    try:
        return bool(end.recv(1 << 12))
    except OSError:
        return False


def _raise_limit(files: int) -> None:
    """Let this process hold so many files more. Raises Missing where it may not."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files + 1_000
    if most != resource.RLIM_INFINITY and most < wanted:
        raise Missing(f"this process may hold {most} files, and {wanted} are needed: ulimit -Hn {wanted}")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
