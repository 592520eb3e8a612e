"""One tenant's single rules while another sends the worst lists under its ceiling.

The parts of a service run in a process of its own (``python -m orchestrator.bench.control_plane.abuse ROUNDS TRIALS``),
on SQLite and without HTTP; one host is simulated and reads back all the time what it is given. First a search finds the
lists that take longest (`worstlists.py`). Then quiet rounds and rounds under abuse take turns: each compares the 99th
percentiles of single rules, so whatever else the machine does meets both.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from orchestrator.bench.control_plane.worstlists import Shape, find_worst, make_rule
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.control.compiler import Compiler
from orchestrator.control.control import Control
from orchestrator.control.enforcement import Enforcement
from orchestrator.control.metrics import Metrics
from orchestrator.control.precompiling import Precompiler
from orchestrator.control.publisher import Publisher
from orchestrator.control.reports import Report
from orchestrator.errors import AclflowError, Busy, TooLarge, Unreachable
from orchestrator.interpreter import collect_seldom, take_turns
from orchestrator.logs import log_errors_alone
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Acl, Endpoint, Rule, RuleId, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.store import open_store
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.records import HostRecord
from orchestrator.store.unit import Unit
from orchestrator.wire.points import PointState

_DOMAIN, _HOST = "bench", "h"
_ABUSER, _OTHER = "abuser", "other"
_CHANGES = 1_024
"""Changes of a round: so many that the slowest hundredth is ten of them."""
_QUICK, _FULL = (3, 6), (7, 24)
"""Rounds, and lists that the search tries."""
_P99 = Target(3.0)
_LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class Outcome:
    """Milliseconds of single rules by round, without and with abuse, and the abuser's lists.

    `refused` is how many answers "busy" (503) each round under abuse had; the wait after one counts as the rule's.
    """

    quiet: Sequence[Sequence[float]]
    abused: Sequence[Sequence[float]]
    refused: Sequence[int]
    lists: int
    longest_list_s: float
    worst: Sequence[str]


def measure(results: Results, progress: Callable[[str], None], *, quick: bool) -> None:
    """Measure in a process of its own. Raises Unreachable if that fails."""
    rounds, trials = _QUICK if quick else _FULL
    progress(f"{rounds} rounds of {_CHANGES} rules of one tenant while another one sends the worst lists")
    command = [sys.executable, "-m", "orchestrator.bench.control_plane.abuse", str(rounds), str(trials)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unreachable(f"abuse could not be measured: {done.stderr.strip()[-500:]}")
    found = Outcome(**json.loads(done.stdout))
    quiet, abused = ([float(np.percentile(each, 99)) for each in rounds] for rounds in (found.quiet, found.abused))
    ratios = [mine / other for mine, other in zip(abused, quiet, strict=True)]
    results.figures["one_rule_p99_under_abuse_vs_quiet"] = Figure.of(ratios, "ratio", _P99)
    results.figures["one_rule_p99_quiet_ms"] = Figure.of(quiet, "ms")
    results.figures["one_rule_p99_under_abuse_ms"] = Figure.of(abused, "ms")
    results.figures["one_rule_longest_under_abuse_ms"] = Figure.of([*map(max, found.abused)], "ms")
    results.figures["one_rule_refused_under_abuse"] = Figure.of([*map(float, found.refused)], "of a round")
    results.notes.append(
        f"abuse: {found.lists} of the worst lists were put meanwhile, the longest took {found.longest_list_s:.1f} s "
        "with its waiting; a tenant whose turns take long lets others go first, so a few of their writes wait for one, "
        f"and of {_CHANGES} so many are answered `busy` first, as `one_rule_refused_under_abuse` says. "
        f"The worst that a search found: {'; '.join(found.worst)}"
    )


class _World:
    """A domain with one host and two tenants."""

    def __init__(self, folder: Path) -> None:
        self._store = open_store(f"sqlite:///{folder / 'store.db'}")
        self._publisher = Publisher()
        self._precompiler = Precompiler()
        self._control = Control(self._store, Compiler(Metrics()), self._publisher, precompiler=self._precompiler)
        self._enforcement = Enforcement(self._store, Metrics(), told=self._control.note_report)
        self._control.start()
        self._control.write(_fill_domain)
        with self._store.write() as unit:
            token = unit.enforcers.invite(_DOMAIN, expires=unit.now + dt.timedelta(hours=1), author="bench")
            self._enforcer = unit.enforcers.enrol(token, name="controller", kind="openflow").enforcer.id
        self._sequence = itertools.count(1)
        self.refused = 0
        """How many writes of single rules were answered that others hold the store."""

    def close(self) -> None:
        self._precompiler.close()
        self._publisher.close()
        self._control.stop()
        self._store.close()

    def change_rules(self, changes: int, first: int) -> list[float]:
        """Put rules in and take them out again, one by one; milliseconds of each."""
        taken = []
        for turn in range(first, first + changes // 2):
            port = PortRange(1 + turn % 65_535, 1 + turn % 65_535)
            rule = make_rule(f"one{turn}", destination_ports=(port,))
            for work in (_make_insertion(rule), _make_deletion(rule.id)):
                started = time.perf_counter()
                self._insist(work)
                taken.append(1000 * (time.perf_counter() - started))
        return taken

    def _insist(self, work: Callable[[Unit], object]) -> None:
        """Write, again where its turn does not come; the wait counts."""
        while True:
            try:
                self._control.carry_out(work, payer=_OTHER)
            except Busy:
                self.refused += 1
            else:
                return

    def put_list(self, acl: Acl) -> float:
        """Put the abuser's list and have its host enforce it; return the write's seconds."""
        started = time.perf_counter()
        estimate = self._control.ceilings.check_list(acl)
        self._control.carry_out(
            lambda unit: unit.acls.replace(_ABUSER, acl, author="bench"), payer=_ABUSER, puts=estimate
        )
        return time.perf_counter() - started

    def report(self) -> None:
        """Let the host read back the current program."""
        program = self._publisher.program(_DOMAIN)
        if program is not None:
            point = PointReport(_HOST, program.generation, program.digest, PointState.ENFORCED, None, 1)
            self._enforcement.report(_DOMAIN, self._enforcer, Report((point,), next(self._sequence)))


def _fill_domain(unit: Unit) -> None:
    unit.domains.create(_DOMAIN)
    unit.domains.add_host(_DOMAIN, HostRecord(_HOST, 1, "up"))
    for number, (name, owned) in enumerate(((_ABUSER, "0.0.0.0/1"), (_OTHER, "200.0.0.0/8"))):
        prefix = Prefix.parse(owned)
        unit.tenants.create(name, name="", domain=_DOMAIN, prefixes=[prefix])
        address = Prefix(Family.IPV4, prefix.network + 5, 32)
        unit.domains.put_endpoint(_DOMAIN, Endpoint(name, TenantId(name), name, (2 << 40) + number + 1, (address,)))


def _make_insertion(rule: Rule) -> Callable[[Unit], object]:
    return lambda unit: unit.acls.insert_rule(_OTHER, rule, author="bench", position=0)


def _make_deletion(name: RuleId) -> Callable[[Unit], object]:
    return lambda unit: unit.acls.delete_rule(_OTHER, name, author="bench")


@contextmanager
def _reading_back(world: _World) -> Iterator[None]:
    """Have the host read back what it is given, until the block ends."""
    over = threading.Event()

    def read_back() -> None:
        while not over.wait(_LOOK_S):
            with suppress(Busy):
                world.report()

    with _beside(read_back, over):
        yield


@contextmanager
def _abuse(world: _World, lists: Sequence[Acl]) -> Iterator[list[float]]:
    """Send the lists again and again until the block ends; the seconds of each."""
    over, taken = threading.Event(), list[float]()

    def send_lists() -> None:
        for acl in itertools.cycle(lists):
            if over.is_set():
                return
            with suppress(AclflowError):
                taken.append(world.put_list(acl))

    with _beside(send_lists, over):
        yield taken


@contextmanager
def _beside(work: Callable[[], None], over: threading.Event) -> Iterator[None]:
    """Run `work` on a thread during the block; `over` ends it."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def find_worst_lists(world: _World, trials: int) -> Mapping[Shape, float]:
    """Return the slowest shapes of a search, with the seconds each takes.

    Measured is a list of that shape that turns into its opposite, also where compiling shows that it is too large.
    """

    def measure_seconds(shape: Shape) -> float:
        one, other = shape.lists()
        with suppress(TooLarge):
            world.put_list(one)
        started = time.perf_counter()
        with suppress(TooLarge):
            world.put_list(other)
        return time.perf_counter() - started

    worst = find_worst(measure_seconds, trials)
    world.put_list(Acl())
    return worst


def cost(rounds: int, trials: int, changes: int = _CHANGES) -> Outcome:
    """Measure rule changes in rounds, each quiet and under abuse by the worst lists.

    The worst lists are searched for first.
    """
    quiet, abused, refused, numbers, sent = [], [], [], itertools.count(20, changes), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        world = _World(Path(folder))
        try:
            with _reading_back(world):
                worst = find_worst_lists(world, trials)
                lists = [each for shape in worst for each in shape.lists()]
                world.change_rules(20, 0)
                for _ in range(rounds):
                    quiet.append(world.change_rules(changes, next(numbers)))
                    before = world.refused
                    with _abuse(world, lists) as taken:
                        abused.append(world.change_rules(changes, next(numbers)))
                    refused.append(world.refused - before)
                    sent += taken
        finally:
            world.close()
    told = [
        f"{each.kind.value} ({each.rules} rules, {each.ports} ports, {each.addresses} addresses): {taken_s:.1f} s"
        for each, taken_s in worst.items()
    ]
    return Outcome(quiet, abused, refused, len(sent), max(sent, default=0.0), told)


if __name__ == "__main__":
    with log_errors_alone():
        take_turns()
        collect_seldom()
        sys.stdout.write(json.dumps(asdict(cost(*map(int, sys.argv[1:])))))
