"""The loop while its device comes and goes, has other ports, or is led by another; and what is counted on it."""

from __future__ import annotations

import threading
from dataclasses import replace

from enforce.loop_bench import NUMBERS, SLOW, Bench, fail, goal_after
from enforce.programs import program, rule
from patience import PATIENCE_S, until

from orchestrator.enforce.standing import Goal, Point
from orchestrator.errors import Unreachable
from orchestrator.program.delta import between
from orchestrator.wire.points import PointState


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
    until(lambda: bench.device.asked == ["claim"])
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
    bench.loop.give_way(bench.device)
    bench.device.asked.clear()
    second = program([rule(2)], generation=2)
    bench.loop.aim(goal_after(first, second))
    threading.Event().wait(0.1)
    assert bench.device.asked == []
    assert bench.flows() == bench.wanted(first)
    bench.loop.lead(9)
    bench.wait(PointState.ENFORCED, 2)


def test_a_device_of_another_ones_share_is_claimed_when_it_is_told_to(bench: Bench) -> None:
    bench.loop.stand_by(7)
    bench.loop.aim(Goal(program([rule(1)])))
    bench.attach()
    threading.Event().wait(0.05)
    assert bench.device.asked == []
    assert bench.loop.stands_by
    bench.loop.detach(bench.device)
    bench.attach()
    assert bench.loop.stands_by
    assert bench.points.empty()
    bench.loop.lead(8, yields=True)
    bench.wait(PointState.ENFORCED, 1)
    assert bench.loop.leads


def test_of_a_device_that_another_leads_nothing_is_said_while_it_never_comes() -> None:
    bench = Bench(replace(SLOW, absent_after_s=0.05))
    bench.loop.expect_nothing()
    threading.Event().wait(0.2)
    assert bench.points.empty()
    bench.close()


def test_what_another_took_is_not_claimed_again_under_a_later_epoch_for_others(bench: Bench) -> None:
    """A controller that shares switches takes further ones: its epoch is later than that of who leads this one."""
    bench.loop.lead(7, yields=True)
    bench.attach(program([rule(1)]))
    other = bench.connection()
    assert other.claim(8)
    bench.loop.give_way(bench.device)
    bench.loop.keep_epoch(9)
    bench.loop.detach(bench.device)
    bench.device = bench.connection()
    bench.loop.attach(bench.device)
    threading.Event().wait(0.05)
    assert bench.device.asked == []
    assert other.claim(8), "it leads as before"


def test_whoever_leads_a_device_keeps_it_when_it_is_not_of_its_share(bench: Bench) -> None:
    bench.attach(program([rule(1)]))
    bench.loop.stand_by(9)
    bench.loop.aim(goal_after(program([rule(1)]), program([rule(2)], generation=2)))
    bench.wait(PointState.ENFORCED, 2)


def test_a_refusal_by_a_device_that_another_leads_is_not_ours_to_report(bench: Bench) -> None:
    """The switch refuses a slave's bundle, and the word of our demotion is late."""
    first, second = program([rule(1)]), program([rule(2)], generation=2)
    bench.attach(first)
    bench.device.asked.clear()
    assert bench.connection().claim(8)
    bench.loop.aim(goal_after(first, second))
    until(lambda: bench.device.asked == [bench.route[0], "claim"])
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
    bench.device.after[bench.route[0]] = lambda: bench.loop.give_way(bench.device)
    bench.device.asked.clear()
    bench.loop.aim(goal_after(first, second))
    until(lambda: bench.device.asked == bench.route)
    bench.loop.aim(goal_after(second, program([rule(3)], generation=3)))
    threading.Event().wait(0.1)
    assert bench.device.asked == bench.route


def test_other_port_numbers_are_found_in_every_flow(bench: Bench) -> None:
    goal = program([rule(1)])
    bench.attach(goal)
    bench.switch.set_ports({"p1": 11, "p2": 2})
    bench.loop.ports_changed(bench.device)
    until(lambda: bench.flows() == bench.wanted(goal))
    assert any((11).to_bytes(4, "big") in match for _, _, match, _ in bench.flows())


def test_a_port_that_goes_takes_its_flows_along_and_brings_them_back(bench: Bench) -> None:
    goal = program([rule(1)])
    bench.attach(goal)
    bench.switch.set_ports({"p2": 2})
    bench.loop.ports_changed(bench.device)
    until(lambda: len(bench.flows()) == 3)
    bench.switch.set_ports(NUMBERS)
    bench.loop.ports_changed(bench.device)
    until(lambda: len(bench.flows()) == 5)
    assert bench.flows() == bench.wanted(goal)


def test_ports_that_change_during_a_step_are_not_forgotten(bench: Bench) -> None:
    first, second = program([rule(1)]), program([rule(2)], generation=2)
    bench.attach(first)

    def renumber() -> None:
        bench.switch.set_ports({"p1": 11, "p2": 2})
        bench.loop.ports_changed(bench.device)

    bench.device.after[bench.route[0]] = renumber
    bench.loop.aim(goal_after(first, second))
    until(lambda: bench.flows() == bench.wanted(second))


def test_a_remembered_goal_does_not_roll_a_device_back(bench: Bench) -> None:
    """The device was brought further than our disk knows; only the service may say that this was wrong."""
    newer, older = program([rule(2)], generation=5), program([rule(1)], generation=4)
    bench.attach(newer)
    bench.loop.detach(bench.device)
    bench.wait(PointState.DISCONNECTED)
    bench.device = bench.connection()
    bench.loop.aim(Goal(older, remembered=True))
    bench.loop.attach(bench.device)
    until(lambda: bench.device.asked == ["claim", "observe"])
    threading.Event().wait(0.05)
    assert bench.flows() == bench.wanted(newer)
    bench.loop.aim(Goal(older))
    bench.wait(PointState.ENFORCED, 4)
    assert bench.flows() == bench.wanted(older)


def test_a_goal_that_comes_while_a_device_is_seen_to_be_ahead_is_not_waited_for_again(bench: Bench) -> None:
    """Nothing else is coming: who rests for ever then never reaches it."""
    newer, older, wanted = (program([rule(number)], generation=of) for number, of in ((2, 5), (1, 4), (3, 6)))
    bench.attach(newer)
    bench.loop.detach(bench.device)
    bench.wait(PointState.DISCONNECTED)
    bench.device = bench.connection()
    bench.device.after["observe"] = lambda: bench.loop.aim(Goal(wanted))
    bench.loop.aim(Goal(older, remembered=True))
    bench.loop.attach(bench.device)
    bench.wait(PointState.ENFORCED, 6)
    assert bench.flows() == bench.wanted(wanted)


def test_a_remembered_goal_repairs_a_device_that_lost_everything(bench: Bench) -> None:
    goal = program([rule(1)], generation=4)
    bench.loop.aim(Goal(goal, remembered=True))
    bench.attach()
    bench.wait(PointState.ENFORCED, 4)
    assert bench.flows() == bench.wanted(goal)


def test_counters_are_read_once_the_device_holds_its_goal() -> None:
    bench = Bench(replace(SLOW, count_every_s=0.02))
    bench.attach(program([rule(1), rule(2)]))
    hits = bench.counted.hits.get(timeout=PATIENCE_S)
    assert len(set(hits.cookie.tolist())) == 3, "two rules and the structure; the stamp counts nothing"
    bench.counted.hits.get(timeout=PATIENCE_S)
    bench.close()


def test_what_a_change_removes_is_read_before_it_goes() -> None:
    bench = Bench()
    before, after = program([rule(1), rule(2)]), program([rule(2)], generation=2)
    bench.attach(before)
    bench.counted.changes.get(timeout=PATIENCE_S)
    held = bench.device.hits()
    bench.loop.aim(Goal(before).followed_by(after, between(before, after)))
    bench.wait(PointState.ENFORCED, 2)
    change = bench.counted.changes.get(timeout=PATIENCE_S)
    assert change.last is not None
    assert change.gone is not None
    gone = set(change.gone.tolist())
    assert gone == set(held.key[held.cookie == rule(1).cookie].tolist())
    assert gone <= set(change.last.key.tolist())
    assert set(bench.device.hits().key.tolist()) == set(held.key.tolist()) - gone
    bench.close()


def test_a_whole_observation_tells_the_interfaces_that_it_found(bench: Bench) -> None:
    first, second = program([rule(1)]), program([rule(2)], generation=2)
    bench.loop.aim(Goal(first))
    bench.attach()
    assert bench.wait(PointState.ENFORCED).ports == frozenset(NUMBERS)
    bench.loop.aim(goal_after(first, second))
    assert bench.wait(PointState.ENFORCED, 2).ports is None
    bench.switch.set_ports({"p2": 2})
    bench.loop.ports_changed(bench.device)
    assert bench.wait(PointState.ENFORCED, 2).ports == {"p2"}
