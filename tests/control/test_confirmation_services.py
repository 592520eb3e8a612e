"""Changes that nobody confirms, where a service is killed meanwhile or two of them come to take one back at once."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from control.test_confirmation import MINUTE, OWN, held, kinds, names, put
from control.test_timekeeper import Plant, Wall
from patience import PATIENCE_S, until
from served import ServiceProcess
from store.postgres_cluster import running
from structlog.testing import capture_logs

from orchestrator.bootstrap import create_token
from orchestrator.client import Client
from orchestrator.errors import Conflict
from orchestrator.store import open_store
from orchestrator.store.migrate import upgrade
from orchestrator.store.records import Role

CONFIRM_S = 600
ROUNDS = 5


def test_a_change_goes_back_in_its_time_where_the_service_was_killed(tmp_path: Path) -> None:
    """Killed as soon as it has answered, and back after the time is over."""
    service = ServiceProcess(tmp_path)
    token = create_token(service.settings, Role.ADMIN).secret
    service.start()
    try:
        with Client(service.url, token) as client:
            client.domains.create("pop")
            client.tenants.create("shop", domain="pop", prefixes=[*OWN])
            client.acls.put("shop", names("before"))
            client.acls.put("shop", names("after"), confirm_s=CONFIRM_S)
        service.kill()
        end_waiting(tmp_path)
        service.start()
        with Client(service.url, token) as client:
            until(lambda: [rule.id for rule in client.acls.read("shop").acl.rules] == ["before"])
            assert client.tenants.read("shop").unconfirmed is None
            assert client.acls.put("shop", names("next")).changed, "others may write again"
    finally:
        service.kill()


def end_waiting(directory: Path) -> None:
    """Move the deadline of the change that waits to a moment ago, as if its time had passed."""
    with closing(sqlite3.connect(directory / "aclflow.db")) as database, database:
        moved = database.execute(
            "UPDATE tenants SET confirm_by = ? WHERE confirm_by IS NOT NULL", (round(time.time() * 1e6),)
        )
        assert moved.rowcount == 1


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Plant, Plant]]:
    """Two services on one PostgreSQL, each with a timekeeper of its own."""
    with running() as cluster, ExitStack() as stack:
        url = cluster.create_database("raced")
        upgrade(url)
        plants = []
        for _ in range(2):
            store = stack.enter_context(closing(open_store(url)))
            store.is_alone = False
            plants.append(Plant(store, Wall()))
        one, other = plants
        one.control.write(lambda unit: unit.domains.create("pop"))
        one.control.write(lambda unit: unit.tenants.create("shop", name="", domain="pop", prefixes=[*OWN]))
        yield one, other


def at_once(*calls: Callable[[], object]) -> list[object]:
    """Do all at the same moment; what each came to, or how it failed."""
    line = threading.Barrier(len(calls))

    def do(call: Callable[[], object]) -> object:
        line.wait(PATIENCE_S)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(do, call) for call in calls]
        return [future.exception() or future.result() for future in futures]


def wait_out(*plants: Plant) -> None:
    """Each service has seen the change, and its time is over."""
    for plant in plants:
        plant.tick()
        plant.wall.now += MINUTE


def test_of_two_services_one_takes_a_change_back(pair: tuple[Plant, Plant]) -> None:
    one, other = pair
    for number in range(ROUNDS):
        put(one, names("a", f"old{number}"))
        changed = put(one, names("b", f"new{number}"), 60)
        before = kinds(one).count("acl.reverted")
        wait_out(one, other)
        with capture_logs() as said:
            done = at_once(one.tick, other.tick)
        assert [each for each in done if isinstance(each, Exception)] == []
        assert [each["event"] for each in said if each["log_level"] == "error"] == [], "the other has nothing to do"
        assert held(one) == held(other) == ["a", f"old{number}"]
        with one.store.read() as unit:
            assert unit.acls.version("shop") == changed + 1, "it went back once"
        assert kinds(one).count("acl.reverted") == before + 1


def test_a_change_is_confirmed_or_goes_back_and_never_both(pair: tuple[Plant, Plant]) -> None:
    one, other = pair
    for number in range(ROUNDS):
        put(one, names("a", f"kept{number}"))
        put(one, names("b", f"asked{number}"), 60)
        before = kinds(one).count("acl.reverted")
        wait_out(one, other)
        confirmed, ticked = at_once(lambda: one.control.write(lambda unit: unit.acls.confirm("shop")), other.tick)
        assert not isinstance(ticked, Exception)
        if isinstance(confirmed, Exception):
            assert isinstance(confirmed, Conflict)
            assert (held(one), kinds(one).count("acl.reverted")) == (["a", f"kept{number}"], before + 1)
        else:
            assert (held(one), kinds(one).count("acl.reverted")) == (["b", f"asked{number}"], before)
