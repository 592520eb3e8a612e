"""Intersection first with hosts that come, go and come again: what a switch held it still holds until it is read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import until
from staging_world import Plant, deny_web, everywhere, planted

from orchestrator.control.staging import CACHE_FOLLOWS_S
from orchestrator.policy.model import Acl
from orchestrator.store.records import HostRecord

BOTH = Acl((*deny_web("egress").rules[:1], *deny_web("ingress").rules))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def plant(url: str) -> Iterator[Plant]:
    with planted(url) as made:
        yield made


def take_out(plant: Plant, host: str) -> None:
    plant.control.write(lambda unit: unit.domains.remove_host("pop", host))


def put_in(plant: Plant, host: str, datapath: int) -> int:
    return plant.control.write(lambda unit: unit.domains.add_host("pop", HostRecord(host, datapath, "wan0")))


def move_on_without(plant: Plant, host: str) -> None:
    """A deny changes ends while one host is out of the domain, its switch as it was."""
    everywhere(plant, deny_web("egress"))
    take_out(plant, host)
    for acl in (BOTH, deny_web("ingress")):
        generation = plant.put(acl)
        plant.read_back("h1")
        until(lambda generation=generation: plant.program.generation == generation)  # type: ignore[misc]
        plant.read_back("h1")
        time.sleep(CACHE_FOLLOWS_S)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_host_that_comes_again_may_hold_what_it_held(plant: Plant, url: str, *, restarted: bool) -> None:
    move_on_without(plant, "h2")
    if restarted:
        plant.close()
        plant = Plant(url)
        plant.start()
    target = put_in(plant, "h2", 2)
    try:
        assert plant.program.generation == target - 1, "it may permit what its receiver's host denies now"
        plant.read_back("h1")
        time.sleep(CACHE_FOLLOWS_S)
        assert plant.program.generation == target - 1
        plant.read_back("h2")
        until(lambda: plant.program.generation == target)
    finally:
        if restarted:
            plant.close()


def test_a_host_that_never_was_there_is_not_waited_for(plant: Plant) -> None:
    move_on_without(plant, "h2")
    target = put_in(plant, "h2", 22)
    assert plant.program.generation == target


def test_a_host_that_came_and_was_not_read_back_may_hold_anything_since(plant: Plant) -> None:
    everywhere(plant, deny_web("egress"))
    put_in(plant, "h3", 3)
    plant.read_back("h1", "h2")
    assert plant.put(BOTH) == plant.program.generation
    plant.read_back("h1", "h2")
    time.sleep(CACHE_FOLLOWS_S)
    target = plant.put(deny_web("ingress"))
    assert plant.program.generation == target - 1, "h3 may have been loaded with the first of the lists"
    plant.read_back("h1", "h2")
    time.sleep(CACHE_FOLLOWS_S)
    assert plant.program.generation == target - 1
    plant.read_back("h3")
    until(lambda: plant.program.generation == target)
