"""How often a cloud is looked at: at once for what is new, less and less often while nothing moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fleet_world import SETTINGS, World, fresh

from orchestrator.cloud.base import Pace, Vnf, VnfState
from orchestrator.control.fleet.vnfinputs import Lookout, Sky, Wait
from orchestrator.errors import BadInput, Unreachable
from orchestrator.scaling.lifecycle import MemberState

PACE = Pace(2.0, 5.0)
NOBODY: frozenset[Wait] = frozenset()
NEW: frozenset[Wait] = frozenset({("pop", "fw-0", MemberState.BUILDING)})


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def sky(progress: str) -> Sky:
    return Sky({("pop", "fw-0"): Vnf("pop", "fw-0", VnfState.COMING, progress)})


def looks(lookout: Lookout, clock: Clock, seen: list[Sky], waited: frozenset[Wait], until_s: float) -> list[float]:
    """When it is looked, by a clock of quarters of a second; what is seen, the last of it again and again."""
    found = []
    while clock.now_s < until_s:
        if lookout.is_due():
            lookout.note_look(seen.pop(0) if len(seen) > 1 else seen[0])
            found.append(clock.now_s - 100.0)
        lookout.waits_for(waited, hurry=False)
        clock.now_s += 0.25
    return found


def test_while_nothing_moves_looks_come_less_and_less_often() -> None:
    clock = Clock()
    assert looks(Lookout(PACE, clock), clock, [sky("1 of 4")], NEW, 120) == [0, 0.25, 3.25, 7.75, 12.75, 17.75]


def test_what_moves_is_looked_at_sooner() -> None:
    clock = Clock()
    seen = [sky("1 of 4")] * 4 + [sky("2 of 4")]
    assert looks(Lookout(PACE, clock), clock, seen, NEW, 115) == [0, 0.25, 3.25, 7.75, 12.75, 14.75]


def test_while_nothing_is_waited_for_it_is_looked_at_now_and_then() -> None:
    clock = Clock()
    assert looks(Lookout(PACE, clock), clock, [sky("runs")], NOBODY, 112) == [0, 5, 10]


def test_what_is_new_and_what_has_come_about_is_looked_at_at_once() -> None:
    clock = Clock()
    lookout = Lookout(PACE, clock)
    looks(lookout, clock, [sky("runs")], NOBODY, 101)
    lookout.waits_for(NEW, hurry=False)
    assert lookout.is_due()
    lookout.note_look(sky("runs"))
    lookout.waits_for(NEW, hurry=False)
    assert not lookout.is_due()
    lookout.waits_for(NEW, hurry=True)
    assert lookout.is_due()


def test_a_cloud_that_costs_nothing_is_always_looked_at() -> None:
    clock = Clock()
    assert looks(Lookout(Pace(), clock), clock, [sky("1 of 4")], NEW, 101) == [0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize(("first_s", "most_s"), [(-1.0, 5.0), (6.0, 5.0), (0.0, 0.0), (1.0, 3601.0)])
def test_a_pace_that_makes_no_sense_is_refused(first_s: float, most_s: float) -> None:
    with pytest.raises(BadInput):
        Pace(first_s, most_s)


class CountedLooks:
    """The looks at a world's cloud, by the world's clock."""

    def __init__(self, world: World) -> None:
        self._list = world.cloud.list
        self.at_s: list[float] = []
        self._world = world
        world.cloud.list = self._looked  # type: ignore[method-assign]

    def _looked(self, fleet: str | None = None) -> tuple[Vnf, ...]:
        self.at_s.append(self._world.wall.ticks())
        return self._list(fleet)


@pytest.fixture
def slow_world(tmp_path: Path) -> Iterator[World]:
    """A cloud that is looked at every few seconds, and takes six looks to build a VNF."""
    world = World(fresh(tmp_path / "store.db"), replace(SETTINGS, size=1), pace=PACE, slow=6)
    yield world
    world.close()


def test_a_fleet_comes_up_and_goes_while_its_cloud_is_left_alone(slow_world: World) -> None:
    world = slow_world
    looked = CountedLooks(world)
    world.until(lambda: world.serving() == {"fw-0"})
    assert world.cloud.created == ["fw-0"]
    came_s = world.wall.ticks()
    assert len(looked.at_s) < came_s  # four looks a second at the rows, less than one at the cloud
    world.set(replace(SETTINGS, size=0))
    world.until(lambda: world.members() == {})
    assert world.cloud.list() == ()


def test_what_the_cloud_is_slow_to_do_is_asked_for_once_a_look(slow_world: World) -> None:
    world = slow_world
    world.until(lambda: world.serving() == {"fw-0"})
    asked: list[str] = []
    delete = world.cloud.delete
    world.cloud.delete = lambda fleet, names: asked.extend(names)  # type: ignore[method-assign]
    looked = CountedLooks(world)
    world.set(replace(SETTINGS, size=0))
    world.until(lambda: world.states() == {"fw-0": "leaving"})
    world.pass_(10.0)
    assert 2 <= len(asked) <= len(looked.at_s) <= 8  # four times a second the rows are looked at
    world.cloud.delete = delete  # type: ignore[method-assign]
    world.until(lambda: world.members() == {})
    assert world.cloud.created == ["fw-0"]
    assert world.told("vnf.orphan") == []


def test_a_cloud_that_does_not_answer_is_asked_less_and_less_often(slow_world: World) -> None:
    world = slow_world
    world.cloud.before["list"] = [Unreachable("no answer")] * 8
    looked = CountedLooks(world)
    world.until(lambda: len(looked.at_s) == 8)
    pauses = [after - before for before, after in zip(looked.at_s, looked.at_s[1:], strict=False)]
    assert pauses[2:] == [3.0, 4.5, 5.0, 5.0, 5.0]  # after those for what was decided and asked for
    world.until(lambda: world.serving() == {"fw-0"})
