"""CPU time of a rule's change: with one service, with two, and an idle one.

Each service's parts run in a process of their own, without HTTP, on one PostgreSQL (``python -m
orchestrator.bench.scale.services URL DOMAINS``). In every domain one simulated enforcement point follows the program.
Four ways, one after the other, with fresh processes, in rounds that take them in turns of either order:

    one      all changes and all points at one service
    own      two services, each with the changes and the points of half of the domains
    mixed    the same, but changes of each domain go to both services in turn, as a balancer would send them
    idle     all changes and all points at one service, another one looks on

Each change waits until the domain's point holds its program: a service that lags behind would leave generations out,
and cost less than it does with points that follow. Work that a service puts off until a domain is at rest is counted.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.duties import Duties
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.control.sealedsteps import SealedSteps
from orchestrator.errors import Busy, Unreachable
from orchestrator.interpreter import collect_seldom
from orchestrator.logs import log_errors_alone
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.store import open_store

RULES = 100
_WATCH_S = 5.0
_LOOK_S = 0.02
_KEY = bytes(32)
_FIRST = 16
RESTS_S = 7.0
"""So long after a run's last change a service has done what it puts off until a domain is at rest."""


@dataclass(frozen=True, slots=True)
class Share:
    """CPU milliseconds of a change: with one service, with two, and of an idle one.

    Those of two services are summed, in both ways that the module names.
    """

    one_ms: float
    own_ms: float
    mixed_ms: float
    idle_ms: float


def measure(url: str, *, domains: int, changes: int, turn: int = 0) -> Share:
    """Measure a round; the database is empty at the first one, and stays filled.

    Odd turns take the four ways the other way round. Raises Unreachable where a service does not start.
    """
    names = [f"share-{number:02}" for number in range(domains)]
    fill_store(url, names, _FIRST)
    halves = [names[0::2], names[1::2]]
    at_one = [_Change(0, names[place % domains], place) for place in range(changes)]
    apart = [replace(each, service=int(each.domain in halves[1])) for each in at_one]
    in_turns = [replace(each, service=(place + place // domains) % 2) for place, each in enumerate(at_one)]
    ways = {
        "one": ([names], at_one),
        "own": (halves, apart),
        "mixed": (halves, in_turns),
        "idle": ([names, []], at_one),
    }
    order = sorted(ways, reverse=turn % 2 == 0)
    spent = {name: _spend(url, *ways[name], run=turn * len(order) + order.index(name)) for name in order}
    each_ms = {name: sum(services) / changes for name, services in spent.items()}
    return Share(each_ms["one"], each_ms["own"], each_ms["mixed"], spent["idle"][1] / changes)


def fill_store(url: str, names: Sequence[str], first: int) -> None:
    """Make domains with a tenant each, whose prefixes are 10.FIRST.0.0/16 and those after it.

    Those of measurements that share a database must differ.
    """
    store = open_store(url)
    try:
        with store.write() as unit:
            for number, name in enumerate(names, first):
                if name in unit.domains.names():
                    continue
                owned = Prefix(Family.IPV4, (10 << 24) + (number << 16), 16)
                unit.domains.create(name)
                unit.tenants.create(name, name="", domain=name, prefixes=[owned])
                unit.acls.replace(name, Acl(tuple(map(make_rule, range(RULES)))), author="bench")
    finally:
        store.close()


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a domain's rule, and the service that it is sent to.

    `number` says which rule, and how.
    """

    service: int
    domain: str
    number: int


def _spend(url: str, followed: Sequence[Sequence[str]], changes: Sequence[_Change], *, run: int) -> list[float]:
    """Return each service's CPU milliseconds while they make changes one by one.

    In no two runs a rule is given the same ports.
    """
    with ExitStack() as stack:
        services = [stack.enter_context(_start_process(url, names)) for names in followed]
        points = {name: service for service, names in zip(services, followed, strict=True) for name in names}
        first = {(each.service, each.domain): each for each in reversed(changes)}

        def make_changes(made: Iterable[_Change], part: int) -> None:
            for each in made:
                generation = services[each.service].change(each.domain, each.number + (2 * run + part) * len(changes))
                points[each.domain].wait_until_held(each.domain, generation)
            time.sleep(RESTS_S)

        make_changes(first.values(), 0)  # what is made once is there then
        before = [service.spent_ms() for service in services]
        make_changes(changes, 1)
        return [service.spent_ms() - spent for service, spent in zip(services, before, strict=True)]


class _Process:
    """A service in a process of its own, told what to do line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def change(self, domain: str, number: int) -> int:
        """Change a rule of a domain; return the generation once that is committed."""
        return int(self._ask_process({"change": domain, "number": number}))

    def wait_until_held(self, domain: str, generation: int) -> None:
        """Wait until the point of a domain here holds a generation."""
        self._ask_process({"held": domain, "number": generation})

    def spent_ms(self) -> float:
        """CPU milliseconds so far."""
        return float(self._ask_process({}))

    def _ask_process(self, words: dict[str, str | int]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> str:
        """Return the next line that it says. Raises Unreachable when it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unreachable("a service of the suite has ended: what it said is above")
        return line.strip()


@contextmanager
def _start_process(url: str, followed: Sequence[str]) -> Iterator[_Process]:
    command = [sys.executable, "-m", __name__, url, *followed]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        service = _Process(process)
        try:
            service.answer()
            yield service
        finally:
            assert process.stdin is not None
            process.stdin.close()


# ------------------------------------------------------------------------------------------------- in a service


def _serve(url: str, followed: Sequence[str]) -> None:
    """Follow domains, and do what the lines of standard input say until it ends."""
    store = open_store(url)
    publisher, points = Publisher(), _Points()
    duties = Duties(store.members, sealed=SealedSteps(_KEY, store.members))
    control = Control(store, Compiler(Metrics()), publisher, duties=duties)
    control.start()
    threading.Thread(target=lambda: asyncio.run(points.follow(control, followed)), daemon=True).start()
    while not _is_ready(control, publisher, followed):
        time.sleep(_LOOK_S)
    _write_answer("ready")
    for line in sys.stdin:
        words = json.loads(line)
        if "change" in words:
            _write_answer(str(_change(control, words["change"], words["number"])))
        elif "held" in words:
            points.wait_until_held(words["held"], words["number"])
            _write_answer("held")
        else:
            _write_answer(str(time.process_time() * 1000))
    publisher.close()
    control.stop()
    store.close()


def _change(control: Control, domain: str, number: int) -> int:
    """Give a rule of a list other ports; return the generation."""
    rule = make_rule(number % RULES, 1 + number % 60_000)
    done = control.carry_out(lambda unit: unit.acls.put_rule(domain, rule, author="bench"), payer=domain)
    return done.generations[domain]


class _Points:
    """Watches programs as an enforcement point of each domain does."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: dict[str, int] = {}

    async def follow(self, control: Control, domains: Sequence[str]) -> None:
        """Watch domains for good."""
        await asyncio.gather(*(self._follow_one(control, domain) for domain in domains))

    async def _follow_one(self, control: Control, domain: str) -> None:
        held = None
        while True:
            try:
                answer = await control.watches.watch(domain, held, _WATCH_S, stored_generation=0)
            except Busy:
                continue
            if answer is not None:
                held = answer.held
                with self._changed:
                    self._held[domain] = answer.generation
                    self._changed.notify_all()

    def wait_until_held(self, domain: str, generation: int) -> None:
        """Wait until a domain's point holds a generation."""
        with self._changed:
            self._changed.wait_for(lambda: self._held.get(domain, 0) >= generation)


def _is_ready(control: Control, publisher: Publisher, followed: Sequence[str]) -> bool:
    try:
        control.check_ready()
    except Busy:
        return False
    return all(publisher.program(domain) is not None for domain in followed)


def _write_answer(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def make_rule(number: int, port: int = 0) -> Rule:
    """Return one of a list's `RULES` rules, for a port."""
    far = Addresses((Prefix(Family.IPV4, (192 << 24) + (number << 8), 24),))
    ports = (PortRange(1 + port, 1 + port),)
    return Rule(
        RuleId(f"r{number}"), Action.PERMIT, Direction.INGRESS, source=far, protocol=TCP, destination_ports=ports
    )


if __name__ == "__main__":
    with log_errors_alone():
        collect_seldom()
        _serve(sys.argv[1], sys.argv[2:])
