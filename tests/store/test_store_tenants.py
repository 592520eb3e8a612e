"""Tenants: numbers that never come back, prefixes that belong to one tenant only, versions."""

from __future__ import annotations

import pytest
from store.scenes import OWN4, OWN6, acl, endpoint, populate, prefix, rule

from orchestrator.errors import BadInput, Conflict, NotFound, Stale
from orchestrator.store import Store


def test_a_tenant_is_what_was_registered(store: Store) -> None:
    populate(store)
    with store.read() as unit:
        blue = unit.tenants.get("blue")
        assert (blue.id, blue.name, blue.domain, blue.version) == ("blue", "Blue", "pop", 1)
        assert blue.prefixes == (OWN4, OWN6)
        assert unit.domains.get("pop").generation == 2
        assert unit.acls.version("blue") == 0
        assert unit.acls.current("blue").acl == acl()


def test_numbers_are_never_used_again(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        first = unit.tenants.get("blue").number
        unit.tenants.delete("blue")
        second = unit.tenants.create("blue", name="Blue again", domain="pop").number
        unit.tenants.delete("blue")
    with store.write() as unit:
        third = unit.tenants.create("red", name="Red", domain="pop").number
    assert first < second < third


@pytest.mark.parametrize(
    ("taken", "asked"),
    [
        ("10.1.0.0/16", "10.1.0.0/16"),
        ("10.1.0.0/16", "10.1.255.0/24"),
        ("10.1.0.0/16", "10.0.0.0/8"),
        ("10.1.0.0/16", "0.0.0.0/0"),
        ("10.1.0.0/16", "10.1.0.0/32"),
        ("2001:db8:1::/48", "2001:db8:1:ffff::/64"),
        ("2001:db8:1::/48", "::/0"),
    ],
)
def test_a_prefix_belongs_to_one_tenant(store: Store, taken: str, asked: str) -> None:
    populate(store)
    with pytest.raises(Conflict) as caught, store.write() as unit:
        unit.tenants.create("red", name="Red", domain="pop", prefixes=[prefix(asked)])
    assert "blue" not in str(caught.value)
    assert asked in str(caught.value)
    with store.read() as unit:
        assert [tenant.id for tenant in unit.tenants.list()] == ["blue"]
        assert unit.tenants.owner(prefix(asked)) == "blue"
        assert taken in map(str, unit.tenants.get("blue").prefixes)


@pytest.mark.parametrize("free", ["10.0.0.0/16", "10.2.0.0/16", "2001:db8:2::/48", "2001:db8::/48", "255.255.255.255"])
def test_neighbours_are_free(store: Store, free: str) -> None:
    populate(store)
    with store.write() as unit:
        assert unit.tenants.owner(prefix(free)) is None
        unit.tenants.create("red", name="Red", domain="pop", prefixes=[prefix(free)])


def test_the_same_tenant_cannot_own_a_prefix_twice(store: Store) -> None:
    populate(store)
    with pytest.raises(Conflict, match="by the tenant itself"), store.write() as unit:
        unit.tenants.add_prefix("blue", prefix("10.1.2.0/24"))


def test_a_prefix_given_up_is_free_for_others(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.tenants.create("red", name="Red", domain="pop")
        assert unit.tenants.remove_prefix("blue", OWN4).prefixes == (OWN6,)
        assert unit.tenants.add_prefix("red", prefix("10.0.0.0/8")).version == 2


def test_setting_prefixes_exchanges_them(store: Store) -> None:
    populate(store)
    halves = OWN4.halves()
    with store.write() as unit:
        unit.domains.put_endpoint("pop", endpoint("web", "10.1.200.1"))
        record = unit.tenants.set_prefixes("blue", [*halves, OWN6], expected_version=1)
        assert record.prefixes == (*halves, OWN6)
        assert record.version == 2
        again = unit.tenants.set_prefixes("blue", [OWN6, *reversed(halves)])
        assert again.version == 2


def test_a_prefix_in_use_stays(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.domains.put_endpoint("pop", endpoint("web", "10.1.2.3"))
        unit.acls.replace("blue", acl(rule("r", destination="2001:db8:1:5::/64")), author="ann")
    with pytest.raises(Conflict, match=r"endpoint 'web' still uses 10\.1\.2\.3/32"), store.write() as unit:
        unit.tenants.remove_prefix("blue", OWN4)
    with pytest.raises(Conflict, match=r"rules\[0\].destination"), store.write() as unit:
        unit.tenants.remove_prefix("blue", OWN6)
    with store.read() as unit:
        assert unit.tenants.get("blue").prefixes == (OWN4, OWN6)


def test_writes_expect_a_version(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.tenants.rename("blue", "Blau", expected_version=1)
    for attempt in (
        lambda unit: unit.tenants.rename("blue", "Bleu", expected_version=1),
        lambda unit: unit.tenants.add_prefix("blue", prefix("10.9.0.0/16"), expected_version=1),
        lambda unit: unit.tenants.remove_prefix("blue", OWN4, expected_version=3),
        lambda unit: unit.tenants.delete("blue", expected_version=1),
    ):
        with pytest.raises(Stale), store.write() as unit:
            attempt(unit)
    with store.read() as unit:
        assert unit.tenants.get("blue").name == "Blau"
        assert unit.tenants.get("blue").version == 2


def test_pages_are_in_byte_order_on_every_database(store: Store) -> None:
    names = ["Zed", "a-b", "a.b", "aB", "ab", "b", "_x", "10", "9"]
    with store.write() as unit:
        unit.domains.create("pop")
        for name in names:
            unit.tenants.create(name, name=name, domain="pop")
    with store.read() as unit:
        seen: list[str] = []
        while page := unit.tenants.list(limit=2, marker=seen[-1] if seen else None):
            seen += [tenant.id for tenant in page]
    assert seen == sorted(names)


def test_a_deleted_tenant_leaves_nothing(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.domains.put_endpoint("pop", endpoint("web", "10.1.2.3"))
        unit.acls.replace("blue", acl(rule("r")), author="ann")
    with pytest.raises(Conflict, match="endpoints"), store.write() as unit:
        unit.tenants.delete("blue")
    with store.write() as unit:
        unit.domains.remove_endpoint("pop", "web")
        before = unit.domains.get("pop").generation
    with store.write() as unit:
        assert unit.tenants.delete("blue") == before + 1
    with store.write() as unit:
        with pytest.raises(NotFound):
            unit.tenants.get("blue")
        record = unit.tenants.create("blue", name="Other", domain="pop", prefixes=[OWN4])
        assert unit.acls.current("blue").acl == acl()
        assert record.version == 1


@pytest.mark.parametrize("name", ["two\nlines", "nul\0", "x" * 256, "half \ud800"])
def test_names_are_one_line_of_text(store: Store, name: str) -> None:
    populate(store)
    with pytest.raises(BadInput) as caught, store.write() as unit:
        unit.tenants.create("t", name=name, domain="pop")
    assert caught.value.place == "name"


def test_what_is_not_there_is_not_found(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        for attempt in (
            lambda: unit.tenants.get("red"),
            lambda: unit.tenants.create("red", name="Red", domain="nowhere"),
            lambda: unit.tenants.remove_prefix("blue", prefix("10.1.0.0/17")),
            lambda: unit.acls.current("red"),
            lambda: unit.acls.rule("blue", "r"),
            lambda: unit.acls.delete_rule("blue", "r", author="ann"),
        ):
            with pytest.raises(NotFound):
                attempt()
        with pytest.raises(Conflict, match="already a tenant"):
            unit.tenants.create("blue", name="Blue", domain="pop")
        with pytest.raises(BadInput):
            unit.tenants.create("no spaces", name="x", domain="pop")
