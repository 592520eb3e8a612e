"""The migrations lead to exactly the tables of `schema/core.py`, and databases of another schema are refused."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, inspect, text
from store.conftest import DATABASES
from store.postgres_cluster import Cluster

from orchestrator.errors import Busy, Missing
from orchestrator.store import StoreSettings, migrate, open_store
from orchestrator.store.schema.core import HEAD, metadata

SQLITE_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_master"
POSTGRES_OBJECTS = (
    """SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name, ordinal_position
       FROM information_schema.columns WHERE table_schema = 'public'""",
    """SELECT rel.relname, con.conname, pg_get_constraintdef(con.oid) FROM pg_constraint con
       JOIN pg_class rel ON rel.oid = con.conrelid WHERE con.connamespace = 'public'::regnamespace""",
    "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
)


@pytest.fixture(params=DATABASES)
def empty_addresses(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two empty databases."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'one.db'}", f"sqlite:///{tmp_path / 'two.db'}"
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    yield cluster.create_database("empty_one"), cluster.create_database("empty_two")
    for name in ("empty_one", "empty_two"):
        cluster.drop_database(name)


def objects(connection: Connection) -> list[list[tuple[object, ...]]]:
    """Everything that a schema is made of, as the database itself describes it, in no order."""
    if connection.dialect.name == "sqlite":
        rows = connection.execute(text(SQLITE_OBJECTS))
        return [sorted(((*row[:3], declared(row[3])) for row in rows), key=repr)]
    return [sorted(map(tuple, connection.execute(text(query))), key=repr) for query in POSTGRES_OBJECTS]


def declared(statement: str | None) -> tuple[str, ...]:
    """The parts of a statement, in no order: SQLite keeps it as it was typed and writes later additions into it."""
    text = re.sub(r"\s*([,()])\s*", r"\1", (statement or "").replace('"', ""))
    inner = re.fullmatch(r"(CREATE TABLE \w+)\((.*)\)(.*)", text)
    if inner is None:
        return (text,)
    before, parts, after = inner.groups()
    return (before, *sorted(re.split(r",(?![^(]*\))", parts)), after)


def bare(address: str) -> Engine:
    return create_engine(address)


def contents(connection: Connection) -> dict[str, list[tuple[object, ...]]]:
    """The rows of all tables that have any."""
    tables = inspect(connection).get_table_names()
    rows = {table: [*map(tuple, connection.execute(text(f"SELECT * FROM {table}")))] for table in tables}
    return {table: found for table, found in rows.items() if found}


def test_migrations_lead_to_the_tables_of_a_fresh_database(empty_addresses: tuple[str, str]) -> None:
    """All of them, from the first one on; they leave no row but the revision."""
    migrated, fresh = empty_addresses
    done = migrate.upgrade(fresh)
    assert (done.before, done.after) == (None, HEAD)
    assert migrate.upgrade(fresh).before == HEAD
    engines = bare(migrated), bare(fresh)
    with engines[0].begin() as connection:
        migrate.run(connection, "0001")
    assert migrate.upgrade(migrated) == migrate.Upgrade("0001", HEAD)
    with engines[0].connect() as one, engines[1].connect() as two:
        found, wanted = objects(one), objects(two)
        assert contents(one) == contents(two) == {migrate.VERSION_TABLE: [(HEAD,)]}
    assert found == wanted
    assert len(found[0]) > len(metadata.tables)
    assert any("prefixes_exclusive" in repr(row) for part in found for row in part)
    for engine in engines:
        engine.dispose()


def test_the_head_is_the_last_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).with_name("migrations")))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_a_fresh_database_gets_its_tables_once(empty_addresses: tuple[str, str]) -> None:
    """Several processes opening it at once: one makes the tables, all can use them."""
    failures: list[Exception] = []

    def use(name: str) -> None:
        try:
            store = open_store(empty_addresses[0])
            with store.write() as unit:
                unit.domains.create(name)
            store.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            failures.append(error)

    threads = [threading.Thread(target=use, args=(f"d{index}",)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    store = open_store(empty_addresses[0])
    with store.read() as unit:
        assert len(unit.domains.list()) == 3
    store.close()


def test_a_fresh_database_that_another_process_opens_is_waited_for(tmp_path: Path) -> None:
    """SQLite refuses at once to switch a file to its write-ahead log while another connection begins to write."""
    address = f"sqlite:///{tmp_path / 'one.db'}"
    with closing(sqlite3.connect(tmp_path / "one.db", isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy):
            open_store(address, settings=StoreSettings(busy_timeout_s=0.1))
        leaving = threading.Timer(0.3, lambda: other.execute("COMMIT"))
        leaving.start()
        with closing(open_store(address)) as store, store.read() as unit:
            assert unit.domains.list() == ()
        leaving.join()


def test_other_schemas_are_refused(empty_addresses: tuple[str, str]) -> None:
    migrate.upgrade(empty_addresses[0])
    ours, foreign = map(bare, empty_addresses)
    with ours.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0000'"))
    with pytest.raises(Missing, match="aclflow db upgrade"):
        open_store(empty_addresses[0])
    with ours.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Missing, match="9999"):
        open_store(empty_addresses[0])
    with pytest.raises(Missing, match="newer program"):
        migrate.upgrade(empty_addresses[0])
    with foreign.begin() as connection:
        connection.execute(text("CREATE TABLE somebody_elses (x INTEGER)"))
    for attempt in (open_store, migrate.upgrade):
        with pytest.raises(Missing, match="somebody_elses"):
            attempt(empty_addresses[1])
    for engine in (ours, foreign):
        engine.dispose()


GROUPED = ("10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32")


def test_groups_of_the_first_schema_keep_their_members_and_their_history(empty_addresses: tuple[str, str]) -> None:
    """Version 1 has the group with three members, version 2 with the last two, version 3 without it."""
    engine = bare(empty_addresses[0])
    with engine.begin() as connection:
        migrate.run(connection, "0001")
        for statement in OLD_ROWS:
            connection.execute(text(statement))
        add_group = text("INSERT INTO acl_groups VALUES (7, :since, 'office', :until, :body)")
        for since, until, members in ((1, 2, GROUPED), (2, 3, GROUPED[1:])):
            body = json.dumps({"prefixes": members, "description": f"at {since}"})
            connection.execute(add_group, {"since": since, "until": until, "body": body})
    engine.dispose()
    assert migrate.upgrade(empty_addresses[0]) == migrate.Upgrade("0001", HEAD)
    store = open_store(empty_addresses[0])
    with store.read() as unit:
        lists = [unit.acls.at("blue", version).acl for version in (1, 2, 3)]
    store.close()
    assert [tuple(map(str, each.groups["office"].prefixes)) for each in lists[:2]] == [GROUPED, GROUPED[1:]]
    assert [each.groups["office"].description for each in lists[:2]] == ["at 1", "at 2"]
    assert not lists[2].groups


def test_sums_of_the_second_schema_go_on(empty_addresses: tuple[str, str]) -> None:
    """A rule that was counted, the tenant's default, an operator's rule, and a rule that is no more."""
    engine = bare(empty_addresses[0])
    kinds = {"rule": 0x11, "default": 0x12, "operator": 0x14}
    with engine.begin() as connection:
        migrate.run(connection, "0001")
        for statement in OLD_ROWS:
            connection.execute(text(statement))
        body = '{"id": "web", "action": "permit"}'
        connection.execute(text(f"INSERT INTO acl_rules VALUES (7, 1, 5, NULL, 41, 'web', NULL, '{body}')"))
        connection.execute(text(f"INSERT INTO operator_rules VALUES ('pop', 1, 42, 'dns', '{body}')"))
        add = text("INSERT INTO hits VALUES (:cookie, :packets, :bytes, 1, :hit)")
        for kind, number, packets in (("rule", 41, 5), ("default", 7, 6), ("operator", 42, 7), ("rule", 999, 8)):
            row = {"cookie": kinds[kind] << 48 | number, "packets": packets, "bytes": packets * 100}
            connection.execute(add, {**row, "hit": 1_000_000 if packets == 5 else None})
    engine.dispose()
    migrate.upgrade(empty_addresses[0])
    store = open_store(empty_addresses[0])
    with store.read() as unit:
        hits, counts = unit.hits.totals("blue"), unit.hits.rates("pop")
    store.close()
    web = hits.rules["web"]
    assert (web.packets, web.bytes, web.resets) == (5, 500, 1)
    assert web.last_hit is not None
    assert hits.ingress_default.packets == 6
    assert dict(zip(counts.number.tolist(), counts.packets.tolist(), strict=True)).get(42) == 7


def test_endpoints_of_the_first_schema_keep_their_ports_to_themselves(empty_addresses: tuple[str, str]) -> None:
    """They are not shared, and keep their prefixes, which go with their rows."""
    engine = bare(empty_addresses[0])
    with engine.begin() as connection:
        migrate.run(connection, "0001")
        for statement in OLD_ROWS:
            connection.execute(text(statement))
        for name, port, mac in (("web", "tap1", 1), ("db", "tap2", 2)):
            connection.execute(text(f"INSERT INTO endpoints VALUES ('pop', '{name}', 7, '{port}', {mac}, 5)"))
            place = {"first": bytes([4, 10, 0, 0, mac]), "last": bytes([4, 10, 0, 0, mac])}
            add = f"INSERT INTO endpoint_prefixes VALUES (:first, :last, '10.0.0.{mac}/32', 'pop', '{name}')"
            connection.execute(text(add), place)
    engine.dispose()
    migrate.upgrade(empty_addresses[0])
    store = open_store(empty_addresses[0])
    with store.read() as unit:
        found = {each.endpoint.name: each for each in unit.domains.endpoints("pop")}
    store.close()
    assert {name: (each.endpoint.port, each.endpoint.mac, each.endpoint.shared, each.version)
            for name, each in found.items()} == {"web": ("tap1", 1, False, 5), "db": ("tap2", 2, False, 5)}  # fmt: skip
    assert {name: list(map(str, each.endpoint.prefixes)) for name, each in found.items()} == {
        "web": ["10.0.0.1/32"], "db": ["10.0.0.2/32"]
    }  # fmt: skip


OLD_ROWS = (
    "INSERT INTO domains VALUES ('pop', 'established', 4, 0, 1, 0, 0)",
    "INSERT INTO tenants VALUES (7, 'blue', 'pop', '', 1, 3, 0)",
    *(f"INSERT INTO acl_versions VALUES (7, {version}, 'ann', 0, 'deny', 'permit', 0)" for version in (1, 2, 3)),
)
"""A tenant at version 3 of an empty list, as the first schema kept it."""
