"""What may follow at once although hosts may hold much: a step that concerns no list that changed since."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import until
from staging_world import HOSTS, Plant, deny_web, enrol

from orchestrator.control.staging import CACHE_FOLLOWS_S
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl
from orchestrator.store.records import HostRecord
from orchestrator.store.unit import Unit

BOTH = Acl((*deny_web("egress").rules[:1], *deny_web("ingress").rules))


def set_up(unit: Unit) -> None:
    unit.domains.create("pop")
    for number, tenant in enumerate(("a", "b", "c")):
        unit.tenants.create(tenant, name="", domain="pop", prefixes=[Prefix.parse(f"10.{number}.0.0/16")])
    for number, host in enumerate(HOSTS):
        unit.domains.add_host("pop", HostRecord(host, 1 + number, "wan0"))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def plant(url: str) -> Iterator[Plant]:
    made = Plant(url)
    with made.store.write() as unit:
        set_up(unit)
    enrol(made)
    yield made
    made.close()


def put(plant: Plant, tenant: str, acl: Acl) -> int:
    return plant.control.write(lambda unit: unit.acls.replace(tenant, acl, author="test")).generation


def permit(source: str) -> Acl:
    return acl_from_json({"rules": [{"id": "in", "action": "permit", "source": source}]})


def reach(plant: Plant, generation: int) -> None:
    """Let every host follow to a generation, by the intersection where there is one."""
    until(lambda: plant.program.generation in {generation - 1, generation})
    plant.read_back(*HOSTS)
    time.sleep(CACHE_FOLLOWS_S)
    plant.read_back(*HOSTS)
    until(lambda: plant.program.generation == generation)
    plant.read_back(*HOSTS)
    time.sleep(CACHE_FOLLOWS_S)
    plant.read_back(*HOSTS)


def test_a_write_that_concerns_no_changed_list_follows_at_once(plant: Plant) -> None:
    """No host was read back, and the deny between two tenants has changed ends before the start."""
    for tenant, acl in (("a", deny_web("egress")), ("b", deny_web("egress")), ("a", deny_web("ingress"))):
        with plant.store.write() as unit:
            unit.acls.replace(tenant, acl, author="test")
    plant.start()
    assert put(plant, "c", permit("192.0.2.0/24")) == plant.program.generation
    target = put(plant, "b", deny_web("ingress"))
    assert plant.program.generation == target - 1, "hosts may hold the lists that denied at the other end"


def test_a_host_that_fell_back_has_everything_compared_again(plant: Plant) -> None:
    plant.start()
    reach(plant, put(plant, "a", deny_web("egress")))
    before = plant.program
    reach(plant, put(plant, "a", BOTH))
    reach(plant, put(plant, "a", deny_web("ingress")))
    assert put(plant, "c", permit("192.0.2.0/24")) == plant.program.generation
    reach(plant, plant.program.generation)
    plant.read_back("h2", program=before)
    target = put(plant, "c", permit("198.51.100.0/24"))
    assert plant.program.generation == target - 1
