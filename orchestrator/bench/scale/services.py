"""CPU time of a rule's change: with one service, with two, and an idle one.

Each service's parts run in a process of their own, without HTTP, on one PostgreSQL (``python -m
orchestrator.bench.scale.services URL DOMAINS``). In every domain one simulated enforcement point follows the program.
Four ways, one after the other, with fresh processes:

    one      all changes and all points at one service
    own      two services, each with the changes and the points of half of the domains
    mixed    the same, but changes of each domain go to both services in turn, as a balancer would send them
    idle     all changes and all points at one service, another one looks on
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice

import structlog

from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.duties import Duties
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.errors import Busy, Unreachable
from orchestrator.memory import collect_seldom
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.store import open_store

_RULES = 100
_WATCH_S = 5.0
_LOOK_S = 0.02
_SETTLES_S = 1.0
"""So long after a run's last change whoever follows is done with it."""


@dataclass(frozen=True, slots=True)
class Share:
    """CPU milliseconds of a change: with one service, with two, and of an idle one.

    Those of two services are summed, in both ways that the module names.
    """

    one_ms: float
    own_ms: float
    mixed_ms: float
    idle_ms: float


def measure(url: str, *, domains: int, changes: int) -> Share:
    """Measure on an empty database, which stays filled.

    Raises Unreachable where a service does not start.
    """
    names = [f"share-{number:02}" for number in range(domains)]
    _fill(url, names)
    halves = [names[0::2], names[1::2]]
    turns = list(islice(cycle(names), changes))
    (one,) = _spend(url, [names], [turns])
    own = _spend(url, halves, [[name for name in turns if name in half] for half in halves])
    at_first = [(place + place // domains) % 2 == 0 for place in range(changes)]
    split = [[name for name, first in zip(turns, at_first, strict=True) if first is at] for at in (True, False)]
    mixed = _spend(url, halves, split)
    busy_and_idle = _spend(url, [names, []], [turns, []])
    return Share(one / changes, sum(own) / changes, sum(mixed) / changes, busy_and_idle[1] / changes)


def _fill(url: str, names: Sequence[str]) -> None:
    store = open_store(url)
    try:
        with store.write() as unit:
            for number, name in enumerate(names):
                owned = Prefix(Family.IPV4, (10 << 24) + (number << 16), 16)
                unit.domains.create(name)
                unit.tenants.create(name, name="", domain=name, prefixes=[owned])
                unit.acls.replace(name, Acl(tuple(map(_rule, range(_RULES)))), author="bench")
    finally:
        store.close()


def _spend(url: str, followed: Sequence[Sequence[str]], turns: Sequence[Sequence[str]]) -> list[float]:
    """Return each service's CPU milliseconds while they make their changes in turn."""
    with ExitStack() as stack:
        services = [stack.enter_context(_start_process(url, names)) for names in followed]
        _take_turns(services, [list(dict.fromkeys(names)) for names in turns])  # what is made once is there then
        before = [service.spent_ms() for service in services]
        _take_turns(services, turns)
        time.sleep(_SETTLES_S)
        return [service.spent_ms() - spent for service, spent in zip(services, before, strict=True)]


def _take_turns(services: Sequence[_Process], turns: Sequence[Sequence[str]]) -> None:
    for place in range(max(map(len, turns))):
        for service, names in zip(services, turns, strict=True):
            if place < len(names):
                service.change(names[place])


class _Process:
    """A service in a process of its own, told what to do line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def change(self, domain: str) -> None:
        """Change a rule of a domain, and wait until that is committed."""
        self._ask({"change": domain})

    def spent_ms(self) -> float:
        """CPU milliseconds so far."""
        return float(self._ask({}))

    def _ask(self, words: dict[str, str]) -> str:
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
    publisher, duties = Publisher(), Duties(store.members)
    control = Control(store, Compiler(Metrics()), publisher, duties=duties)
    control.start()
    points = threading.Thread(target=lambda: asyncio.run(_follow(control, followed)), daemon=True)
    points.start()
    while not _is_ready(control, publisher, followed):
        time.sleep(_LOOK_S)
    _say("ready")
    port = int(time.time() * 1000) % 20_000
    for line in sys.stdin:
        domain = json.loads(line).get("change")
        if domain is None:
            _say(str(time.process_time() * 1000))
            continue
        port = (port + 1) % 60_000
        rule = _rule(0, port)
        control.carry_out(
            lambda unit, domain=domain, rule=rule: unit.acls.put_rule(domain, rule, author="bench"),  # type: ignore[misc]
            payer=domain,
        )
        _say("done")
    publisher.close()
    control.stop()
    store.close()


async def _follow(control: Control, domains: Sequence[str]) -> None:
    """Watch each domain's program as an enforcement point does."""

    async def point(domain: str) -> None:
        held = None
        while True:
            try:
                answer = await control.watch(domain, held, _WATCH_S, stored_generation=0)
            except Busy:
                continue
            held = held if answer is None else answer.held

    await asyncio.gather(*map(point, domains))


def _is_ready(control: Control, publisher: Publisher, followed: Sequence[str]) -> bool:
    try:
        control.check_ready()
    except Busy:
        return False
    return all(publisher.program(domain) is not None for domain in followed)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _rule(number: int, port: int = 0) -> Rule:
    far = Addresses((Prefix(Family.IPV4, (192 << 24) + (number << 8), 24),))
    ports = (PortRange(1 + port, 1 + port),)
    return Rule(
        RuleId(f"r{number}"), Action.PERMIT, Direction.INGRESS, source=far, protocol=TCP, destination_ports=ports
    )


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    collect_seldom()
    _serve(sys.argv[1], sys.argv[2:])
