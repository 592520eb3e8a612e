"""The loop around the real driver and a fake switch: it gets to its goal whatever happens on the way."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from enforce.loop_bench import NUMBERS, SLOW, Bench, fail, goal_after
from enforce.programs import PORTS, change, large_program, program, rule
from patience import PATIENCE_S, until

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.enforce.driver import Stamp
from orchestrator.enforce.drivers.openflow.fake import FakeSwitch
from orchestrator.enforce.drivers.openflow.fake.actions import read_instructions
from orchestrator.enforce.drivers.openflow.fake.switch import FlowFilter, Undo
from orchestrator.enforce.drivers.openflow.fake.table import Entry
from orchestrator.enforce.standing import Goal, Point
from orchestrator.errors import Drifted, Refused, Unreachable
from orchestrator.program.delta import Delta
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Tier
from orchestrator.wire.points import PointState


def test_a_new_device_is_claimed_observed_and_brought_to_the_goal(bench: Bench) -> None:
    goal = program([rule(1), rule(2)])
    bench.loop.aim(Goal(goal))
    bench.attach()
    point = bench.wait(PointState.ENFORCED)
    ports = frozenset(NUMBERS)
    assert point == Point("host1", PointState.ENFORCED, 1, goal.digest, len(goal.flows), ports=ports)
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
    until(lambda: again.asked == ["claim", "observe"])
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
        assert release.wait(PATIENCE_S)

    bench.device.before[bench.route[0]] = hold
    goal = Goal(versions[0])
    for old, new in itertools.pairwise(versions):
        goal = goal.followed_by(new, change(old, new))
        bench.loop.aim(goal)
        if new is versions[1]:
            assert entered.wait(PATIENCE_S)
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
