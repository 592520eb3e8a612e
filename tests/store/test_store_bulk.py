"""Long lists: an edit touches as many rows as it changes, and 20,000 rules fit into little memory."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.store import Store, open_store

ROOT = Path(__file__).resolve().parents[2]
LONG = 20_000
MIB = 1024


def varied(index: int, port: int = 80) -> Rule:
    """A rule whose addresses and ports are its own."""
    return Rule(
        RuleId(f"rule-{index}"),
        Action.PERMIT,
        protocol=TCP,
        source=Addresses((Prefix(Family.IPV4, (index * 2654435761) & 0xFFFFFF00, 24),)),
        destination=Addresses((Prefix(Family.IPV4, 0x0A000000 + index, 32),)),
        destination_ports=(PortRange(port, port + index % 1000),),
    )


@contextmanager
def rows_written(store: Store) -> Iterator[list[int]]:
    """How many rows were inserted, updated or deleted while the block ran, as SQLite counts them."""
    counts: list[int] = []
    before = changes_so_far(store)
    yield counts
    counts.append(changes_so_far(store) - before)


def changes_so_far(store: Store) -> int:
    with store.write() as unit:
        driver = unit.transaction.connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        return driver.total_changes


def replace(store: Store, acl: Acl) -> None:
    with store.write() as unit:
        unit.acls.replace("big", acl, author="bench")


def read(store: Store) -> None:
    with store.read() as unit:
        unit.acls.current("big")


def put(store: Store, rule: Rule) -> None:
    with store.write() as unit:
        unit.acls.put_rule("big", rule, author="bench")


def filled(address: str, rules: int) -> Store:
    store = open_store(address)
    with store.write() as unit:
        unit.domains.create("pop")
        unit.tenants.create("big", name="Big", domain="pop", prefixes=[Prefix.parse("10.0.0.0/8")])
    replace(store, Acl(tuple(varied(index) for index in range(rules))))
    return store


def test_an_edit_touches_the_same_rows_whatever_the_length(tmp_path: Path) -> None:
    touched = {}
    for rules in (LONG // 100, LONG):
        store = filled(f"sqlite:///{tmp_path / f'{rules}.db'}", rules)
        with rows_written(store) as counts:
            put(store, varied(rules // 2, port=100))
        touched[rules] = sum(counts)
        store.close()
    assert touched[LONG] == touched[LONG // 100] < 20


def test_a_replacement_touches_the_rules_that_differ(tmp_path: Path) -> None:
    store = filled(f"sqlite:///{tmp_path / 'store.db'}", LONG)
    changed = {10, 500, LONG - 1}
    rules = tuple(varied(index, 443 if index in changed else 80) for index in range(LONG))
    with rows_written(store) as counts:
        replace(store, Acl(rules))
    assert len(changed) < sum(counts) < 30
    with store.read() as unit:
        assert unit.acls.current("big").acl.rules == rules
    store.close()


@pytest.mark.parametrize("rules", [99, 100, 101, 250])
def test_every_row_of_a_list_is_there_however_many_go_in_at_once(tmp_path: Path, rules: int) -> None:
    address = f"sqlite:///{tmp_path / 'store.db'}"
    filled(address, rules).close()
    store = open_store(address)  # which remembers nothing
    with store.read() as unit:
        assert unit.acls.current("big").acl.rules == tuple(varied(index) for index in range(rules))
    store.close()


MEMORY = """
import sys
from store.test_store_bulk import LONG, Acl, filled, put, read, replace, varied
store = filled(sys.argv[1], LONG)
for port in (81, 82):
    replace(store, Acl(tuple(varied(index, port) for index in range(LONG))))
    read(store)
    for index in range(20):
        put(store, varied(index, port + 1000))
        read(store)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_a_long_list_fits_into_little_memory(tmp_path: Path) -> None:
    """The whole service may take 300 MiB with 20,000 rules; this is the store's part, imports included."""
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is read from /proc, which this system lacks")
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, f"sqlite:///{tmp_path / 'store.db'}"],
        capture_output=True, text=True, check=True, cwd=ROOT, env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )  # fmt: skip
    assert int(done.stdout) < 220 * MIB
