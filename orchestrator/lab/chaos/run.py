"""Rounds of writes and faults with packets on the wire, and their outcome.

    a round    a few writes begin ── a fault strikes, and lasts ── it is undone, what has ended starts again
               ── all hosts hold the last write ── the lists are as acknowledged ── packets fare exactly as they say

The seed gives lists, faults, their order and their times; the machine's own timing differs from run to run.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from orchestrator.client import Client
from orchestrator.errors import AclflowError
from orchestrator.lab import processes
from orchestrator.lab.chaos import faults
from orchestrator.lab.chaos.faults import Fault
from orchestrator.lab.chaos.ledger import Arrival, Ledger
from orchestrator.lab.chaos.prober import Prober
from orchestrator.lab.chaos.stage import SQLITE, STEPPED, Stage, raise_stage
from orchestrator.lab.chaos.world import FIRST, TENANTS, World
from orchestrator.lab.chaos.writer import Burst, Writer
from orchestrator.lab.layout import Layout
from orchestrator.lab.pop import Lab, Progress

_PATIENCE_S = 90.0
_STEP_PATIENCE_S = 4.0
_LOOK_S = 0.02
_QUIET_BATCHES = 4
_MOST_SHOWN = 10
Told = Callable[[str, float, int], None]
"""Is told what happens, the part of the time that is over, and how many packets were sent."""


@dataclass(slots=True)
class Report:
    """The result of a run."""

    seed: int
    store: str
    seconds: float = 0.0
    rounds: int = 0
    packets: int = 0
    arrived: int = 0
    acknowledged: int = 0
    unanswered: int = 0
    confirmed: int = 0
    taken_back: int = 0
    wrong: int = 0
    missing: int = 0
    lost_writes: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    """How often each fault struck."""
    not_reached: dict[str, int] = field(default_factory=dict)
    """Rounds in which a process did not come to the step at which it should have ended: no fault struck."""
    settled_s: list[float] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def document(self) -> dict[str, object]:
        """Return it as a JSON object."""
        return {**asdict(self), "good": self.is_good}

    @property
    def is_good(self) -> bool:
        """Whether nothing happened that must not."""
        return not (self.wrong or self.missing or self.lost_writes or self.troubles)


@dataclass(frozen=True, slots=True)
class Wishes:
    """The settings of a run."""

    seed: int
    seconds: float
    store: str = SQLITE
    rounds: int | None = None
    only: str = ""
    """Faults whose names contain it."""
    gives_up: float = 0.3
    """The part of the unanswered writes that another one takes the place of."""
    command: tuple[str, ...] = STEPPED
    """How processes are started."""


def run(layout: Layout, wishes: Wishes, told: Told, progress: Progress = lambda _: None) -> Report:
    """Run until the time is over.

    Raises Missing, Unreachable, Conflict where there is a lab already.
    """
    world = World(wishes.seed)
    with raise_stage(layout, world, wishes.store, progress, wishes.command) as stage, stage.plane.client() as client:
        generation = client.domains.read(world.spec.domain).generation
        stage.plane.wait_enforced(client, generation)
        ledger = Ledger(world.permits(dict.fromkeys(TENANTS, FIRST)), generation)
        with Prober(stage.lab, world, ledger) as prober, Observer(stage, world, ledger):
            story = Story(stage, world, ledger, prober, client, wishes)
            report = story.tell(told)
        return story.conclude(report)


class Observer:
    """Tells the ledger when all hosts hold a version and forgot earlier decisions."""

    def __init__(self, stage: Stage, world: World, ledger: Ledger) -> None:
        self._stage = stage
        self._domain = world.spec.domain
        self._ledger = ledger
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch_until_stopped, name="observer")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _watch_until_stopped(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            newest = self._ledger.newest.generation
            if newest > self._ledger.enforced:
                try:
                    self._look_for_enforced(newest)
                except AclflowError:  # the service or the switch is away
                    self._stopping.wait(0.2)

    def _look_for_enforced(self, generation: int) -> None:
        with self._stage.plane.client() as client:
            if client.domains.wait_until_enforced(self._domain, generation, timeout_s=1.0).done:
                forgotten(self._stage.lab)
                self._ledger.enforce(generation)


def forgotten(lab: Lab) -> None:
    """Wait until the switches have looked at each cached decision again."""
    for daemon in lab.daemons * 2:
        daemon.appctl("revalidator/wait")


class Story:
    """One run's rounds."""

    def __init__(
        self, stage: Stage, world: World, ledger: Ledger, prober: Prober, client: Client, wishes: Wishes
    ) -> None:
        self._wishes = wishes
        self._stage = stage
        self._world = world
        self._ledger = ledger
        self._prober = prober
        self._client = client
        self._writer = Writer(
            lambda: Client(stage.url(), stage.plane.token, plain_http=True), world, ledger, wishes.gives_up
        )
        self._receivers = {kind.number: kind.receiver for kind in world.kinds}

    def tell(self, told: Told) -> Report:
        """Carry out rounds until the time is over or a fault cannot be mended."""
        wishes = self._wishes
        report = Report(wishes.seed, wishes.store)
        chosen = tuple(each for each in faults.matrix() if wishes.only in each.name)
        cards = faults.deck(chosen, self._world.draw.shuffle)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < wishes.seconds and report.rounds != wishes.rounds:
            fault = next(cards)
            told(fault.name, passed / wishes.seconds, self._prober.sent)
            before = len(report.troubles)
            counted = report.faults if self._run_round(fault, report) else report.not_reached
            report.rounds += 1
            counted[fault.name] = counted.get(fault.name, 0) + 1
            report.troubles[before:] = [f"{fault.name}: {each}" for each in report.troubles[before:]]
            if not self._prober.is_alive:
                report.troubles.append("the prober has ended")
            if report.troubles:
                break
        report.seconds = time.monotonic() - began
        return report

    def conclude(self, report: Report) -> Report:
        """Hold every packet that arrived against the ledger."""
        wrong = self._ledger.wrong(self._prober.arrivals, self._receivers)
        report.packets, report.arrived = self._prober.sent, self._prober.arrivals.total()
        report.wrong = sum(wrong.values())
        report.acknowledged, report.unanswered = self._writer.acknowledged, self._writer.unanswered
        report.confirmed, report.taken_back = self._writer.confirmed, self._writer.taken_back
        report.troubles += [self._describe_arrival(each, count) for each, count in list(wrong.items())[:_MOST_SHOWN]]
        report.troubles += self._writer.errors
        return report

    def _describe_arrival(self, arrival: Arrival, count: int) -> str:
        kind = self._world.kinds[arrival.kind]
        between = f"sent in moment {arrival.sent}, seen in {arrival.seen} at {arrival.node}"
        return f"{count} wrong: {kind.packet} from {kind.sender}, {between}"

    # -------------------------------------------------------------------------------------------------------- a round

    def _run_round(self, fault: Fault, report: Report) -> bool:
        """Carry out a round; return whether its fault struck."""
        draw = self._world.draw
        burst = Burst(self._writer, draw.randint(2, 4))
        waits_s, lasts_s = draw.uniform(0.0, 0.15), draw.uniform(*fault.lasts_s)
        try:
            has_struck = self._strike(fault, burst, waits_s)
            time.sleep(lasts_s)
            healed = time.monotonic()
            self._stage.heal()
        except AclflowError as error:  # it does not come back: no write will ever have an outcome
            burst.give_up()
            report.troubles.append(f"the lab cannot go on: {error}")
            return True
        burst.join()
        if burst.error is not None:
            report.troubles.append(f"no write comes through any more: {burst.error}")
            return has_struck
        try:
            self._settle(report)
        except AclflowError as error:
            report.troubles.append(str(error))
        report.settled_s.append(time.monotonic() - healed)
        return has_struck

    def _strike(self, fault: Fault, burst: Burst, waits_s: float) -> bool:
        """Begin writes and a fault; return whether that struck."""
        if not fault.victim:
            burst.start()
            time.sleep(waits_s)
            fault.begin(self._stage)
            return True
        fault.begin(self._stage)
        burst.start()
        fault.lead(self._stage)
        return self._wait_until_ended(fault.victim)

    def _wait_until_ended(self, victim: str) -> bool:
        """Wait until a process has ended at its step; return whether it came to it."""
        until = time.monotonic() + _STEP_PATIENCE_S
        process = self._stage.lab.state.process(victim)
        while (lives := processes.alive(process)) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        return not lives

    def _settle(self, report: Report) -> None:
        """Check that hosts hold the last write, lists are as acknowledged, packets as decided."""
        newest = self._ledger.newest
        self._stage.plane.wait_enforced(self._client, newest.generation, _PATIENCE_S)
        lost = self._writer.check(self._client)
        report.lost_writes += len(lost)
        report.troubles += lost
        until = time.monotonic() + _PATIENCE_S
        while self._ledger.enforced < newest.generation and time.monotonic() < until:
            time.sleep(_LOOK_S)
        while (missing := self._missing(newest.permits)) and time.monotonic() < until:
            pass
        report.missing += sum(missing.values())
        for number, count in list(missing.items())[:_MOST_SHOWN]:
            kind = self._world.kinds[number]
            report.troubles.append(f"{count} missing: {kind.packet} from {kind.sender}")

    def _missing(self, permits: int) -> dict[int, int]:
        """Send some batches; return the permitted kinds of which not all arrived."""
        moment = self._ledger.mark()
        until = time.monotonic() + _PATIENCE_S
        while self._prober.batches[moment] < _QUIET_BATCHES and time.monotonic() < until:
            time.sleep(_LOOK_S)
        after = self._ledger.mark()
        while self._prober.batches[after] < 1 and time.monotonic() < until:
            time.sleep(_LOOK_S)
        sent = self._prober.batches[moment]
        arrived: Counter[int] = Counter()
        for arrival, count in self._prober.arrivals.copy().items():
            if arrival.sent == moment:
                arrived[arrival.kind] += count
        return {
            kind.number: sent - arrived[kind.number]
            for kind in self._world.kinds
            if permits >> kind.number & 1 and arrived[kind.number] < sent
        }
