"""A search for a part of a name in memory: the database's answer after every change, in bounded room."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from store.conftest import FakeWall
from store.scenes import acl, prefix, rule

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.policy.model import Acl
from orchestrator.program.counts import Counts
from orchestrator.program.program import Tier
from orchestrator.store import Store
from orchestrator.store.acls.cache import NameCache, TenantNames
from orchestrator.store.hits import firstrules
from orchestrator.store.hits.history import HitHistory
from orchestrator.store.hits.hitrecords import HitOrder
from orchestrator.store.transaction import StoreSettings

TENANTS = ("blue", "red", "web-1", "t0")
NAMES = tuple(f"{word}-{number}" for word in ("web", "db", "t0", "R") for number in range(12))
PARTS = ("web", "1", "R", "t0", "b-1", "none", "web-1\nweb", "%")


def owned_by(tenant: str) -> str:
    return f"10.{TENANTS.index(tenant)}.0.0/16"


def listed(owned: str, names: Sequence[str]) -> Acl:
    return acl(*(rule(name, 1 + port, owned) for port, name in enumerate(names)))


def change_something(store: Store, chance: random.Random) -> None:
    """Make, change or remove a tenant or its list, or move counts."""
    tenant = chance.choice(TENANTS)
    owned = owned_by(tenant)
    with store.write() as unit:
        known = [each.id for each in unit.tenants.list(limit=100)]
        if tenant not in known:
            domain = chance.choice(("pop", "pop", "pop", "else"))
            unit.tenants.create(tenant, name="", domain=domain, prefixes=[prefix(owned)])
        elif chance.random() < 0.08:
            unit.tenants.delete(tenant)
            return
        numbers = unit.acls.current(tenant).numbers
        step = chance.random()
        if step < 0.4:
            unit.acls.replace(tenant, listed(owned, chance.sample(NAMES, chance.randint(0, 20))), author="x")
        elif step < 0.7 and numbers:
            unit.acls.delete_rule(tenant, chance.choice(sorted(numbers)), author="x")
        elif step < 0.9:
            unit.acls.put_rule(tenant, rule(chance.choice(NAMES), 99, owned), author="x")
        elif numbers:
            unit.acls.move_rule(tenant, chance.choice(sorted(numbers)), position=0, author="x")
        if numbers:
            moved = np.array(sorted(chance.sample(sorted(numbers.values()), min(3, len(numbers)))), np.int64)
            cookies = moved.astype(np.uint64) | np.uint64(Cookie(Tier.HOST, Kind.RULE).pack())
            HitHistory(unit.transaction, "pop").append(Counts(cookies, moved % 3, moved % 3, moved * 0, moved % 3))


def search(store: Store, *, writing: bool) -> dict[tuple[str, HitOrder, int], list[tuple[str, str, int]]]:
    """All that is asked of a domain's names, without rates; a unit that writes asks the database."""
    with store.write() if writing else store.read() as unit:
        return {
            (part, order, limit): [
                (each.tenant, each.rule, each.hits.packets)
                for each in unit.hits.first_rules("pop", order, limit=limit, contains=part).rules
            ]
            for part, order, limit in product(PARTS, (HitOrder.LIST, HitOrder.PACKETS), (3, 100))
        }


@pytest.mark.parametrize("seed", range(2))
def test_a_search_in_memory_finds_after_any_change_what_the_database_finds(
    open_another: Callable[..., Store], wall: FakeWall, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are read from copies of lists in one service, from their rows in another that saw no change itself."""
    chance = random.Random(seed)
    monkeypatch.setattr(firstrules, "_MOST_NAMES", 9)
    store = open_another()
    other = open_another(settings=StoreSettings(cached_rules=500))
    with store.write() as unit:
        for domain in ("pop", "else"):
            unit.domains.create(domain)
        for tenant in TENANTS:
            unit.tenants.create(tenant, name="", domain="pop", prefixes=[prefix(owned_by(tenant))])
            unit.acls.replace(tenant, listed(owned_by(tenant), chance.sample(NAMES, 10)), author="x")
    found = 0
    for _ in range(20):
        change_something(store, chance)
        wall.move(seconds=1)
        expected = search(store, writing=True)
        with monkeypatch.context() as patch:
            patch.setattr(firstrules, "_is_named", None)  # in memory, the database is asked for no name
            for each in (store, other):
                assert search(each, writing=False) == expected
        found += sum(map(len, expected.values()))
    assert found > 500


def test_a_domain_with_more_rules_than_there_is_room_for_is_searched_by_the_database(
    open_another: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_another(settings=StoreSettings(cached_rules=40))
    with store.write() as unit:
        unit.domains.create("pop")
        for tenant in TENANTS[:2]:
            unit.tenants.create(tenant, name="", domain="pop", prefixes=[prefix(owned_by(tenant))])
        unit.acls.replace("blue", listed(owned_by("blue"), NAMES[:8]), author="x")
    with store.read() as unit, monkeypatch.context() as patch:
        patch.setattr(firstrules, "_is_named", None)
        assert len(unit.hits.first_rules("pop", HitOrder.LIST, limit=9, contains="web").rules) == 8
    with store.write() as unit:
        unit.acls.put_rule("red", rule("web-0", 1, owned_by("red")), author="x")
    with store.read() as unit:
        assert len(unit.hits.first_rules("pop", HitOrder.LIST, limit=100, contains="web").rules) == 9
        monkeypatch.setattr(firstrules, "_is_named", None)
        with pytest.raises(TypeError):
            unit.hits.first_rules("pop", HitOrder.LIST, limit=100, contains="web")


def test_the_memory_of_names_holds_no_more_than_its_limit() -> None:
    cache = NameCache(100)
    for tenant in range(20):
        cache.put({tenant: TenantNames.of(1, [(f"r{number}", number) for number in range(9)])})
    held = cache.find(dict.fromkeys(range(20), 1))
    assert sorted(held) == [16, 17, 18, 19]  # each weighs as 25 rules
    assert cache.find({16: 2, 17: 1}).keys() == {17}
    cache.put({18: TenantNames.of(2, [("only", 1)])})
    cache.put({20: TenantNames.of(1, [])})
    assert sorted(cache.find(dict.fromkeys(range(21), 1) | {18: 2})) == [17, 18, 19, 20]
    cache.put({21: TenantNames.of(1, [("r", number) for number in range(200)])})
    assert not cache.find(dict.fromkeys(range(22), 1))
