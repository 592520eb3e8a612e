"""What a tenant's list and its history take up: counted, bounded, and charged to that tenant alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import text
from store.conftest import FakeWall
from store.scenes import acl, populate, rule

from orchestrator.errors import BadInput, TooLarge
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.model import AddressGroup, GroupName
from orchestrator.store import Store, StoreSettings
from orchestrator.store.records import Quota

_COUNT = """SELECT (SELECT coalesce(sum(length(body) + 128), 0) FROM acl_rules)
                 + (SELECT coalesce(sum(length(description) + 128), 0) FROM acl_groups)
                 + (SELECT coalesce(sum(length(prefix) + 128), 0) FROM acl_group_members)"""


def counted(store: Store) -> int:
    with store.engine.connect() as connection:
        return int(connection.execute(text(_COUNT)).scalar_one())


def used(store: Store, tenant: str = "blue") -> int:
    with store.read() as unit:
        return unit.tenants.get(tenant).stored_bytes


def put(store: Store, port: int, length: int = 20) -> int:
    with store.write() as unit:
        listed = acl(*(rule(f"r{number}", port=port) for number in range(length)))
        return unit.acls.replace("blue", listed, author="ann").version


def limit(store: Store, **quota: int) -> None:
    with store.write() as unit:
        unit.tenants.set_quota("blue", Quota(**quota))


def versions(store: Store) -> list[int]:
    with store.read() as unit:
        return [each.version for each in unit.acls.versions("blue", limit=1000)]


def test_what_is_stored_is_counted_by_what_changed(open_another: Callable[..., Store]) -> None:
    store = open_another(settings=StoreSettings(versions_kept=5))
    populate(store)
    first = used(store)
    put(store, 80)
    whole = used(store) - first
    with store.write() as unit:
        unit.acls.put_rule("blue", rule("r1", port=81), author="ann")
    assert 0 < used(store) - first - whole < whole / 10  # one rule, not the list
    for port in range(100, 120):
        put(store, port)
        assert used(store) == counted(store)
    with store.write() as unit:
        unit.acls.delete_rule("blue", "r3", author="ann")
        unit.acls.insert_rule("blue", rule("r3", port=7), position=0, author="ann")
        unit.acls.move_rule("blue", "r3", position=4, author="ann")
    assert used(store) == counted(store)


def describe_group(store: Store, description: str) -> None:
    group = AddressGroup(GroupName("web"), (Prefix.parse("192.0.2.0/24"),), description)
    with store.write() as unit:
        unit.groups.put("blue", group, author="ann")


def test_what_is_said_of_groups_is_charged_too(open_another: Callable[..., Store]) -> None:
    """Else a member fills the disk with one group, whose long description is another one in each version."""
    store = open_another(settings=StoreSettings(versions_kept=5))
    populate(store)
    before = used(store)
    for number in range(10):
        describe_group(store, f"{number}" * 10_000)
        assert used(store) == counted(store) >= before + 10_000 * min(number + 1, 5)
    with store.write() as unit:
        unit.groups.delete("blue", "web", author="ann")
    assert used(store) == counted(store)
    limit(store, stored_bytes=60_000)
    with pytest.raises(TooLarge, match="the quota is 60000"):
        describe_group(store, "x" * 60_000)


def test_the_oldest_versions_go_where_the_quota_is_full(store: Store, wall: FakeWall) -> None:
    populate(store)
    put(store, 80)
    limit(store, stored_bytes=4 * used(store))
    for port in range(100, 140):
        put(store, port)
        assert used(store) == counted(store) <= 4 * 20 * 400
    kept = versions(store)
    assert 2 <= len(kept) <= 5
    assert kept[0] > 40
    with store.read() as unit:
        assert unit.acls.at("blue", kept[1]).acl.rules[0].destination_ports[0].low == 138


def test_a_list_that_does_not_fit_is_refused_and_a_revert_is_not(store: Store) -> None:
    populate(store)
    put(store, 80)
    limit(store, stored_bytes=used(store))
    before = versions(store)[0]
    with pytest.raises(TooLarge, match="the quota is"):
        put(store, 81, length=200)
    assert versions(store)[0] == before
    limit(store, stored_bytes=10**6)
    with store.write() as unit:
        unit.acls.replace("blue", acl(*(rule(f"n{number}") for number in range(50))), author="ann")
        unit.acls.await_confirmation("blue", before, 300)
    limit(store, stored_bytes=0)
    with store.write() as unit:
        unit.acls.revert("blue", author="revert")
        assert len(unit.acls.current("blue").acl.rules) == 20


def test_a_tenant_may_have_fewer_versions(store: Store) -> None:
    populate(store)
    limit(store, versions=3)
    for port in range(100, 110):
        put(store, port)
    assert len(versions(store)) == 3
    assert used(store) == counted(store)
    with pytest.raises(BadInput, match="at least two"):
        Quota(versions=1)
