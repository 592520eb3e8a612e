"""Backups: what was in is back, in either database, and nothing that was counted is counted again."""

from __future__ import annotations

import datetime as dt
import errno
import gzip
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select, text
from store.conftest import wiped
from store.postgres_cluster import Cluster
from store.scenes import acl, endpoint, populate, prefix, rule

from orchestrator.errors import AclflowError, BadInput, Conflict, Missing, Unauthenticated
from orchestrator.store import Store, migrate, open_store
from orchestrator.store.backups.backup import AuthorityFiles, back_up, open_backup, tables_of
from orchestrator.store.backups.restore import AHEAD, Restored, restore
from orchestrator.store.records import HostRecord, Role
from orchestrator.store.sql.database import connect_pool

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
Rows = dict[str, list[tuple[object, ...]]]


@contextmanager
def unseen(_total: int) -> Iterator[Callable[[int], None]]:
    yield lambda _: None


def saved(address: str, file: Path, authority: AuthorityFiles | None = None) -> Path:
    back_up(address, file, program="1.2.3", made=NOW, authority=authority, progress=unseen)
    return file


def restored(address: str, file: Path, *, replace: bool = False) -> Restored:
    with open_backup(file) as backup:
        return restore(address, backup, replace=replace, now=NOW, progress=unseen)


def rows(address: str) -> Rows:
    """All that a database holds, the same from both kinds."""
    engine = connect_pool(address, 5)
    with engine.connect() as connection:
        found = {
            table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
            for table in tables_of(connection)
        }
    engine.dispose()
    return found


def story(store: Store) -> str:
    """A store with something in most of its tables; returns an administrator's token."""
    populate(store)
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("web"), rule("mail", 25)), author="ann")
        unit.domains.add_host("pop", HostRecord("h1", 1, "up"))
        unit.domains.put_endpoint("pop", endpoint("web1", "10.1.0.1/32", "2001:db8:1::1/128"))
        unit.domains.set_operator_rules("pop", [rule("dns", 53)])
        token = unit.tokens.create(Role.ADMIN).secret
        invitation = unit.enforcers.invite("pop", expires=unit.now + dt.timedelta(days=9), author="ann")
        unit.enforcers.enrol(invitation, name="c1", kind="openflow")
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("mail", 25), rule("web"), rule("ssh", 22)), author="bob")
    return token


@pytest.fixture(params=("sqlite", "postgresql"))
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'elsewhere.db'}"
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    yield cluster.create_database("elsewhere")
    cluster.drop_database("elsewhere")


def test_everything_is_back_in_either_database(store: Store, address: str, elsewhere: str, tmp_path: Path) -> None:
    token = story(store)
    before, file = rows(address), saved(address, tmp_path / "backup")
    with store.read() as unit:
        policy = unit.domains.policy("pop")
        versions = [unit.acls.at("blue", number) for number in (1, 2)]
    restored(elsewhere, file)
    after = rows(elsewhere)
    changed = {"domains", "counters", "events", "invitations", "intersections", "audit"}
    assert {name: after[name] for name in before if name not in changed} == {
        name: before[name] for name in before if name not in changed
    }
    assert [row[1:] for row in after["events"][:-1]] == [row[1:] for row in before["events"]]
    assert (after["audit"][:-1], len(after["audit"])) == (before["audit"], len(before["audit"]) + 1)
    again = open_store(elsewhere)
    with again.read() as unit:
        found = unit.domains.policy("pop")
        assert (found.policy, found.generation) == (policy.policy, policy.generation + AHEAD)
        assert unit.intersections.is_open("pop", found.generation)
        assert [unit.acls.at("blue", number) for number in (1, 2)] == versions
    assert again.bearer(token).role is Role.ADMIN
    again.close()


def test_what_was_given_out_since_is_not_given_out_again(
    store: Store, address: str, elsewhere: str, tmp_path: Path
) -> None:
    """Generations, epochs, numbers of rules and tenants, ids of events and enforcers that the lost machine knew."""
    story(store)
    file = saved(address, tmp_path / "backup")
    seen = given_out(store)
    restored(elsewhere, file)
    again = open_store(elsewhere)
    fresh = given_out(again)
    with again.read() as unit:
        page = unit.events.since(seen["event"])
    again.close()
    assert all(fresh[what] > seen[what] for what in seen), (seen, fresh)
    assert page.missed
    assert "store.restored" in [event.kind for event in page.events]


def given_out(store: Store) -> dict[str, int]:
    """Let a store give a number of every kind out."""
    with store.write() as unit:
        unit.tenants.create("green", name="Green", domain="pop", prefixes=[prefix("10.2.0.0/16")])
        unit.domains.create("later")
        invitation = unit.enforcers.invite("pop", expires=unit.now + dt.timedelta(days=9), author="ann")
        enrolled = unit.enforcers.enrol(invitation, name="c2", kind="openflow")
        unit.acls.replace("green", acl(rule("new", destination="10.2.0.0/24")), author="ann")
    with store.read() as unit:
        return {
            "generation": unit.domains.get("pop").generation,
            "of a new domain": unit.domains.get("later").generation,
            "epoch": enrolled.enforcer.epoch,
            "enforcer": enrolled.enforcer.id,
            "tenant": unit.tenants.get("green").number,
            "rule": unit.acls.current("green").numbers["new"],
            "event": unit.events.last_id(),
        }


def test_logs_that_forget_by_numbers_keep_what_was_in_the_backup(
    store: Store, address: str, elsewhere: str, tmp_path: Path
) -> None:
    story(store)
    with store.read() as unit:
        kinds = [event.kind for event in unit.events.since(0, limit=1000).events]
    restored(elsewhere, saved(address, tmp_path / "backup"))
    again = open_store(elsewhere)
    for _ in range(101):  # events are forgotten a hundred at a time
        with again.write() as unit:
            unit.events.append("capacity.measured", "x", {})
    with again.read() as unit:
        assert [event.kind for event in unit.events.since(0, limit=1000).events][: len(kinds)] == kinds
    again.close()


def test_open_enrolment_tokens_are_used_up(store: Store, address: str, elsewhere: str, tmp_path: Path) -> None:
    """Somebody may have used them after the backup was made: a one-time token is good for one time."""
    populate(store)
    with store.write() as unit:
        invitation = unit.enforcers.invite("pop", expires=unit.now + dt.timedelta(days=900), author="ann")
    done = restored(elsewhere, saved(address, tmp_path / "backup"))
    assert done.spent == 1
    again = open_store(elsewhere, clock=lambda: NOW)
    with again.write() as unit, pytest.raises(Unauthenticated):
        unit.enforcers.enrol(invitation, name="c1", kind="openflow")
    again.close()


def test_a_store_that_is_not_empty_is_replaced_only_when_told(
    store: Store, address: str, elsewhere: str, tmp_path: Path
) -> None:
    story(store)
    file = saved(address, tmp_path / "backup")
    restored(elsewhere, file)
    before = rows(elsewhere)
    with pytest.raises(Conflict, match="--yes"):
        restored(elsewhere, file)
    assert rows(elsewhere) == before
    restored(elsewhere, file, replace=True)
    after = rows(elsewhere)
    assert len(after.pop("audit")) == len(before.pop("audit"))  # each restore tells of itself, in a chain of its own
    assert after == before
    again = open_store(elsewhere)  # the tables' own constraints are there again, too
    with again.write() as unit, pytest.raises(AclflowError):
        unit.domains.put_endpoint("pop", endpoint("other", "10.1.0.1/32"))
    again.close()


def test_a_service_on_the_database_is_noticed(cluster: Cluster, tmp_path: Path) -> None:
    address = wiped(cluster)
    serving = open_store(address)
    populate(serving)
    file = saved(address, tmp_path / "backup")
    with serving.read(), pytest.raises(Conflict, match="stop it first"):
        restored(address, file, replace=True)
    serving.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    address = f"sqlite:///{tmp_path / 'small.db'}"
    store = open_store(address)
    populate(store)
    store.close()
    return saved(address, tmp_path / "backup")


def test_a_backup_is_for_its_owner_and_replaces_the_one_before(file: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    saved(f"sqlite:///{tmp_path / 'small.db'}", file)
    assert sorted(os.listdir(tmp_path)) == ["backup", "small.db"]


def test_damage_anywhere_is_noticed_and_changes_nothing(file: Path, tmp_path: Path) -> None:
    """Every byte of the lines in turn, and every length: cut off, one byte more, one turned over."""
    address, whole = f"sqlite:///{tmp_path / 'target.db'}", gzip.decompress(file.read_bytes())
    damaged = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 97)]
    damaged += [whole[:at] for at in range(0, len(whole), 211)] + [whole + b"\n"]
    for lines in damaged:
        file.write_bytes(gzip.compress(lines, 1))
        with pytest.raises((BadInput, Missing)):
            restored(address, file)
    packed = gzip.compress(whole)
    for octets in (b"", b"not a backup", packed[:-9], packed[:99] + b"\0" + packed[100:], gzip.compress(b"{}\n")):
        file.write_bytes(octets)
        with pytest.raises(BadInput, match="backup"):
            restored(address, file)
    assert rows_if_any(address) == {}


def rows_if_any(address: str) -> Rows:
    engine = connect_pool(address, 5)
    with engine.connect() as connection:
        names = [table.name for table in tables_of(connection)]
    engine.dispose()
    return rows(address) if names else {}


def test_a_backup_of_a_newer_schema_is_refused(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"sqlite:///{tmp_path / 'target.db'}"
    monkeypatch.setattr("orchestrator.store.backups.restore.HEAD", "0001")
    with pytest.raises(Missing, match=r"take aclflow 1\.2\.3 or newer"):
        restored(address, file)
    assert rows_if_any(address) == {}


def test_a_backup_of_an_older_schema_is_brought_to_this_one(tmp_path: Path) -> None:
    """Made by the new program before the upgrade, which is when one wants it."""
    old, new = f"sqlite:///{tmp_path / 'old.db'}", f"sqlite:///{tmp_path / 'new.db'}"
    engine = connect_pool(old, 5)
    with engine.begin() as connection:
        migrate.run(connection, "0001")
        connection.execute(text("INSERT INTO domains VALUES ('pop', 'established', 4, 0, 1, 0, 0)"))
        connection.execute(text("INSERT INTO tenants VALUES (7, 'blue', 'pop', '', 1, 1, 0)"))
        connection.execute(text("INSERT INTO acl_versions VALUES (7, 1, 'ann', 0, 'deny', 'permit', 0)"))
    engine.dispose()
    restored(new, saved(old, tmp_path / "backup"))
    store = open_store(new)
    with store.read() as unit:
        assert unit.acls.at("blue", 1).author == "ann"
        assert unit.domains.get("pop").generation == 4 + AHEAD
    store.close()


def test_a_disk_that_is_full_leaves_the_backup_before(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full when the last bytes are to go to the disk: what is there stays, and nothing is left over."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = file.read_bytes()
    monkeypatch.setattr("orchestrator.store.backups.backup.os.fsync", full)
    with pytest.raises(Missing, match="No space left"):
        saved(f"sqlite:///{tmp_path / 'small.db'}", file)
    assert file.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["backup", "small.db"]


def test_where_there_is_nothing_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="nothing to back up"):
        saved(f"sqlite:///{tmp_path / 'empty.db'}", tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_what_is_written_meanwhile_is_in_whole_or_not_at_all(
    store: Store, address: str, elsewhere: str, tmp_path: Path
) -> None:
    """Somebody writes after the rows were counted and before the first of them is read."""
    story(store)
    before = rows(address)

    @contextmanager
    def disturbed(_total: int) -> Iterator[Callable[[int], None]]:
        with store.write() as unit:
            unit.tenants.create("green", name="Green", domain="pop", prefixes=[prefix("10.2.0.0/16")])
            unit.acls.replace("blue", acl(), author="eve")
        yield lambda _: None

    file = tmp_path / "backup"
    back_up(address, file, program="1.2.3", made=NOW, authority=None, progress=disturbed)
    restored(elsewhere, file)
    after = rows(elsewhere)
    assert rows(address)["tenants"] != before["tenants"]
    assert [after[name] for name in ("tenants", "acl_rules", "prefixes")] == [
        before[name] for name in ("tenants", "acl_rules", "prefixes")
    ]
