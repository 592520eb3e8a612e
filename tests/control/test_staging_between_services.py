"""Intersection first where several services share a database: who commits decides, and all publish the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import until
from raised import raise_generation
from staging_world import HOSTS, Plant, deny_web, enrol, everywhere, set_up

from orchestrator.control.reports import Report
from orchestrator.control.staging import CACHE_FOLLOWS_S
from orchestrator.policy.model import Acl
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.wire.points import PointState

BOTH = Acl((*deny_web("egress").rules[:1], *deny_web("ingress").rules))


@pytest.fixture
def plants(tmp_path: Path) -> Iterator[tuple[Plant, Plant]]:
    """Two services on one database, of which neither hears of the other's commits but by `hear`."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    one = Plant(url, is_alone=False)
    with one.store.write() as unit:
        set_up(unit)
    enrol(one)
    other = Plant(url, is_alone=False)
    for plant in (one, other):
        plant.start()
    yield one, other
    for plant in (one, other):
        plant.close()


def hear(plant: Plant, generation: int) -> None:
    """A notice of the other service's commit comes, and what comes of it is published."""
    plant.control.loop.look_at("pop")
    until(lambda: plant.program.generation >= generation, what=lambda: f"it is at {plant.program.generation}")


def test_what_the_committer_found_harmless_is_published_at_once(plants: tuple[Plant, Plant]) -> None:
    """By what this service knows of the hosts it would have to wait; by what the committer knew it has not."""
    committer, other = plants
    hear(other, everywhere(committer, deny_web("egress")))
    with committer.store.write() as unit:
        target = unit.acls.replace("all", deny_web("ingress"), author="test").generation
    hear(other, target)
    assert other.program.generation == target


def test_all_services_publish_the_same_intersection_and_go_on_from_it(plants: tuple[Plant, Plant]) -> None:
    committer, other = plants
    hear(other, everywhere(committer, deny_web("egress")))
    target = committer.put(deny_web("ingress"))
    hear(other, target - 1)
    held = committer.program
    assert (held.generation, held.digest) == (target - 1, other.program.digest)
    other.read_back("h1")
    other.read_back("h2", program=held)
    for plant in plants:
        until(lambda plant=plant: plant.program.generation == target)  # type: ignore[misc]
    assert committer.program.digest == other.program.digest


def test_what_another_service_published_meanwhile_counts_as_held(plants: tuple[Plant, Plant]) -> None:
    one, other = plants
    hear(other, everywhere(one, BOTH))
    time.sleep(CACHE_FOLLOWS_S)
    between = one.put(deny_web("egress"))
    assert one.program.generation == between, "it only opens, so hosts may hold it from now on"
    target = other.put(deny_web("ingress"))
    assert target == between + 2
    assert other.program.generation == target - 1


def test_a_list_that_is_put_back_is_compared_with_what_another_service_published_meanwhile(
    plants: tuple[Plant, Plant],
) -> None:
    one, other = plants
    hear(other, everywhere(one, deny_web("egress")))
    everywhere(one, BOTH)
    everywhere(one, deny_web("ingress"))
    time.sleep(CACHE_FOLLOWS_S)
    target = other.put(deny_web("egress"))
    assert other.program.generation == target - 1, "it is what was published last here, and hosts hold other lists"


def test_there_is_an_intersection_when_the_generation_is_raised_above_what_a_host_holds(
    plants: tuple[Plant, Plant],
) -> None:
    """The host holds what nobody here knows; so does every service decide the same."""
    plant, other = plants
    everywhere(plant, deny_web("egress"))
    plant.put(deny_web("ingress"))
    ahead = PointReport("h1", 90, bytes(16), PointState.ENFORCED, None, 1)
    plant.enforcement.report("pop", plant.enforcer, Report((ahead,)))
    assert plant.program.generation < 90, "it is one operator's word that the database was put back, no host's"
    target = plant.control.write(lambda unit: raise_generation(unit, "pop", 90))
    assert target is not None
    for each in plants:
        hear(each, target - 1)
        assert each.program.generation == target - 1 > 90
    middle = plant.program
    assert other.program.digest == middle.digest
    plant.read_back("h2")
    time.sleep(CACHE_FOLLOWS_S)
    assert plant.program is middle
    plant.read_back(*HOSTS)
    until(lambda: plant.program.generation == target)
    assert plant.program.digest != middle.digest
