"""Intersection first where the store was put back, or is of an older schema: what hosts hold is not in it."""

from __future__ import annotations

import datetime as dt
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from patience import until
from staging_world import HOSTS, Plant, deny_web, everywhere, planted

from orchestrator.control.staging import CACHE_FOLLOWS_S
from orchestrator.policy.model import Acl
from orchestrator.store import migrate
from orchestrator.store.backups.backup import back_up, open_backup
from orchestrator.store.backups.restore import restore
from orchestrator.store.records import HostRecord

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@contextmanager
def unseen(_total: int) -> Iterator[Callable[[int], None]]:
    yield lambda _: None


@contextmanager
def started(url: str) -> Iterator[Plant]:
    plant = Plant(url)
    plant.start()
    yield plant
    plant.close()


def put_back(url: str, file: Path, meanwhile: Callable[[Plant], object]) -> None:
    """A store with an ingress list as it was before something happened."""
    with planted(url) as plant:
        everywhere(plant, deny_web("ingress"))
    back_up(url, file, program="1.2.3", made=NOW, authority=None, progress=unseen)
    with started(url) as plant:
        plant.read_back(*HOSTS)
        meanwhile(plant)
    with open_backup(file) as backup:
        restore(url, backup, replace=True, now=NOW, progress=unseen)


def generation_of(plant: Plant) -> int:
    return plant.control.read(lambda unit: unit.domains.get("pop")).generation


def is_held(plant: Plant, *hosts: str) -> bool:
    """Whether the domain stays at its intersection when these hosts hold it."""
    plant.read_back(*hosts)
    time.sleep(CACHE_FOLLOWS_S)
    plant.read_back(*hosts)
    return plant.program.generation == generation_of(plant) - 1


def test_hosts_may_hold_lists_that_the_backup_did_not_have(url: str, tmp_path: Path) -> None:
    """They deny at the sender's end what the backup denies at the receiver's: one of each would deny it nowhere."""
    put_back(url, tmp_path / "backup", lambda plant: everywhere(plant, deny_web("egress")))
    with started(url) as plant:
        assert is_held(plant, "h1")
        with started(url) as again:
            assert again.program.digest == plant.program.digest, "every service decides the same"
        plant.read_back("h2")
        until(lambda: plant.program.generation == generation_of(plant))
        plant.read_back(*HOSTS)
        time.sleep(CACHE_FOLLOWS_S)
        assert plant.put(Acl()) == plant.program.generation, "it is as if nothing had been"


def test_a_change_before_hosts_were_read_back_takes_two_steps_too(url: str, tmp_path: Path) -> None:
    put_back(url, tmp_path / "backup", lambda plant: everywhere(plant, deny_web("egress")))
    with started(url) as plant:
        target = plant.put(deny_web("ingress"))
        assert plant.program.generation == target - 1
        assert is_held(plant, "h2")
        plant.read_back("h1")
        until(lambda: plant.program.generation == target)


def test_a_host_that_came_after_the_backup_may_hold_its_lists(url: str, tmp_path: Path) -> None:
    third = HostRecord("h3", 3, "wan0")
    put_back(url, tmp_path / "backup", lambda plant: everywhere(plant, deny_web("egress")))
    with started(url) as plant:
        plant.read_back(*HOSTS)
        until(lambda: plant.program.generation == generation_of(plant))
        target = plant.control.write(lambda unit: unit.domains.add_host("pop", third))
        assert plant.program.generation == target - 1
        assert is_held(plant, *HOSTS)
        plant.read_back("h3")
        until(lambda: plant.program.generation == target)


@pytest.mark.parametrize("reached", [(), ("h1",), HOSTS])
def test_a_store_that_comes_to_this_schema_in_the_middle_of_two_steps_stays_there(
    url: str, tmp_path: Path, reached: tuple[str, ...]
) -> None:
    """Before, what was held back was nowhere but in the memory of the service."""
    with planted(url) as plant:
        everywhere(plant, deny_web("egress"))
        target = plant.put(deny_web("ingress"))
        if reached:
            plant.read_back(*reached)
    with closing(sqlite3.connect(tmp_path / "store.db")) as older:
        older.executescript(
            "DELETE FROM intersections; ALTER TABLE domains DROP COLUMN behind; DROP INDEX acl_groups_ended;"
            "ALTER TABLE invitations DROP COLUMN hosts; ALTER TABLE enforcers DROP COLUMN hosts;"
            "ALTER TABLE acl_versions DROP COLUMN comment; DROP TABLE expectations; DROP TABLE shared_drafts;"
            "DROP TABLE waivers; DROP INDEX tenants_by_confirm_by;"
            "ALTER TABLE domains DROP COLUMN returns_since; ALTER TABLE tenants DROP COLUMN quota_bytes;"
            "ALTER TABLE tenants DROP COLUMN quota_versions; ALTER TABLE tenants DROP COLUMN stored_bytes;"
            "DROP TABLE audit; DROP TABLE audit_anchors; DROP INDEX events_by_ring;"
            "ALTER TABLE events DROP COLUMN ring;"
            "ALTER TABLE acl_versions DROP COLUMN author_name; DROP INDEX acl_rules_ended_id;"
            "DROP TABLE proposals; ALTER TABLE domains DROP COLUMN two_persons;"
            "ALTER TABLE domains DROP COLUMN path_mtu_rate;"
            "ALTER TABLE tenants DROP COLUMN two_persons;"
            "ALTER TABLE tenants DROP COLUMN quota_streams; ALTER TABLE tenants DROP COLUMN quota_analysis;"
            "ALTER TABLE tokens DROP COLUMN person; ALTER TABLE tokens DROP COLUMN maker;"
            "ALTER TABLE tenants DROP COLUMN confirm_by; ALTER TABLE tenants DROP COLUMN confirm_base;"
            "ALTER TABLE tenants DROP COLUMN confirm_s;"
            "DROP INDEX endpoints_port_unique; ALTER TABLE endpoints DROP COLUMN shared;"
            "ALTER TABLE spreads DROP COLUMN down; DROP INDEX acl_rules_current_number;"
            "DROP INDEX tenants_by_domain; CREATE INDEX tenants_by_domain ON tenants (domain);"
            "DROP TABLE host_ports; ALTER TABLE endpoints DROP COLUMN generation;"
            f"UPDATE {migrate.VERSION_TABLE} SET version_num = '0012';"
        )
    migrate.upgrade(url)
    with started(url) as plant:
        assert plant.program.generation == target - 1
        plant.read_back(*HOSTS)
        until(lambda: plant.program.generation == target)
