"""The loop around the real driver and a fake switch: it gets to its goal whatever happens on the way."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from enforce.programs import PORTS, change, large_program, program, rule

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.enforce import gap
from orchestrator.enforce.changing import Changing
from orchestrator.enforce.counting import Change
from orchestrator.enforce.driver import Hits, Observed, Stamp
from orchestrator.enforce.drivers.openflow.channel import StreamChannel
from orchestrator.enforce.drivers.openflow.device import Switch
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch, channel_to
from orchestrator.enforce.drivers.openflow.fake.actions import read_instructions
from orchestrator.enforce.drivers.openflow.fake.switch import FlowFilter, Undo
from orchestrator.enforce.drivers.openflow.fake.table import Entry
from orchestrator.enforce.loop import Loop
from orchestrator.enforce.standing import Goal, Point, PointState, Timing
from orchestrator.errors import Drifted, Refused, Unreachable
from orchestrator.program.delta import Delta, between
from orchestrator.program.flows import U64, Flow, FlowTable
from orchestrator.program.program import Program, Tier

NUMBERS = {"p1": 1, "p2": 2}
QUICK = Timing(observe_every_s=0.1, count_every_s=3600, retry_s=0.02, longest_retry_s=0.1, absent_after_s=3600)
SLOW = replace(QUICK, observe_every_s=3600)


class Spied(Switch):
    """A switch that notes what is asked of it, and fails when told to."""

    def __init__(self, channel: StreamChannel) -> None:
        super().__init__(channel, uplink="p2", timeout_s=5.0)
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

    def polled(self, host: str, hits: Hits, took_s: float) -> None:
        self.hits.put(hits)

    def changed(self, host: str, change: Callable[[], Change]) -> None:
        self.changes.put(change())

    def forget(self, host: str) -> None:
        pass


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
            point = self.points.get(timeout=5)
            if point.state is state and generation in (None, point.generation):
                return point

    def flows(self) -> set[tuple[int, int, bytes, int]]:
        """What the switch holds, the stamp aside."""
        return {
            (entry.table, entry.priority, entry.match_octets, entry.cookie)
            for entry in self.switch.entries()
            if entry.table != 253
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


def test_a_new_device_is_claimed_observed_and_brought_to_the_goal(bench: Bench) -> None:
    goal = program([rule(1), rule(2)])
    bench.loop.aim(Goal(goal))
    bench.attach()
    point = bench.wait(PointState.ENFORCED)
    assert point == Point("host1", PointState.ENFORCED, 1, goal.digest, len(goal.flows))
    assert bench.device.asked == ["claim", "observe", "apply", "read back"]
    assert bench.flows() == bench.wanted(goal)
    assert bench.device.observe().stamp == Stamp(1, goal.digest)


def test_one_rule_more_costs_one_write_and_one_look_at_it(bench: Bench) -> None:
    first = program([rule(1)])
    bench.attach(first)
    bench.device.asked.clear()
    second = program([rule(1), rule(2)], generation=2)
    bench.loop.aim(goal_after(first, second))
    bench.wait(PointState.ENFORCED, 2)
    assert bench.device.asked == bench.route
    assert bench.flows() == bench.wanted(second)


def test_a_goal_that_is_there_already_changes_nothing(bench: Bench) -> None:
    goal = program([rule(1)])
    bench.attach(goal)
    again = bench.connection()
    bench.loop.attach(again)
    bench.loop.aim(Goal(goal))
    wait_for(lambda: again.asked == ["claim", "observe"])
    bench.loop.stop()
    assert again.asked == ["claim", "observe"]


def test_a_generation_that_moves_on_is_stamped(bench: Bench) -> None:
    goal = program([rule(1)])
    bench.attach(goal)
    bench.loop.aim(goal_after(goal, replace(goal, generation=2)))
    assert bench.wait(PointState.ENFORCED, 2).digest == goal.digest
    assert bench.device.observe().stamp == Stamp(2, goal.digest)


def test_the_latest_goal_wins_and_those_between_are_left_out(bench: Bench) -> None:
    versions = [program([rule(number) for number in range(count)], generation=count + 1) for count in range(6)]
    bench.attach(versions[0])
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        assert release.wait(5)

    bench.device.before[bench.route[0]] = hold
    goal = Goal(versions[0])
    for old, new in itertools.pairwise(versions):
        goal = goal.followed_by(new, change(old, new))
        bench.loop.aim(goal)
        if new is versions[1]:
            assert entered.wait(5)
    bench.device.asked.clear()
    release.set()
    bench.wait(PointState.ENFORCED, 6)
    assert bench.device.asked == [*bench.route[1:], *bench.route]
    assert bench.flows() == bench.wanted(versions[5])


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("place", [0, -1])
def test_an_error_at_any_moment_ends_in_the_goal(bench: Bench, moment: str, place: int) -> None:
    first, second = program([rule(1)]), program([rule(2)], generation=2)
    bench.attach(first)
    getattr(bench.device, moment)[bench.route[place]] = fail(Unreachable("the line is down"))
    bench.device.asked.clear()
    bench.loop.aim(goal_after(first, second))
    assert bench.wait(PointState.DISCONNECTED).error == "the line is down"
    bench.wait(PointState.ENFORCED, 2)
    assert bench.flows() == bench.wanted(second)
    assert "claim" in bench.device.asked, "whether we still lead is not known after a silence"


def test_a_newer_goal_does_not_wait_for_the_patience_with_the_old() -> None:
    bench = Bench(replace(SLOW, retry_s=3600, longest_retry_s=3600))
    versions = [program([rule(number)], generation=number) for number in (1, 2, 3)]
    bench.attach(versions[0])

    def fail_late() -> None:
        bench.loop.aim(goal_after(versions[1], versions[2]))
        raise Refused("full")

    bench.device.before[bench.route[0]] = fail_late
    bench.loop.aim(goal_after(versions[0], versions[1]))
    bench.wait(PointState.REFUSED)
    bench.wait(PointState.ENFORCED, 3)
    bench.close()


def test_a_fault_of_ours_is_reported_and_does_not_end_the_loop(bench: Bench) -> None:
    first, second = program([rule(1)]), program([rule(2)], generation=2)
    bench.attach(first)
    bench.device.before[bench.route[0]] = fail(ZeroDivisionError("a bug"))
    bench.loop.aim(goal_after(first, second))
    assert bench.wait(PointState.REFUSED).error == "a bug"
    bench.wait(PointState.ENFORCED, 2)


def test_a_refusal_is_reported_with_its_reason_and_leaves_what_was_there(bench: Bench) -> None:
    first = program([rule(1)])
    bench.attach(first)
    bench.switch.limits[50] = 1
    full = program([rule(1), rule(2)], generation=2)
    bench.loop.aim(goal_after(first, full))
    point = bench.wait(PointState.REFUSED)
    assert point.generation == 1
    assert "full" in str(point.error)
    assert bench.flows() == bench.wanted(first)
    instead = program([rule(2)], generation=3)
    bench.loop.aim(goal_after(full, instead))
    bench.wait(PointState.ENFORCED, 3)
    assert bench.flows() == bench.wanted(instead)


def test_a_refused_goal_is_tried_again_until_it_is_taken(bench: Bench) -> None:
    bench.switch.limits[50] = 1
    goal = program([rule(1), rule(2)])
    bench.loop.aim(Goal(goal))
    bench.attach()
    bench.wait(PointState.REFUSED)
    bench.switch.limits.clear()
    bench.wait(PointState.ENFORCED, 1)
    assert bench.flows() == bench.wanted(goal)


def test_drift_is_found_told_and_repaired(watchful: Bench) -> None:
    goal = program([rule(1), rule(2)])
    watchful.attach(goal)
    stranger = watchful.connection()
    stranger.apply(Delta(b"", b"", 0, FlowTable.of([rule(1)]), FlowTable.of([rule(9)]), ()), Stamp(1, goal.digest))
    point = watchful.wait(PointState.DRIFTED)
    assert point.error == "1 flows are missing and 1 are there that should not be"
    watchful.wait(PointState.ENFORCED, 1)
    assert watchful.flows() == watchful.wanted(goal)


def lose_add(switch: FakeSwitch, cookie: int) -> None:
    add = switch.add
    switch.add = lambda entry, undo: None if entry.cookie == cookie else add(entry, undo)  # type: ignore[method-assign]


def lose_removal(switch: FakeSwitch, cookie: int) -> None:
    remove = switch.delete_strict

    def forgetful(what: FlowFilter, priority: int, undo: Undo) -> None:
        if not any(entry.cookie == cookie and entry.match == what.match for entry in switch.entries()):
            remove(what, priority, undo)

    switch.delete_strict = forgetful  # type: ignore[method-assign]


def spoil_cookie(switch: FakeSwitch, cookie: int) -> None:
    add = switch.add

    def spoiled(entry: Entry, undo: Undo) -> None:
        add(replace(entry, cookie=cookie + 7) if entry.cookie == cookie else entry, undo)

    switch.add = spoiled  # type: ignore[method-assign]


def spoil_verdict(switch: FakeSwitch, cookie: int) -> None:
    add = switch.add

    def spoiled(entry: Entry, undo: Undo) -> None:
        nothing = read_instructions(b"", match=entry.match, table=entry.table)
        add(replace(entry, instructions=nothing) if entry.cookie == cookie else entry, undo)

    switch.add = spoiled  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("fault", "of", "text"),
    [
        (lose_add, rule(3), "1 flows are missing and 0 are there"),
        (lose_removal, rule(1), "0 flows are missing and 1 are there"),
        (spoil_cookie, rule(3), "1 flows are missing and 0 are there"),
        (spoil_verdict, rule(3), "1 flows are missing and 1 are there"),
    ],
)
def test_a_switch_that_does_not_do_one_part_of_a_change_is_found_out(
    bench: Bench, fault: Callable[[FakeSwitch, int], None], of: Flow, text: str
) -> None:
    first, second = program([rule(1), rule(2)]), program([rule(2), rule(3), rule(4)], generation=2)
    bench.attach(first)
    fault(bench.switch, of.cookie)
    bench.loop.aim(goal_after(first, second))
    assert str(bench.wait(PointState.DRIFTED).error).startswith(text)
    for name in ("add", "delete_strict"):
        vars(bench.switch).pop(name, None)
    bench.wait(PointState.ENFORCED, 2)
    assert bench.flows() == bench.wanted(second)


def test_a_stamp_that_is_not_written_is_found_out(bench: Bench) -> None:
    first, second = program([rule(1)]), program([rule(1), rule(2)], generation=2)
    bench.attach(first)
    lose_add(bench.switch, Cookie(Tier.HOST, Kind.STAMP, 2).pack())
    bench.loop.aim(goal_after(first, second))
    assert str(bench.wait(PointState.DRIFTED).error).endswith("and another stamp")


def test_an_unheard_error_of_the_driver_is_a_drift(bench: Bench) -> None:
    bench.attach(program([]))
    bench.device.before["apply"] = fail(Drifted("garbled"))
    bench.loop.aim(Goal(program([rule(1)], generation=2)))
    assert bench.wait(PointState.DRIFTED).error == "garbled"
    bench.wait(PointState.ENFORCED, 2)


def test_a_lost_device_is_reported_at_once_and_a_new_one_is_brought_to_the_goal(bench: Bench) -> None:
    goal = program([rule(1)])
    bench.attach(goal)
    bench.loop.detach(bench.device)
    assert bench.wait(PointState.DISCONNECTED).generation == 1
    bench.switch.tables.clear()
    bench.device = bench.connection()
    bench.loop.attach(bench.device)
    bench.wait(PointState.ENFORCED, 1)
    assert bench.flows() == bench.wanted(goal)


def test_an_old_connection_that_ends_does_not_end_the_new_one(bench: Bench) -> None:
    goal = program([rule(1)])
    bench.attach(goal)
    old, bench.device = bench.device, bench.connection()
    bench.loop.attach(bench.device)
    bench.loop.detach(old)
    second = program([rule(2)], generation=2)
    bench.loop.aim(goal_after(goal, second))
    bench.wait(PointState.ENFORCED, 2)


def test_a_device_that_never_comes_is_reported_after_a_while() -> None:
    bench = Bench(replace(SLOW, absent_after_s=0.05))
    assert bench.wait(PointState.DISCONNECTED) == Point("host1", PointState.DISCONNECTED)
    bench.close()


def test_nothing_is_written_before_the_role_is_granted(bench: Bench) -> None:
    bench.loop.aim(Goal(program([rule(1)])))
    bench.device.before["claim"] = fail(Unreachable("not yet"))
    bench.attach()
    bench.wait(PointState.ENFORCED)
    assert bench.device.asked[:3] == ["claim", "claim", "observe"]


def test_with_an_older_epoch_it_stands_by_and_writes_nothing(bench: Bench) -> None:
    assert bench.connection().claim(8)
    bench.loop.aim(Goal(program([rule(1)])))
    bench.attach()
    wait_for(lambda: bench.device.asked == ["claim"])
    bench.loop.aim(Goal(program([rule(2)], generation=2)))
    bench.loop.detach(bench.device)
    threading.Event().wait(0.05)
    bench.loop.stop()
    assert bench.device.asked == ["claim"]
    assert bench.flows() == set()
    assert bench.points.empty(), "who stands by says nothing about the device"


def test_who_loses_the_device_writes_no_more_until_it_gets_a_later_epoch(bench: Bench) -> None:
    first = program([rule(1)])
    bench.attach(first)
    other = bench.connection()
    assert other.claim(8)
    bench.loop.demoted(bench.device)
    bench.device.asked.clear()
    second = program([rule(2)], generation=2)
    bench.loop.aim(goal_after(first, second))
    threading.Event().wait(0.1)
    assert bench.device.asked == []
    assert bench.flows() == bench.wanted(first)
    bench.loop.lead(9)
    bench.wait(PointState.ENFORCED, 2)


def test_a_refusal_by_a_device_that_another_leads_is_not_ours_to_report(bench: Bench) -> None:
    """The switch refuses a slave's bundle, and the word of our demotion is late."""
    first, second = program([rule(1)]), program([rule(2)], generation=2)
    bench.attach(first)
    bench.device.asked.clear()
    assert bench.connection().claim(8)
    bench.loop.aim(goal_after(first, second))
    wait_for(lambda: bench.device.asked == [bench.route[0], "claim"])
    bench.loop.aim(goal_after(second, program([rule(3)], generation=3)))
    threading.Event().wait(0.05)
    assert bench.device.asked == [bench.route[0], "claim"]
    assert bench.points.empty()
    assert bench.flows() == bench.wanted(first)


def test_who_leads_repeats_what_it_reported(watchful: Bench) -> None:
    watchful.attach(program([rule(1)]))
    for _ in range(2):
        assert watchful.wait(PointState.ENFORCED).generation == 1


def test_losing_the_device_in_the_middle_of_a_step_counts(bench: Bench) -> None:
    """The demotion comes while a bundle is on its way: what the step found out is dropped, and nothing follows."""
    first, second = program([rule(1)]), program([rule(2)], generation=2)
    bench.attach(first)
    bench.device.after[bench.route[0]] = lambda: bench.loop.demoted(bench.device)
    bench.device.asked.clear()
    bench.loop.aim(goal_after(first, second))
    wait_for(lambda: bench.device.asked == bench.route)
    bench.loop.aim(goal_after(second, program([rule(3)], generation=3)))
    threading.Event().wait(0.1)
    assert bench.device.asked == bench.route


def test_other_port_numbers_are_found_in_every_flow(bench: Bench) -> None:
    goal = program([rule(1)])
    bench.attach(goal)
    bench.switch.set_ports({"p1": 11, "p2": 2})
    bench.loop.ports_changed(bench.device)
    wait_for(lambda: bench.flows() == bench.wanted(goal))
    assert any((11).to_bytes(4, "big") in match for _, _, match, _ in bench.flows())


def test_a_port_that_goes_takes_its_flows_along_and_brings_them_back(bench: Bench) -> None:
    goal = program([rule(1)])
    bench.attach(goal)
    bench.switch.set_ports({"p2": 2})
    bench.loop.ports_changed(bench.device)
    wait_for(lambda: len(bench.flows()) == 3)
    bench.switch.set_ports(NUMBERS)
    bench.loop.ports_changed(bench.device)
    wait_for(lambda: len(bench.flows()) == 5)
    assert bench.flows() == bench.wanted(goal)


def test_ports_that_change_during_a_step_are_not_forgotten(bench: Bench) -> None:
    first, second = program([rule(1)]), program([rule(2)], generation=2)
    bench.attach(first)

    def renumber() -> None:
        bench.switch.set_ports({"p1": 11, "p2": 2})
        bench.loop.ports_changed(bench.device)

    bench.device.after[bench.route[0]] = renumber
    bench.loop.aim(goal_after(first, second))
    wait_for(lambda: bench.flows() == bench.wanted(second))


def test_a_remembered_goal_does_not_roll_a_device_back(bench: Bench) -> None:
    """The device was brought further than our disk knows; only the service may say that this was wrong."""
    newer, older = program([rule(2)], generation=5), program([rule(1)], generation=4)
    bench.attach(newer)
    bench.loop.detach(bench.device)
    bench.wait(PointState.DISCONNECTED)
    bench.device = bench.connection()
    bench.loop.aim(Goal(older, remembered=True))
    bench.loop.attach(bench.device)
    wait_for(lambda: bench.device.asked == ["claim", "observe"])
    threading.Event().wait(0.05)
    assert bench.flows() == bench.wanted(newer)
    bench.loop.aim(Goal(older))
    bench.wait(PointState.ENFORCED, 4)
    assert bench.flows() == bench.wanted(older)


def test_a_remembered_goal_repairs_a_device_that_lost_everything(bench: Bench) -> None:
    goal = program([rule(1)], generation=4)
    bench.loop.aim(Goal(goal, remembered=True))
    bench.attach()
    bench.wait(PointState.ENFORCED, 4)
    assert bench.flows() == bench.wanted(goal)


def test_counters_are_read_once_the_device_holds_its_goal() -> None:
    bench = Bench(replace(SLOW, count_every_s=0.02))
    bench.attach(program([rule(1), rule(2)]))
    hits = bench.counted.hits.get(timeout=5)
    assert len(set(hits.cookie.tolist())) == 3, "two rules and the structure; the stamp counts nothing"
    bench.counted.hits.get(timeout=5)
    bench.close()


def test_what_a_change_removes_is_read_before_it_goes() -> None:
    bench = Bench()
    before, after = program([rule(1), rule(2)]), program([rule(2)], generation=2)
    bench.attach(before)
    bench.counted.changes.get(timeout=5)
    held = bench.device.hits()
    bench.loop.aim(Goal(before).followed_by(after, between(before, after)))
    bench.wait(PointState.ENFORCED, 2)
    change = bench.counted.changes.get(timeout=5)
    assert change.last is not None
    assert change.gone is not None
    gone = set(change.gone.tolist())
    assert gone == set(held.key[held.cookie == rule(1).cookie].tolist())
    assert gone <= set(change.last.key.tolist())
    assert set(bench.device.hits().key.tolist()) == set(held.key.tolist()) - gone
    bench.close()


def test_a_large_change_is_announced(bench: Bench) -> None:
    bench.attach(program([]))
    goal = large_program(2500, generation=2)
    bench.loop.aim(Goal(goal))
    assert bench.wait(PointState.APPLYING).generation == 1
    assert bench.wait(PointState.ENFORCED, 2).flows == len(goal.flows)


def test_a_switch_that_cannot_do_what_programs_need_is_refused(bench: Bench) -> None:
    bench.device.before["claim"] = fail(Refused("the switch cannot match fragments"))
    bench.attach()
    assert bench.wait(PointState.REFUSED).error == "the switch cannot match fragments"


def test_stopping_ends_the_thread() -> None:
    bench = Bench()
    bench.attach(program([rule(1)], ports=PORTS))
    bench.close()
    assert not any(thread.name == "loop-host1" for thread in threading.enumerate())


def wait_for(holds: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Wait until something holds that no report tells of."""
    ticks = threading.Event()
    for _ in range(int(timeout_s / 0.005)):
        if holds():
            return
        ticks.wait(0.005)
    assert holds()
