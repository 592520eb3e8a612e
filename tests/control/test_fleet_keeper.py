"""Fleets kept: they grow and shrink as they should, what fails is replaced, and nothing is left over."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from fleet_world import MEASURED, SETTINGS, Agent, World, fresh

from orchestrator.cloud.base import Vnf, VnfState
from orchestrator.control.fleet import keeper as fleetkeeper
from orchestrator.control.fleet.news import Known, News, View, news_of
from orchestrator.control.gauges import FleetGauges
from orchestrator.errors import BadPolicy, Busy, Refused, Unauthenticated, Unreachable
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import ReturnTraffic
from orchestrator.scaling.lifecycle import MemberState
from orchestrator.store.records import FirewallRecord
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import Plane
from orchestrator.wire.points import PointState


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(fresh(tmp_path / "store.db"))
    yield world
    world.close()


def measured(world: World) -> None:
    world.write(lambda unit: unit.capacities.add(Plane.NFTABLES, MEASURED, source="a test"))


def test_it_grows_to_its_size_and_each_was_proven_before(world: World) -> None:
    world.until(lambda: len(world.serving()) == 2)
    assert world.shares() == {"fw-0": 128, "fw-1": 128}
    for member in world.members().values():
        assert member.trial is not None
        assert member.trial.answer == member.trial.expected == (True, False)
    assert world.told("fleet.resized") == [("fleet.resized", "2 by the operator")]


def test_it_shrinks_by_draining_who_holds_least_and_cleans_up(world: World) -> None:
    world.until(lambda: len(world.serving()) == 2)
    for name, agent in world.agents.items():
        agent.connections, agent.packets_pps = (5, 10) if name == "fw-0" else (50, 10)
    world.pass_(1.0)
    world.set(replace(SETTINGS, size=1))
    world.until(lambda: world.states().get("fw-0") == "draining")
    world.pass_(1.0)
    assert world.shares() == {"fw-1": 256}
    assert world.states()["fw-0"] == "draining"  # it still carries something
    world.agents["fw-0"].packets_pps = 0
    world.until(lambda: "fw-0" not in world.members())
    assert [vnf.name for vnf in world.cloud.list()] == ["fw-1"]
    with world.store.read() as unit:
        assert unit.firewalls.names("pop") == {"fw-1"}
        assert [each.name for each in unit.enforcers.list("pop")] == ["controller", "fw-1"]


def test_nobody_waits_for_a_vnf_that_does_not_serve_yet(world: World) -> None:
    world.prepare = lambda agent: agent.never.add("answer") if agent.order.name == "fw-1" else None
    world.until(lambda: world.serving() == {"fw-0"})
    with world.store.read() as unit:
        state = unit.enforcers.enforced_state("pop", unit.domains.get("pop").generation)
    assert (state.hosts, state.done) == (1, True)


def test_load_makes_it_grow_and_shrink_with_reasons(world: World) -> None:
    measured(world)
    world.set(replace(SETTINGS, size=None, limits=replace(SETTINGS.limits, fewest=1, ahead_s=0.0)))
    world.until(lambda: len(world.serving()) == 1)
    world.agents["fw-0"].packets_pps = 95_000
    world.until(lambda: len(world.serving()) == 2)
    for agent in world.agents.values():
        agent.packets_pps = 1000
    world.until(lambda: len(world.members()) == 1)
    with world.store.read() as unit:
        sizes = [(each.before, each.size, each.because) for each in unit.fleets.decisions("pop")]
        record = unit.fleets.get("pop")
    assert [each[:2] for each in sizes] == [(2, 1), (1, 2), (0, 1)]
    assert "95 kpps expected in 0 s" in sizes[1][2]
    assert "1 are enough with 15% to spare" in sizes[0][2]
    assert record.model == 1


def test_how_busy_vnfs_are_is_told_beside_what_the_model_says(world: World) -> None:
    """So that whoever looks at both sees when what was measured is not what is here."""
    measured(world)
    world.set(replace(SETTINGS, size=2))
    world.until(lambda: len(world.serving()) == 2)
    world.agents["fw-0"].packets_pps = 50_000
    world.until(lambda: _gauges(world)["aclflow_fleet_busy_predicted"] > 0)
    told = _gauges(world)
    with world.store.read() as unit:
        model = unit.capacities.current()[Plane.NFTABLES]
        rules = unit.fleets.rules(["pop"])["pop"]
    assert told["aclflow_fleet_busy_predicted"] == pytest.approx(50_000 / model.rate_pps(rules, 512) / 2)
    assert told["aclflow_fleet_busy"] == pytest.approx(0.1)
    assert told["aclflow_capacity_error"] == pytest.approx(model.error)


def _gauges(world: World) -> dict[str, float]:
    """What Prometheus is told, where there is one value of a name."""
    families = FleetGauges(world.control).collect()
    return {family.name: family.samples[0].value for family in families if len(family.samples) == 1}


def test_a_list_that_grows_makes_the_fleet_grow(world: World) -> None:
    measured(world)
    world.set(replace(SETTINGS, size=None, limits=replace(SETTINGS.limits, fewest=1, ahead_s=0.0)))
    world.until(lambda: len(world.serving()) == 1)
    world.agents["fw-0"].packets_pps = 50_000
    world.pass_(5.0)
    assert len(world.members()) == 1
    rules = [{"id": f"r{at}", "action": "permit", "protocol": "tcp", "destination": f"10.29.4.{at % 250}/32",
              "destination_ports": str(1000 + at)} for at in range(1500)]  # fmt: skip
    world.write(lambda unit: unit.acls.replace("shop", acl_from_json({"rules": rules}), author="test"))
    world.until(lambda: len(world.serving()) > 1)
    assert "with 1500 rules" in world.told("fleet.resized")[-1][1]


def test_without_measurements_it_keeps_to_the_fewest_and_says_what_is_missing(world: World) -> None:
    world.set(replace(SETTINGS, size=None, limits=replace(SETTINGS.limits, fewest=1)))
    world.until(lambda: len(world.serving()) == 1)
    world.agents["fw-0"].packets_pps = 500_000
    world.pass_(5.0)
    record = world.look().record
    assert len(world.members()) == 1
    assert "aclflow bench fw-vnf" in record.because


# ------------------------------------------------------------------------------------------------------ what goes wrong


STORIES = {
    "never enrols": (lambda agent: agent.never.add("enrol"), "its agent never enrolled"),
    "never loads": (lambda agent: agent.never.add("load"), "it never held the domain's program"),
    "fails its probe": (lambda agent: setattr(agent, "lies", True), "was dropped, and the policy permits it"),
    "answers no probe": (lambda agent: agent.never.add("answer"), "it never answered the probe"),
    "refuses the program": (lambda agent: setattr(agent, "state", PointState.REFUSED), "it never held"),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_vnf_that_never_serves_is_given_up_and_another_one_is_made(world: World, story: str) -> None:
    spoil, words = STORIES[story]
    world.prepare = lambda agent: spoil(agent) if agent.order.name == "fw-0" else None  # type: ignore[no-untyped-call]
    world.until(lambda: world.serving() == {"fw-1", "fw-2"}, 90.0)
    world.until(lambda: "fw-0" not in {vnf.name for vnf in world.cloud.list()})
    (failed,) = world.told("vnf.failed")
    assert words in failed[1]
    assert world.members(with_gone=True)["fw-0"].failed is not None


def test_the_storm_breaker_stops_what_fails_again_and_again(world: World) -> None:
    world.prepare = lambda agent: agent.never.add("enrol")
    world.pass_(58.0)
    assert 3 <= len(world.cloud.created) <= 4  # two at a time, three failures are allowed
    (held,) = world.told("fleet.held")
    assert held[1].startswith("storm breaker: ")
    world.prepare = lambda agent: None
    world.until(lambda: len(world.serving()) == 2, 120.0)


def test_who_falls_silent_loses_its_share_in_time_and_gets_it_back_when_it_is_steady(world: World) -> None:
    world.set(replace(SETTINGS, patience=replace(SETTINGS.patience, sick_s=30.0)))
    world.until(lambda: len(world.serving()) == 2)
    world.agents["fw-0"].never.add("speak")
    world.pass_(1.75)
    assert world.shares() == {"fw-1": 256}
    world.agents["fw-0"].never.clear()
    world.pass_(1.5)
    assert world.shares() == {"fw-1": 256}
    world.pass_(1.5)
    assert world.shares() == {"fw-0": 128, "fw-1": 128}
    assert [kind for kind, _ in world.told("vnf.sick", "vnf.well")] == ["vnf.sick", "vnf.well"]


def test_health_that_flaps_is_an_end_too(world: World) -> None:
    world.set(replace(SETTINGS, patience=replace(SETTINGS.patience, sick_s=30.0)))
    world.until(lambda: len(world.serving()) == 2)
    flaps = world.agents["fw-0"]
    for _ in range(4):
        flaps.never.add("speak")
        world.pass_(2.0)
        flaps.never.clear()
        world.pass_(2.5)
    world.until(lambda: world.serving() == {"fw-1", "fw-2"})
    assert world.told("vnf.failed") == [("vnf.failed", "it fell sick 4 times within 120 s")]


def test_a_killed_vnf_is_replaced(world: World) -> None:
    world.until(lambda: len(world.serving()) == 2)
    world.cloud.lose("pop", "fw-1")
    world.until(lambda: world.serving() == {"fw-0", "fw-2"})
    assert world.told("vnf.failed") == [("vnf.failed", "the cloud has it no more, and nobody here removed it")]


def test_the_last_one_carries_on_silently_until_another_serves(world: World) -> None:
    world.set(replace(SETTINGS, size=1))
    world.until(lambda: len(world.serving()) == 1)
    world.agents["fw-0"].never.add("speak")
    seen = []

    def replaced() -> bool:
        seen.append(world.shares())
        return world.serving() == {"fw-1"}

    world.until(replaced)
    assert all(sum(shares.values()) == 256 for shares in seen)


def test_the_last_one_goes_though_it_is_silent_where_none_is_wanted(world: World) -> None:
    world.set(replace(SETTINGS, size=1))
    world.until(lambda: len(world.serving()) == 1)
    world.agents["fw-0"].never.add("speak")
    world.prepare = lambda agent: agent.never.add("enrol")
    world.pass_(10.0)
    assert world.serving() == {"fw-0"}, "another one would have to serve first"
    world.set(replace(SETTINGS, size=0))
    world.until(lambda: world.members() == {} and world.cloud.list() == ())


def test_a_service_that_was_away_does_not_take_everybody_for_silent(world: World) -> None:
    world.until(lambda: len(world.serving()) == 2)
    world.wall.now = world.wall.now.replace(hour=5)
    world.keeper = world.new_keeper()
    for _ in range(4):
        world.keeper.tick()
        world.pass_(0.25)
    assert world.told("vnf.sick") == []
    assert world.shares() == {"fw-0": 128, "fw-1": 128}


def test_a_clock_that_jumps_makes_nobody_silent(world: World) -> None:
    """One has spoken since, and of the other one nobody had the time to hear."""
    world.until(lambda: len(world.serving()) == 2)
    never = world.agents["fw-1"].never
    never |= {"load", "speak"}
    world.wall.jump(dt.timedelta(hours=1))
    with suppress(Busy):  # the lease is over, too: it is taken again
        world.keeper.tick()
    world.pass_(0.5)
    never.clear()
    world.pass_(5.0)
    assert world.told("vnf.sick") == []
    assert world.shares() == {"fw-0": 128, "fw-1": 128}


LOST = [Unreachable("time-out"), Busy("409 the stack is being updated"), Unreachable("500")]


@pytest.mark.parametrize("when", ["before", "after"])
def test_lost_answers_make_nothing_twice_and_leave_nothing(world: World, when: str) -> None:
    getattr(world.cloud, when).update(create=list(LOST), list=[Unreachable("time-out")], delete=list(LOST))
    world.until(lambda: len(world.serving()) == 2, 90.0)
    assert sorted(world.cloud.created) == ["fw-0", "fw-1"]
    world.set(replace(SETTINGS, size=0))
    world.until(lambda: not world.members(), 90.0)
    assert world.cloud.list() == ()
    assert world.told("vnf.failed", "vnf.orphan") == []


REFUSALS = [Refused("no flavour 'm1.huge'"), Unauthenticated("the application credential has expired")]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: type(error).__name__)
def test_what_the_cloud_refuses_is_said_and_not_tried_for_ever(world: World, error: Refused) -> None:
    world.cloud.before["create"] = [error] * 100
    world.pass_(20.0)
    told = world.told("fleet.refused")
    assert 1 <= len(told) <= 3
    assert told[0][1] == str(error)
    assert world.told("fleet.held")


def test_a_quota_is_explained(tmp_path: Path) -> None:
    world = World(fresh(tmp_path / "quota.db"), replace(SETTINGS, size=1), quota=1)
    world.until(lambda: len(world.serving()) == 1)
    world.set(replace(SETTINGS, size=2))
    world.until(lambda: bool(world.told("vnf.failed")))
    assert "over the quota of 1 VNFs" in world.told("vnf.failed")[0][1]
    assert world.serving() == {"fw-0"}
    world.close()


def test_what_cannot_be_built_says_what_the_cloud_said(world: World) -> None:
    world.cloud.unbuildable.add("fw-0")
    world.until(lambda: world.serving() == {"fw-1", "fw-2"})
    assert world.told("vnf.failed") == [("vnf.failed", "the cloud could not build it: no valid host was found")]


def test_orphans_are_swept_and_nothing_else(world: World) -> None:
    world.until(lambda: len(world.serving()) == 2)
    world.cloud.put(Vnf("pop", "stray-7", VnfState.RUNNING))
    world.cloud.put(Vnf("elsewhere", "fw-9", VnfState.FAILED))
    world.pass_(2.0)
    assert len(world.cloud.list()) == 4  # it must be seen for a while
    world.pass_(15.0)
    assert [vnf.name for vnf in world.cloud.list()] == ["fw-0", "fw-1"]
    assert len(world.told("vnf.orphan")) == 2
    assert len(world.serving()) == 2


def test_the_operator_drains_one_and_another_comes_in_its_place(world: World) -> None:
    world.until(lambda: len(world.serving()) == 2)
    assert world.write(lambda unit: unit.fleets.drain("pop", "fw-0", "by hand")) is MemberState.DRAINING
    world.until(lambda: world.serving() == {"fw-1", "fw-2"} and "fw-0" not in world.members())


def test_who_is_not_needed_any_more_leaves_before_it_serves(world: World) -> None:
    world.prepare = lambda agent: agent.never.add("enrol")
    world.pass_(2.0)
    assert set(world.states().values()) == {"building"}
    world.set(replace(SETTINGS, size=0))
    world.until(lambda: not world.members())
    assert world.cloud.list() == ()
    assert world.told("vnf.failed") == []


def test_a_switch_that_is_never_read_back_gives_no_traffic(world: World) -> None:
    world.deaf = True
    world.pass_(8.0)
    assert set(world.states().values()) == {"proven"}
    world.deaf = False
    world.until(lambda: len(world.serving()) == 2)


def test_a_policy_that_changes_in_the_middle_of_a_trial_is_no_failure(world: World) -> None:
    stubborn: list[Agent] = []

    def prepare(agent: Agent) -> None:
        agent.never.add("answer")
        stubborn.append(agent)

    world.prepare = prepare
    world.until(lambda: set(world.states().values()) == {"loaded"})
    world.pass_(0.5)
    world.write(lambda unit: unit.acls.replace("shop", acl_from_json({"rules": []}), author="test"))
    world.pass_(0.5)
    for agent in stubborn:
        agent.never.clear()
    world.until(lambda: len(world.serving()) == 2)
    assert world.told("vnf.failed") == []


def test_what_is_wrong_with_one_fleet_keeps_no_other_from_its_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def broken(unit: Unit, known: Known, view: View) -> News:
        if known.domain == "broken":
            looks.append(world.wall.ticks())
            raise ValueError("a fault of ours")
        return news_of(unit, known, view)

    def add(unit: Unit) -> None:
        unit.domains.create("broken")
        unit.fleets.put("broken", replace(SETTINGS, size=0))

    world.write(add)
    assert [look.record.domain for look in world.read(lambda unit: unit.fleets.looks())] == ["broken", "pop"]
    with monkeypatch.context() as until_mended:
        until_mended.setattr(fleetkeeper, "news_of", broken)
        world.until(lambda: len(world.serving()) == 2)
        world.pass_(16.0)
        pauses = [after - before for before, after in pairwise(looks)]
        assert pauses[:4] == pytest.approx([1.0, 2.0, 4.0, 8.0], abs=0.3), "it is left alone longer and longer"


def test_traffic_is_not_spread_where_a_rule_cannot_be_carried(world: World) -> None:
    """The transaction that would have its VNFs track is refused, also where a fleet spreads."""

    def give(unit: Unit) -> None:
        unit.domains.set_return_traffic("pop", ReturnTraffic.TRACKED)
        unit.firewalls.add("pop", FirewallRecord("odd", Plane.IPTABLES))
        rules = {"rules": [{"id": "alone", "action": "permit", "protocol": "udp", "stateless": True}]}
        unit.acls.replace("shop", acl_from_json(rules), author="test")

    world.write(give)
    with pytest.raises(BadPolicy, match="rule 'alone' is `stateless`"):
        world.spreading.set_members("pop", (), stateful=True)
    assert world.spreading.current("pop") is None
    assert world.spreading.set_members("pop", ()) == 1
