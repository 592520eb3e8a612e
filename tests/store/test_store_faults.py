"""Faults: full disks, killed processes, lost connections. What was acknowledged is there, and nothing by halves."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import psycopg
import pytest
from sqlalchemy import QueuePool, event
from store.postgres_cluster import Cluster
from store.scenes import acl, populate, rule

from orchestrator.errors import BadInput, Busy, Conflict, Full, Missing, NotFound, TryAgain, Unreachable
from orchestrator.policy.model import Acl
from orchestrator.store import Store, open_store
from orchestrator.store.records import Reply, Role
from orchestrator.store.sql.faults import translate_faults
from orchestrator.store.transaction import StoreSettings
from orchestrator.store.unit import Unit

ROOT = Path(__file__).resolve().parents[2]


def long_list(port: int, length: int = 3000) -> Acl:
    return acl(*(rule(f"r{index}", port=port) for index in range(length)))


def versions_on_ports(unit: Unit) -> set[int]:
    return {found.destination_ports[0].low for found in unit.acls.current("blue").acl.rules}


def test_a_setting_says_how_many_connections_are_open(tmp_path: Path) -> None:
    settings = StoreSettings(busy_timeout_s=0.2, connections=12)
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", settings=settings)
    with ExitStack() as open_:
        for _ in range(12):
            open_.enter_context(store.read())
        with pytest.raises(Busy), store.read():
            pass
    with store.read() as unit:
        assert unit.domains.names() is not None
    store.close()


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'store.db'}"
    store = open_store(address)
    populate(store)
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("a"), rule("b")), author="ann")
    store.close()

    full = open_store(address)

    @event.listens_for(full.engine, "connect")
    def no_room(connection: sqlite3.Connection, _record: object) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    full.engine.dispose()
    with pytest.raises(TryAgain, match="disk of the store is full") as caught, full.write() as unit:
        unit.acls.replace("blue", long_list(443), author="ann")
    assert not isinstance(caught.value, Busy)
    with full.write() as unit:
        assert unit.acls.current("blue").acl == acl(rule("a"), rule("b"))
        assert unit.acls.put_rule("blue", rule("a", port=81), author="ann").version == 2  # what fits still goes in
    full.close()
    fresh = open_store(address)
    with fresh.write() as unit:
        assert unit.acls.replace("blue", long_list(443), author="ann").version == 3
    fresh.close()


def test_a_statement_that_failed_spoils_its_unit(store: Store) -> None:
    """Somebody who catches a database error and goes on must not commit half of a change."""
    populate(store)

    def carry_on(unit: Unit) -> None:
        unit.tenants.rename("blue", "Half")
        token = unit.tokens.create(Role.ADMIN).record.id
        unit.replies.keep(token, "key", b"request", Reply(200, {}, b""))
        with pytest.raises(Conflict):
            unit.replies.keep(token, "key", b"request", Reply(200, {}, b""))
        with pytest.raises(RuntimeError, match="begin a new unit"):
            unit.tenants.get("blue")

    with pytest.raises(RuntimeError, match="cannot be committed"), store.write() as unit:
        carry_on(unit)
    with store.read() as unit:
        assert unit.tenants.get("blue").name == "Blue"


REPLACER = """
import sys
from store.scenes import acl, rule
from orchestrator.store import open_store
store = open_store(sys.argv[1])
port = int(sys.argv[2])
while True:
    port += 1
    print("begin", port, flush=True)
    with store.write() as unit:
        change = unit.acls.replace("blue", acl(*(rule(f"r{i}", port=port) for i in range(3000))), author="x")
    print("acknowledged", port, change.version, flush=True)
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.09, 0.14])
def test_killed_in_the_middle_of_a_replacement(address: str, delay_s: float) -> None:
    """The list is the one acknowledged or the one under way, whole, and the next change goes in at once."""
    store = open_store(address)
    populate(store)
    with store.write() as unit:
        unit.acls.replace("blue", long_list(1), author="ann")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    process = subprocess.Popen(
        [sys.executable, "-c", REPLACER, address, "1"], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]  # begin, acknowledged, begin
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.read().splitlines()
    process.wait()
    acknowledged = max(int(line.split()[1]) for line in lines if line.startswith("acknowledged"))
    begun = max(int(line.split()[1]) for line in lines if line.startswith("begin"))
    for reader in (store, open_store(address)):
        with reader.read() as unit:
            (port,) = versions_on_ports(unit)
            assert port in range(acknowledged, begun + 1)
            assert len(unit.acls.current("blue").acl.rules) == 3000
            assert unit.acls.version("blue") == port
    with store.write() as unit:
        assert unit.acls.put_rule("blue", rule("r0", port=9999), author="ann").version == port + 1
    reader.close()
    store.close()


def cut_connections(cluster: Cluster, database: str) -> None:
    with cluster.connect() as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (database,))


def rename_and_lose_the_connection(store: Store, cluster: Cluster) -> None:
    with store.write() as unit:
        unit.tenants.rename("blue", "Never")
        cut_connections(cluster, "at_the_end")


def test_a_connection_lost_at_the_very_end_of_a_unit_is_not_used_again(cluster: Cluster) -> None:
    store = open_store(cluster.create_database("at_the_end"))
    populate(store)
    with store.read() as unit:
        name = unit.tenants.get("blue").name
        cut_connections(cluster, "at_the_end")
    assert name == "Blue", "what was read was read"
    for _ in range(2):
        with pytest.raises(Unreachable):
            rename_and_lose_the_connection(store, cluster)
        with store.write() as unit:
            unit.tenants.rename("blue", "Blue again")
    pool = cast("QueuePool", store.engine.pool)
    assert pool.checkedout() == 1, "the one that writes is kept, and no other"
    store.close()


def test_a_lost_connection_is_unreachable_and_heals(cluster: Cluster) -> None:
    store = open_store(cluster.create_database("lost"))
    populate(store)

    def cut() -> None:
        cut_connections(cluster, "lost")

    def lose_it(unit: Unit) -> None:
        unit.tenants.rename("blue", "Never")
        cut()
        unit.tenants.get("blue")

    with pytest.raises(Unreachable, match="does not answer"), store.write() as unit:
        lose_it(unit)
    cut()
    with store.write() as unit:  # connections in the pool are tried before they are used
        assert unit.tenants.get("blue").name == "Blue"
    store.check()
    store.close()


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("nonsense", BadInput),
        ("mysql://host/db", BadInput),
        ("sqlite://", BadInput),
        ("sqlite:///:memory:", BadInput),
        ("sqlite:////nowhere/at/all/store.db", Missing),
        ("postgresql+psycopg://aclflow@/x?host=/nowhere", Unreachable),
    ],
)
def test_addresses_that_lead_nowhere(address: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        open_store(address)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(Unreachable, match="cannot be used"):
        open_store(f"sqlite:///{path}")


def test_a_new_file_is_its_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = open_store(f"sqlite:///{path}")
    populate(store)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.with_name("store.db-wal").stat().st_mode & 0o777 == 0o600
    store.close()


def test_every_connection_in_use_is_busy(open_another: Callable[..., Store]) -> None:
    store = open_another(settings=StoreSettings(busy_timeout_s=0.1))
    held = [store.engine.connect() for _ in range(40)]
    with pytest.raises(Busy, match="in use"), store.read():
        pass
    for connection in held:
        connection.close()
    store.check()


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("40001", Busy),
        ("40P01", Busy),
        ("53300", Busy),
        ("55P03", Busy),
        ("57P03", Busy),
        ("53100", Full),
        ("08006", Unreachable),
        ("57P01", Unreachable),
        ("58030", Unreachable),
        ("23505", Conflict),
        ("23P01", Conflict),
        ("22003", BadInput),
        ("23502", psycopg.errors.NotNullViolation),
        ("42601", psycopg.errors.SyntaxError),
    ],
)
def test_what_postgresql_says_becomes_what_the_caller_can_do(state: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught, translate_faults():
        raise psycopg.errors.lookup(state)("as the server words it")
    assert type(caught.value) is error


WORDS: list[Callable[[Unit], object]] = [
    lambda unit: unit.tenants.get("nul\0"),
    lambda unit: unit.tenants.get("half \ud800"),
    lambda unit: unit.acls.rule("blue", "\0"),
    lambda unit: unit.acls.at("blue", 2**70),
    lambda unit: unit.acls.at("blue", -(2**70)),
    lambda unit: unit.tokens.revoke(2**70),
    lambda unit: unit.enforcers.get(2**63),
    lambda unit: unit.domains.endpoint("pop", "x" * 100_000),
    lambda unit: unit.acls.put_rule("blue", rule("a"), author="\0"),
]


@pytest.mark.parametrize("number", range(len(WORDS)))
def test_words_and_numbers_that_no_column_holds(store: Store, number: int) -> None:
    populate(store)
    with pytest.raises((BadInput, NotFound)), store.write() as unit:
        WORDS[number](unit)
