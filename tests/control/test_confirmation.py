"""Changes of lists that go back by themselves unless they are confirmed in time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from control.test_timekeeper import HOUR, Plant, Wall
from store.postgres_cluster import running

from orchestrator.control.timekeeper import LOOK_AT_CLOCK_S
from orchestrator.errors import BadPolicy, Conflict, TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl
from orchestrator.store import open_store
from orchestrator.store.migrate import upgrade
from orchestrator.store.records import Quota

WEB = Prefix.parse("10.1.0.0/16")
LOST = Prefix.parse("10.2.0.0/16")
OWN = (WEB, LOST)
SECOND = dt.timedelta(seconds=1)
MINUTE = 60 * SECOND + SECOND


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    wall = Wall()
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", clock=wall)
    plant = Plant(store, wall)
    plant.control.write(lambda unit: unit.domains.create("pop"))
    plant.control.write(lambda unit: unit.tenants.create("shop", name="", domain="pop", prefixes=[*OWN]))
    yield plant
    store.close()


def names(*ids: str, **more: object) -> Acl:
    return acl_from_json({"rules": [{"id": each, "action": "permit", "protocol": "tcp", **more} for each in ids]})


def put(plant: Plant, acl: Acl, confirm_s: int | None = None) -> int:
    def work(unit):
        change = unit.acls.replace("shop", acl, author="test")
        if confirm_s is not None:
            unit.acls.await_confirmation("shop", change.version - 1, confirm_s)
        return change.version

    return plant.control.write(work)


def held(plant: Plant) -> list[str]:
    with plant.store.read() as unit:
        return [rule.id for rule in unit.acls.current("shop").acl.rules]


def kinds(plant: Plant) -> list[str]:
    with plant.store.read() as unit:
        return [event.kind for event in unit.events.since(0, limit=100).events]


def test_what_nobody_confirms_goes_back(plant: Plant) -> None:
    put(plant, names("a"))
    put(plant, names("a", "b"), 60)
    plant.wall.now += MINUTE - 3 * SECOND
    assert plant.tick() <= LOOK_AT_CLOCK_S
    assert held(plant) == ["a", "b"]
    plant.wall.now += 3 * SECOND
    plant.tick()
    assert held(plant) == ["a"]
    assert kinds(plant).count("acl.reverted") == 1
    plant.tick()
    assert kinds(plant).count("acl.reverted") == 1
    put(plant, names("c"))  # others may write again


def test_what_is_confirmed_stays(plant: Plant) -> None:
    put(plant, names("a"))
    put(plant, names("b"), 60)
    plant.control.write(lambda unit: unit.acls.confirm("shop"))
    plant.wall.now += HOUR
    plant.tick()
    assert held(plant) == ["b"]
    with pytest.raises(Conflict, match="perhaps it went back"):
        plant.control.write(lambda unit: unit.acls.confirm("shop"))


def test_nobody_else_writes_the_list_meanwhile(plant: Plant) -> None:
    put(plant, names("a"))
    put(plant, names("b"), 60)
    for acl in (names("c"), names("b")):
        with pytest.raises(Conflict, match=r"waits until 2030-01-01 00:01:00 UTC to be confirmed"):
            put(plant, acl)
    with pytest.raises(Conflict):
        plant.control.write(lambda unit: unit.acls.delete_rule("shop", "b", author="test"))
    assert held(plant) == ["b"]


def test_a_service_that_starts_later_takes_it_back(plant: Plant) -> None:
    put(plant, names("a"))
    put(plant, names("b"), 60)
    plant.wall.now += HOUR
    Plant(plant.store, plant.wall).tick()
    assert held(plant) == ["a"]


@pytest.mark.parametrize("jumps", [(HOUR,), (-HOUR,), (HOUR, -HOUR), (HOUR, 2 * HOUR), (-HOUR, HOUR)])
@pytest.mark.parametrize("was_seen", [True, False])
def test_a_change_waits_for_its_time_whatever_the_clock_does(
    plant: Plant, jumps: tuple[dt.timedelta, ...], was_seen: bool
) -> None:
    """Also one that this service did not see before the clock jumped, for another one made it."""
    put(plant, names("a"))
    plant.tick()
    put(plant, names("b"), 300)
    if was_seen:
        plant.tick()
    for jump in jumps:
        plant.wall.now += 5 * SECOND
        plant.jump(jump)
    for _ in range(4):
        plant.tick()
        assert held(plant) == ["b"]
        plant.wall.now += MINUTE
    plant.wall.now += MINUTE - 5 * SECOND
    plant.tick()
    assert held(plant) == ["a"]


def test_a_change_of_after_a_jump_waits_for_its_time(plant: Plant) -> None:
    put(plant, names("a"))
    plant.tick()
    for jump in (HOUR, -HOUR):
        plant.jump(jump)
        put(plant, names("b"), 300)
        for passed, left in ((0, "b"), (295, "b"), (6, "a")):
            plant.wall.now += passed * SECOND
            plant.tick()
            assert held(plant) == [left]


def test_a_service_that_starts_when_the_clock_went_back_waits_for_the_whole_time_at_most(plant: Plant) -> None:
    put(plant, names("a"))
    put(plant, names("b"), 60)
    plant.store.close()
    plant.wall.now -= HOUR
    plant = Plant(open_store(str(plant.store.engine.url), clock=plant.wall), plant.wall)
    plant.tick()
    plant.wall.now += MINUTE
    plant.tick()
    assert held(plant) == ["a"]
    plant.store.close()


@pytest.mark.parametrize("quota", [Quota(versions=2), Quota(stored_bytes=1)])
def test_the_version_that_a_change_goes_back_to_is_not_forgotten_meanwhile(plant: Plant, quota: Quota) -> None:
    soon = (plant.wall.now + MINUTE).isoformat()
    put(plant, names("a"))
    put(plant, Acl((*names("brief", expires=soon).rules, *names("b").rules)), 120)
    plant.control.write(lambda unit: unit.tenants.set_quota("shop", quota))
    for gone_by, left in ((MINUTE, ["b"]), (MINUTE, ["a"])):
        plant.wall.now += gone_by
        plant.tick()
        assert held(plant) == left


def test_rules_whose_time_is_over_end_meanwhile_and_do_not_come_back(plant: Plant) -> None:
    soon = (plant.wall.now + MINUTE).isoformat()
    put(plant, Acl((*names("brief", expires=soon).rules, *names("a").rules)))
    put(plant, Acl((*names("brief", expires=soon).rules, *names("b").rules)), 120)
    plant.wall.now += MINUTE
    plant.tick()
    assert held(plant) == ["b"]
    plant.wall.now += MINUTE
    plant.tick()
    assert held(plant) == ["a"]


def test_addresses_that_were_lost_meanwhile_do_not_come_back(plant: Plant) -> None:
    both = {"destination": [str(WEB), str(LOST)]}
    put(plant, Acl((*names("both", **both).rules, *names("lost", destination=str(LOST)).rules)))
    put(plant, names("b"), 60)
    plant.control.write(lambda unit: unit.tenants.set_prefixes("shop", [WEB]))
    plant.wall.now += MINUTE
    plant.tick()
    with plant.store.read() as unit:
        rules = unit.acls.current("shop").acl.rules
    assert [(rule.id, rule.destination.prefixes) for rule in rules] == [("both", (WEB,))]
    with pytest.raises(BadPolicy):
        put(plant, names("lost", destination=str(LOST)))


def test_a_quota_does_not_keep_it_from_going_back(plant: Plant) -> None:
    put(plant, names("a", "b", "c"))
    put(plant, names("a"), 60)
    plant.control.write(lambda unit: unit.tenants.set_quota("shop", Quota(rules=1)))
    plant.wall.now += MINUTE
    plant.tick()
    assert held(plant) == ["a", "b", "c"]
    with pytest.raises(TooLarge):
        put(plant, names("a", "b", "c", "d"))


def test_services_whose_clocks_are_apart_agree_on_the_time() -> None:
    """The deadline is by the clock of the database that they share."""
    with running() as cluster, ExitStack() as stack:
        url = cluster.create_database("confirmed")
        upgrade(url)
        ahead = stack.enter_context(closing(open_store(url, clock=lambda: dt.datetime.now(dt.UTC) + HOUR)))
        other = stack.enter_context(closing(open_store(url)))
        plant = Plant(ahead, Wall())
        plant.control.write(lambda unit: unit.domains.create("pop"))
        plant.control.write(lambda unit: unit.tenants.create("shop", name="", domain="pop", prefixes=[*OWN]))
        put(plant, names("a"), 60)
        for store in (ahead, other):
            with store.read() as unit:
                (waiting,) = unit.acls.list_unconfirmed()
                assert 0 < waiting.left_s <= 60
