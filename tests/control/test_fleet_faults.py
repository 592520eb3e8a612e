"""The keeper killed between any two of its effects, and two at once: the fleet ends as it should all the same."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from fleet_world import LOOK_S, MEASURED, SETTINGS, Agent, World, fresh
from store.conftest import DATABASES, wiped
from store.postgres_cluster import Cluster, running

from orchestrator.cloud.base import Pace, Vnf, VnfOrder
from orchestrator.compile.spreadprogram import Member
from orchestrator.control.fleet.keeper import FleetKeeper
from orchestrator.errors import TryAgain
from orchestrator.store import open_store
from orchestrator.store.migrate import upgrade
from orchestrator.store.unit import Unit
from orchestrator.wire.firewalls import Plane

Result = TypeVar("Result")
BEYOND = 10_000


class Killed(BaseException):
    """As SIGKILL would: nothing of ours runs any more, and nobody catches it."""


class Axe:
    """Falls before the effect of a number, counted over everything that a keeper does to the world, or just after."""

    def __init__(self, falls_at: int) -> None:
        self.falls_at = falls_at
        self.count = 0
        self.log: list[str] = []

    def around(self, what: str, effect: Callable[[], Result]) -> Result:
        self._falls(f"before {what}")
        done = effect()
        self._falls(f"after {what}")
        return done

    def _falls(self, where: str) -> None:
        self.log.append(where)
        self.count += 1
        if self.count == self.falls_at:
            raise Killed(where)


class Mortal:
    """The keeper's units, cloud and switch, each effect of which may be the last."""

    kind = "fake"
    pace = Pace()

    def __init__(self, world: World, axe: Axe) -> None:
        self._world = world
        self._axe = axe

    def read(self, work: Callable[[Unit], Result]) -> Result:
        return self._world.control.read(work)

    def write(self, work: Callable[[Unit], Result], *, domain: str | None = None) -> Result:
        return self._axe.around("a transaction", lambda: self._world.control.write(work, domain=domain))

    def create(self, orders: Sequence[VnfOrder]) -> None:
        self._axe.around("create", lambda: self._world.cloud.create(orders))

    def delete(self, fleet: str, names: Sequence[str]) -> None:
        self._axe.around("delete", lambda: self._world.cloud.delete(fleet, names))

    def list(self, fleet: str | None = None) -> tuple[Vnf, ...]:
        return self._world.cloud.list(fleet)

    def close(self) -> None:
        """Nothing is open."""

    def set_members(self, domain: str, members: Sequence[Member], *, stateful: bool = False) -> int:
        give = lambda: self._world.spreading.set_members(domain, members, stateful=stateful)  # noqa: E731
        return self._axe.around("set_members", give)


def keeper_under(world: World, axe: Axe) -> FleetKeeper:
    mortal = Mortal(world, axe)
    return world.new_keeper("one", units=mortal, cloud=mortal, spreading=mortal)


def story(world: World, axe: Axe) -> None:
    """Three are wanted, one of which fails its probe; then one. The keeper may be killed once, and starts again."""
    world.keeper = keeper_under(world, axe)

    def step() -> None:
        try:
            world.step(world.keeper)
        except Killed:
            world.keeper = world.new_keeper("one")

    def until(holds: Callable[[], bool]) -> None:
        for _ in range(int(60 / LOOK_S)):
            if holds():
                return
            step()
        pytest.fail(f"{axe.log[-1:]}: {world.states()}, {world.cloud.list()}")

    world.prepare = lambda agent: _lie(agent) if agent.order.name == "fw-1" else None
    world.set(replace(SETTINGS, size=3))
    until(lambda: len(world.serving()) == 3)
    world.set(replace(SETTINGS, size=1))
    until(lambda: len(world.members()) == 1 and len(world.cloud.list()) == 1)


def _lie(agent: Agent) -> None:
    agent.lies = True


def check(world: World) -> None:
    (name,) = world.serving()
    assert [vnf.name for vnf in world.cloud.list()] == [name]
    assert len(world.cloud.created) == len(set(world.cloud.created)) == 4
    assert world.shares() == {name: 256}
    with world.store.read() as unit:
        assert unit.firewalls.names("pop") == {name}
        assert [each.name for each in unit.enforcers.list("pop")] == ["controller", name]
    assert len(world.told("vnf.failed")) == 1
    assert world.told("vnf.orphan") == []


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Callable[[], World]]:
    made: list[World] = []

    def make() -> World:
        made.append(World(fresh(tmp_path / f"{len(made)}.db"), replace(SETTINGS, size=0)))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.mark.parametrize("nth", [7, pytest.param(1, marks=pytest.mark.long)])
def test_killed_between_any_two_effects(worlds: Callable[[], World], nth: int) -> None:
    """Every place where the axe may fall in one life of the fleet, one after the other; or every nth."""
    whole, unharmed = Axe(BEYOND), worlds()
    story(unharmed, whole)
    check(unharmed)
    assert {"create", "delete", "set_members"} <= {where.split()[-1] for where in whole.log}
    for at in range(1, len(whole.log) + 1, nth):
        world, axe = worlds(), Axe(at)
        story(world, axe)
        check(world)


# ------------------------------------------------------------------------------------------------ two service replicas


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running() as started:
        upgrade(started.create_database("migrated"))
        yield started


@pytest.mark.parametrize("database", DATABASES)
def test_two_at_once_do_the_work_of_one(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Two replicas take turns at every moment; only the one that has the lease does anything, until it is gone."""
    is_sqlite = database == "sqlite"
    address = fresh(tmp_path / "a.db") if is_sqlite else wiped(request.getfixturevalue("cluster"))
    world = World(address, replace(SETTINGS, size=2))
    other = world.new_keeper("two")
    for _ in range(40):
        world.step(world.keeper)
        assert other.tick() > 0
    assert len(world.serving()) == 2
    assert sorted(world.cloud.created) == ["fw-0", "fw-1"]
    assert len(world.told("fleet.resized")) == 1
    world.set(replace(SETTINGS, size=1))
    for _ in range(80):  # the first one is killed: the other goes on when the lease is over
        world.step(other)
    assert len(world.serving()) == 1
    assert len(world.cloud.list()) == 1
    world.close()


def test_a_clock_that_was_set_back_holds_no_fleet_up(worlds: Callable[[], World]) -> None:
    """A replica that starts then finds a lease, decisions, loads and changes of the future."""
    world = worlds()
    world.write(lambda unit: unit.capacities.add(Plane.NFTABLES, MEASURED, source="a test"))
    world.wall.now += dt.timedelta(days=60)
    world.prepare = lambda agent: setattr(agent, "packets_pps", 30_000)
    world.set(replace(SETTINGS, size=None, limits=replace(SETTINGS.limits, fewest=1)))
    for load_pps, size in ((90_000, 2), (180_000, 3)):
        world.until(lambda: len(world.agents) > 0)
        world.agents["fw-0"].packets_pps = load_pps
        world.until(lambda size=size: len(world.serving()) >= size)  # type: ignore[misc]
        world.pass_(2.0)
        if size == 2:
            world.wall.now -= dt.timedelta(days=30)
            world.keeper = world.new_keeper("two")
    for agent in world.agents.values():
        agent.packets_pps = 0
    world.until(lambda: len(world.serving()) == 1)


def test_who_lost_the_lease_in_the_middle_of_a_look_writes_nothing(worlds: Callable[[], World]) -> None:
    world = worlds()
    world.set(replace(SETTINGS, size=1))
    slow = world.new_keeper("slow")
    world.step(slow)
    real = world.cloud.create

    def meanwhile(orders: Sequence[VnfOrder]) -> None:
        real(orders)
        world.wall.now = world.wall.now.replace(minute=1)  # the call took a minute, and another one took over
        assert world.new_keeper("fast").tick() > 0

    world.cloud.create = meanwhile  # type: ignore[method-assign]
    store = open_store(str(world.store.engine.url.render_as_string(hide_password=False)), clock=world.wall)
    with store.read() as unit:
        before = unit.fleets.members("pop")
    for _ in range(2):
        with suppress(TryAgain):  # its loop would look again
            world.step(slow)
    with store.read() as unit:
        assert unit.fleets.is_keeper("fast")
        assert [each.name for each in unit.fleets.members("pop")] == [each.name for each in before]
    store.close()
