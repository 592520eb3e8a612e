"""VNFs that the cloud makes by itself are adopted: brought in, proven, given traffic, drained while the cloud takes
them away; and never taken for orphans."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fleet_world import SETTINGS, Agent, World, fresh
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.cloud.base import Vnf, VnfOrder, VnfState
from orchestrator.compile.spreadprogram import Side
from orchestrator.errors import BadInput, Conflict, Unreachable
from orchestrator.store.records import FirewallRecord
from orchestrator.wire.firewalls import Plane

ALARMS = replace(SETTINGS, size=None, alarms=True)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(fresh(tmp_path / "store.db"), ALARMS)
    yield world
    world.close()


def appears(world: World, number: int, *, lies: bool = False, state: VnfState = VnfState.RUNNING) -> str:
    """A webhook was posted to: the cloud has another VNF, with an agent in it."""
    name = f"asg-{number:08x}"
    sides = (Side(f"tap{side}-{number}", 2 * number + side) for side in range(2))
    world.cloud.put(Vnf("pop", name, state, "", f"id-{number}", ("10.91.0.7",), *sides, autonomous=True))
    expires = world.wall.now + dt.timedelta(hours=1)
    token = world.write(lambda unit: unit.enforcers.invite("pop", expires=expires, author="a test", name=name))
    world.agents[name] = Agent(VnfOrder("pop", name, number, Plane.NFTABLES, "http://service", token), lies=lies)
    return name


def is_taken_away(world: World, name: str) -> None:
    """The cloud has decided that it goes, and says so for a while."""
    vnf = next(each for each in world.cloud.list() if each.name == name)
    world.cloud.put(replace(vnf, state=VnfState.LEAVING))
    world.cloud.machines["pop", name].left = 10_000  # until the test says so


def test_what_a_webhook_makes_is_adopted_proven_and_given_its_share(world: World) -> None:
    first, second = appears(world, 1), appears(world, 2)
    world.until(lambda: world.serving() == {first, second})
    assert world.shares() == {first: 128, second: 128}
    for member in world.members().values():
        assert member.trial is not None
        assert member.trial.answer == member.trial.expected == (True, False)
    assert len(world.told("vnf.adopted")) == 2
    assert world.told("fleet.resized") == []
    assert world.read(lambda unit: unit.firewalls.names("pop")) == {first, second}
    with world.store.read() as unit:
        assert unit.enforcers.enforced_state("pop", unit.domains.get("pop").generation).hosts == 2
    assert world.cloud.created == []
    assert world.look().record.because == "the cloud's alarms decide how many there are"


def test_one_that_the_cloud_takes_away_is_drained_while_it_is_still_there(world: World) -> None:
    first, second = appears(world, 1), appears(world, 2)
    world.until(lambda: world.serving() == {first, second})
    world.agents[first].packets_pps = 1000
    is_taken_away(world, first)
    world.until(lambda: world.states()[first] == "draining")
    world.pass_(1.0)
    assert world.shares() == {second: 256}
    assert world.states()[first] == "draining"  # it still carries something
    world.agents[first].packets_pps = 0
    world.until(lambda: world.states()[first] == "leaving")
    world.cloud.lose("pop", first)
    world.until(lambda: world.states() == {second: "serving"})
    assert world.read(lambda unit: unit.firewalls.names("pop")) == {second}
    assert world.told("vnf.failed", "vnf.orphan", "fleet.resized") == []


@pytest.mark.parametrize("state", ["building", "enrolled", "loaded", "serving", "draining"])
def test_one_that_is_gone_at_once_has_not_failed(world: World, state: str) -> None:
    name = appears(world, 1)
    never = {"building": "enrol", "enrolled": "load", "loaded": "answer"}.get(state)
    world.agents[name].never |= {never} if never else set()
    world.agents[name].packets_pps = 1000
    if state == "draining":
        world.until(lambda: world.states().get(name) == "serving")
        world.write(lambda unit: unit.fleets.drain("pop", name, "a test"))
    world.until(lambda: world.states().get(name) == state)
    world.cloud.lose("pop", name)
    world.until(lambda: world.members() == {})
    assert world.told("vnf.failed", "vnf.orphan") == []


def test_one_that_fails_its_probe_gets_nothing_and_is_given_back_to_the_cloud(world: World) -> None:
    good, bad = appears(world, 1), appears(world, 2, lies=True)
    world.until(lambda: world.states() == {good: "serving"})
    assert [vnf.name for vnf in world.cloud.list()] == [good]
    assert bad not in world.shares()
    assert any("the probe failed" in because for _, because in world.told("vnf.failed"))


def test_one_that_an_operator_drains_is_given_back_too(world: World) -> None:
    first, second = appears(world, 1), appears(world, 2)
    world.until(lambda: world.serving() == {first, second})
    world.write(lambda unit: unit.fleets.drain("pop", first, "an operator"))
    world.until(lambda: world.states() == {second: "serving"})
    assert [vnf.name for vnf in world.cloud.list()] == [second]


def test_a_cloud_that_does_not_answer_has_taken_nobody_away(world: World) -> None:
    name = appears(world, 1)
    world.until(lambda: world.serving() == {name})
    world.cloud.before["list"] = [Unreachable("away")] * 20
    world.pass_(20.0)
    assert world.serving() == {name}


def test_nobody_is_adopted_or_removed_where_the_fleet_is_ours(world: World) -> None:
    world.set(replace(SETTINGS, size=0))
    name = appears(world, 1)
    world.pass_(30.0)
    assert world.members() == {}
    assert [vnf.name for vnf in world.cloud.list()] == [name]
    assert world.told("vnf.orphan") == []


def test_a_firewall_that_an_operator_brought_in_by_hand_stays_theirs(world: World) -> None:
    world.write(lambda unit: unit.firewalls.add("pop", FirewallRecord("asg-00000001", Plane.NFTABLES)))
    appears(world, 1)
    world.pass_(10.0)
    assert world.members() == {}


def test_who_decides_changes_only_while_there_is_none(world: World) -> None:
    name = appears(world, 1)
    world.until(lambda: world.serving() == {name})
    with pytest.raises(Conflict, match="1 VNFs") as caught:
        world.set(SETTINGS)
    assert caught.value.place == "alarms"
    world.set(replace(ALARMS, stateful=True))
    world.cloud.lose("pop", name)
    world.until(lambda: world.members() == {})
    world.set(SETTINGS)
    world.until(lambda: world.serving() == {f"fw-{number}" for number in (1, 2)})


def test_a_size_beside_alarms_is_refused() -> None:
    with pytest.raises(BadInput, match="alarms decide") as caught:
        replace(SETTINGS, alarms=True)
    assert caught.value.place == "size"


STEPS = st.lists(st.tuples(st.sampled_from(["make", "make a liar", "let go", "lose", "wait"]), st.integers(0, 5)))


@settings(max_examples=examples(25), deadline=None)
@given(STEPS)
def test_whatever_the_cloud_does_those_serve_that_are_there_and_good(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    world = World(fresh(tmp_path_factory.mktemp("adopts") / "store.db"), ALARMS)
    good: set[str] = set()
    for number, (step, choice) in enumerate(steps):
        there = sorted(good)
        if step.startswith("make"):
            name = appears(world, number, lies=step == "make a liar")
            good |= {name} if step == "make" else set()
        elif step != "wait" and there:
            name = there[choice % len(there)]
            good.remove(name)
            is_taken_away(world, name)
            if step == "lose":
                world.cloud.lose("pop", name)
        world.pass_(0.25 * choice)
    world.until(lambda: world.serving() == good)
    for vnf in world.cloud.list():
        if vnf.name not in good and vnf.state is VnfState.LEAVING:
            world.cloud.lose("pop", vnf.name)
    world.until(lambda: set(world.members()) == good)
    assert set(world.shares()) == good
    assert world.told("vnf.orphan") == []
    world.close()
