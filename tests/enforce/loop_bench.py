"""A loop around the real driver and a fake switch: what was asked of the device, and what was reported of it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from enforce.programs import change
from patience import PATIENCE_S

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.enforce import gap
from orchestrator.enforce.changing import Changing
from orchestrator.enforce.counting import Change
from orchestrator.enforce.driver import Hits, Observed, Stamp
from orchestrator.enforce.drivers.openflow.channel import StreamChannel
from orchestrator.enforce.drivers.openflow.driver import Switch
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, channel_to
from orchestrator.enforce.loop import Loop
from orchestrator.enforce.standing import Goal, Point, Timing
from orchestrator.program.delta import Delta
from orchestrator.program.flows import U64
from orchestrator.program.program import Program
from orchestrator.wire.points import PointState

NUMBERS = {"p1": 1, "p2": 2}
QUICK = Timing(observe_every_s=0.1, count_every_s=3600, retry_s=0.02, longest_retry_s=0.1, absent_after_s=3600)
SLOW = replace(QUICK, observe_every_s=3600)


class Spied(Switch):
    """A switch that notes what is asked of it, and fails when told to."""

    def __init__(self, channel: StreamChannel) -> None:
        super().__init__(channel, uplink="p2", timeout_s=PATIENCE_S)
        self.asked: list[str] = []
        self.before: dict[str, Callable[[], None]] = {}
        self.after: dict[str, Callable[[], None]] = {}

    def claim(self, epoch: int) -> bool:
        self._note("claim")
        return super().claim(epoch)

    def observe(self, cookies: U64 | None = None) -> Observed:
        self._note("observe" if cookies is None else "read back")
        observed = super().observe(cookies)
        self._once(self.after, "observe" if cookies is None else "read back")
        return observed

    def apply(self, delta: Delta, stamp: Stamp) -> None:
        self._note("apply")
        super().apply(delta, stamp)
        self._once(self.after, "apply")

    def change(self, delta: Delta, stamp: Stamp) -> Changing:
        self._note("change")
        changed = yield from super().change(delta, stamp)
        self._once(self.after, "change")
        return changed

    def _note(self, verb: str) -> None:
        self.asked.append(verb)
        self._once(self.before, verb)

    @staticmethod
    def _once(hooks: dict[str, Callable[[], None]], verb: str) -> None:
        hooks.pop(verb, lambda: None)()


def fail(error: Exception) -> Callable[[], None]:
    def hook() -> None:
        raise error

    return hook


BY_ROW, BY_COLUMN = ("change",), ("apply", "read back")
"""What a change asks of a device, by how many rows count as few."""


class Counted:
    """Keeps what the loop tells of counters."""

    def __init__(self) -> None:
        self.hits: queue.Queue[Hits] = queue.Queue()
        self.changes: queue.Queue[Change] = queue.Queue()

    def note_poll(self, host: str, hits: Hits, took_s: float) -> None:
        self.hits.put(hits)

    def note_change(self, host: str, change: Callable[[], Change]) -> None:
        self.changes.put(change())

    def forget(self, host: str) -> None:
        pass


def is_of_a_program(cookie: int) -> bool:
    """Whether a flow is none of the driver's own."""
    found = Cookie.unpack(cookie)
    return found is None or found.kind is not Kind.STAMP


class Bench:
    """A fake switch, a loop, and what the loop reported. `route` is what a change of one rule asks of the device."""

    def __init__(self, timing: Timing = SLOW, route: tuple[str, ...] = BY_ROW) -> None:
        self.route = list(route)
        self.switch = FakeSwitch(dict(NUMBERS))
        self.points: queue.Queue[Point] = queue.Queue()
        self.counted = Counted()
        self.loop = Loop("host1", self.points.put, self.counted, timing=timing)
        self.device = self.connection()
        self.loop.lead(7)
        self.loop.start()

    def connection(self) -> Spied:
        return Spied(channel_to(self.switch))

    def attach(self, goal: Program | None = None) -> None:
        """Connect the switch; with a goal, wait until it is there."""
        if goal is not None:
            self.loop.aim(Goal(goal))
        self.loop.attach(self.device)
        if goal is not None:
            self.wait(PointState.ENFORCED)

    def wait(self, state: PointState, generation: int | None = None) -> Point:
        """The next report of a state (and generation); those before it are passed over."""
        while True:
            point = self.points.get(timeout=PATIENCE_S)
            if point.state is state and generation in (None, point.generation):
                return point

    def flows(self) -> set[tuple[int, int, bytes, int]]:
        """What the switch holds of programs."""
        return {
            (entry.table, entry.priority, entry.match_bytes, entry.cookie)
            for entry in self.switch.entries()
            if is_of_a_program(entry.cookie)
        }

    def wanted(self, goal: Program) -> set[tuple[int, int, bytes, int]]:
        placed = self.device.resolve(goal.flows, goal.ports)
        return {(row.table, row.priority, row.match, row.cookie) for row in placed.rows()}

    def close(self) -> None:
        self.loop.stop()


@pytest.fixture(params=[BY_ROW, BY_COLUMN], ids=["by row", "by column"])
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    if request.param is BY_COLUMN:
        monkeypatch.setattr(gap, "FEW_ROWS", -1)
    bench = Bench(route=request.param)
    yield bench
    bench.close()


@pytest.fixture
def watchful() -> Iterator[Bench]:
    """As `bench`, with a loop that looks often."""
    bench = Bench(QUICK)
    yield bench
    bench.close()


def goal_after(old: Program, new: Program) -> Goal:
    return Goal(old).followed_by(new, change(old, new))
