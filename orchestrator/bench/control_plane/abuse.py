"""One tenant's single rules while another sends the worst lists under its ceiling.

The parts of a service run in a process of its own (``python -m orchestrator.bench.control_plane.abuse CHANGES``), on
SQLite and without HTTP; one host is simulated and reads back at once what it is given. The lists are those that took
longest of all that a search tried: rules that cross each other in both directions, whose actions and order turn around,
so that what must be held back is looked for; as many flow entries as the ceiling allows; hundreds of conjunctions.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import structlog

from orchestrator.bench.results import Figure, Results, Target
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.enforcement import Enforcement, Report
from orchestrator.control.metrics import Metrics
from orchestrator.control.publisher import Publisher
from orchestrator.errors import AclflowError, Busy, Unreachable
from orchestrator.memory import collect_seldom
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Endpoint, Rule, RuleId, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.store import open_store
from orchestrator.store.points.records import PointReport, PointState
from orchestrator.store.records import HostRecord
from orchestrator.store.unit import Unit

_DOMAIN, _HOST = "bench", "h"
_ABUSER, _OTHER = "abuser", "other"
_QUICK, _FULL = 300, 2_000
_P99 = Target(3.0)
_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Outcome:
    """Milliseconds of single rules without and with abuse, and how many lists were put meanwhile."""

    quiet: Sequence[float]
    abused: Sequence[float]
    lists: int
    longest_list_s: float


def measure(results: Results, progress: Callable[[str], None], *, quick: bool) -> None:
    """Measure in a process of its own. Raises Unreachable if that fails."""
    changes = _QUICK if quick else _FULL
    progress(f"{changes} rules of one tenant while another one sends the worst lists")
    command = [sys.executable, "-m", "orchestrator.bench.control_plane.abuse", str(changes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unreachable(f"abuse could not be measured: {done.stderr.strip()[-500:]}")
    found = Outcome(**json.loads(done.stdout))
    quiet, abused = (float(np.percentile(each, 99)) for each in (found.quiet, found.abused))
    results.figures["one_rule_p99_under_abuse_vs_quiet"] = Figure.of([abused / quiet], "ratio", _P99)
    results.figures["one_rule_p99_quiet_ms"] = Figure.of([quiet], "ms")
    results.figures["one_rule_p99_under_abuse_ms"] = Figure.of([abused], "ms")
    results.figures["one_rule_longest_under_abuse_ms"] = Figure.of([max(found.abused)], "ms")
    results.notes.append(
        f"abuse: {found.lists} of the worst lists were put meanwhile, the longest took {found.longest_list_s:.1f} s "
        "with its waiting; a tenant whose turns take long lets others go first, so a few of their writes wait for one"
    )


class _World:
    """A domain with one host and two tenants."""

    def __init__(self, folder: Path) -> None:
        self._store = open_store(f"sqlite:///{folder / 'store.db'}")
        self._publisher = Publisher()
        self._control = Control(self._store, Compiler(Metrics()), self._publisher)
        self._enforcement = Enforcement(self._store, Metrics(), told=self._control.reported)
        self._control.start()
        self._control.write(_fill)
        with self._store.write() as unit:
            token = unit.enforcers.invite(_DOMAIN, expires=unit.now + dt.timedelta(hours=1), author="bench")
            self._enforcer = unit.enforcers.enrol(token, name="controller", kind="openflow").enforcer.id
        self._sequence = itertools.count(1)

    def close(self) -> None:
        self._publisher.close()
        self._control.stop()
        self._store.close()

    def change_rules(self, changes: int, first: int) -> list[float]:
        """Put rules in and take them out again, one by one; milliseconds of each."""
        taken = []
        for turn in range(first, first + changes // 2):
            rule = _rule(f"one{turn}", destination_ports=(PortRange(1 + turn % 65_535, 1 + turn % 65_535),))
            for work in (_inserting(rule), _deleting(rule.id)):
                started = time.perf_counter()
                self._insist(work)
                taken.append(1000 * (time.perf_counter() - started))
        return taken

    def _insist(self, work: Callable[[Unit], object]) -> None:
        """Write, repeatedly if its turn does not come; the wait counts."""
        while True:
            with suppress(Busy):
                self._control.carry_out(work, payer=_OTHER)
                return

    def put_list(self, acl: Acl) -> float:
        """Put the abuser's list and have its host enforce it; return the write's seconds."""
        started = time.perf_counter()
        is_large = self._control.ceilings.check_list(acl)
        self._control.carry_out(
            lambda unit: unit.acls.replace(_ABUSER, acl, author="bench"), payer=_ABUSER, is_large=is_large
        )
        return time.perf_counter() - started

    def report(self) -> None:
        """Let the host read back the current program."""
        program = self._publisher.program(_DOMAIN)
        if program is not None:
            point = PointReport(_HOST, program.generation, program.digest, PointState.ENFORCED, None, 1)
            self._enforcement.report(_DOMAIN, self._enforcer, Report((point,), next(self._sequence)))


def _fill(unit: Unit) -> None:
    unit.domains.create(_DOMAIN)
    unit.domains.add_host(_DOMAIN, HostRecord(_HOST, 1, "up"))
    for number, (name, owned) in enumerate(((_ABUSER, "0.0.0.0/1"), (_OTHER, "200.0.0.0/8"))):
        prefix = Prefix.parse(owned)
        unit.tenants.create(name, name="", domain=_DOMAIN, prefixes=[prefix])
        address = Prefix(Family.IPV4, prefix.network + 5, 32)
        unit.domains.put_endpoint(_DOMAIN, Endpoint(name, TenantId(name), name, (2 << 40) + number + 1, (address,)))


def _inserting(rule: Rule) -> Callable[[Unit], object]:
    return lambda unit: unit.acls.insert_rule(_OTHER, rule, author="bench", position=0)


def _deleting(name: RuleId) -> Callable[[Unit], object]:
    return lambda unit: unit.acls.delete_rule(_OTHER, name, author="bench")


def worst_lists() -> Iterator[Acl]:
    """Yield the most expensive lists, each with the list that differs most from it."""
    for rules, ports in ((2_000, 16), (500, 60)):
        yield from (_crossing(rules, ports, flipped=flipped) for flipped in (False, True))
    odd = _odd(30)
    address = Prefix.parse("64.0.0.1/32").network
    sides = [Addresses((Prefix(Family.IPV4, address + 2 * each, 32),)) for each in range(200)]
    yield Acl(
        tuple(_rule(f"r{at}", source=side, source_ports=odd, destination_ports=odd) for at, side in enumerate(sides))
    )
    several = [
        Addresses(tuple(Prefix(Family.IPV4, address + 2 * each + at, 32) for each in range(100))) for at in (0, 1)
    ]
    yield Acl(
        tuple(
            _rule(f"r{at}", Action.DENY if at % 2 else Action.PERMIT, source=several[0], destination=several[1],
                  destination_ports=_odd(30, at))
            for at in range(200)
        )
    )  # fmt: skip
    yield Acl()


def _crossing(rules: int, ports: int, *, flipped: bool) -> Acl:
    """Return rules whose port ranges cross: every pair of them shares packets.

    Some have many source ports, some many destination ports.
    """
    made = []
    for number in range(rules):
        some = _odd(ports, number * ports)
        for way in Direction:
            action = Action.DENY if (number + (way is Direction.EGRESS)) % 2 != flipped else Action.PERMIT
            name = f"r{number}{way.value}"
            side = "source_ports" if number % 2 else "destination_ports"
            made.append(_rule(name, action, way, **{side: some}))
    return Acl(tuple(made[:: -1 if flipped else 1]))


def _odd(how_many: int, first: int = 0) -> tuple[PortRange, ...]:
    numbers = sorted({(first + each) * 2 % 65_535 + 1 for each in range(how_many)})
    return tuple(PortRange(number, number) for number in numbers)


def _rule(
    name: str, action: Action = Action.PERMIT, direction: Direction = Direction.INGRESS, **matches: object
) -> Rule:
    return Rule(RuleId(name), action, direction, protocol=TCP, **matches)  # type: ignore[arg-type]


@contextmanager
def _abuse(world: _World, lists: Sequence[Acl]) -> Iterator[list[float]]:
    """Send the lists again and again until the block ends; the seconds of each."""
    over, taken = threading.Event(), list[float]()

    def send() -> None:
        for acl in itertools.cycle(lists):
            if over.is_set():
                return
            try:
                taken.append(world.put_list(acl))
            except AclflowError:
                continue

    def read_back() -> None:
        while not over.wait(_LOOK_S):
            with suppress(Busy):
                world.report()

    threads = [threading.Thread(target=each) for each in (send, read_back)]
    for thread in threads:
        thread.start()
    try:
        yield taken
    finally:
        over.set()
        for thread in threads:
            thread.join()


def cost(changes: int, worst: Sequence[Acl] = ()) -> Outcome:
    """Measure quiet, then under abuse by the `worst` lists, or by those of the suite."""
    with tempfile.TemporaryDirectory() as folder:
        world = _World(Path(folder))
        try:
            world.change_rules(20, 0)
            quiet = world.change_rules(changes, 20)
            with _abuse(world, worst or [*worst_lists()]) as lists:
                abused = world.change_rules(changes, 20 + changes)
                if not lists:
                    abused += world.change_rules(changes, 20 + 2 * changes)
        finally:
            world.close()
    return Outcome(quiet, abused, len(lists), max(lists, default=0.0))


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    collect_seldom()
    sys.stdout.write(json.dumps(asdict(cost(int(sys.argv[1])))))
