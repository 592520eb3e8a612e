"""Address groups as rows: whatever is done to them, memory and rows say the same, and a member costs a row."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from sqlalchemy import func, select
from store.conftest import FakeWall
from store.scenes import acl, populate, prefix, rule

from orchestrator.errors import BadInput, BadPolicy, Conflict, NotFound, Stale, TooLarge
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, AddressGroup, GroupName, Rule
from orchestrator.store import Store
from orchestrator.store.acls import grouprows
from orchestrator.store.schema.acls import acl_group_members
from orchestrator.store.sql.keys import HIGHEST_KEY

NAMES = ("office", "partners")
POOL = tuple(map(prefix, ("10.0.0.0/8", "192.0.2.1/32", "192.0.2.0/24", "2001:db8::/32", "10.1.0.0/24", "10.1.0.7/32")))


def group(name: str, *members: Prefix, description: str = "") -> AddressGroup:
    return AddressGroup(GroupName(name), members, description)


def naming(name: str, rule_id: str = "r") -> Rule:
    return replace(rule(rule_id), source=Addresses(groups=(GroupName(name),)))


def listed(*groups: AddressGroup, rules: Sequence[Rule] = ()) -> Acl:
    return replace(acl(), rules=tuple(rules), groups={each.name: each for each in groups})


def rows(store: Store) -> int:
    with store.engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(acl_group_members)).scalar_one()


def test_a_change_of_one_member_of_many_is_one_row(store: Store) -> None:
    populate(store)
    many = [Prefix.parse(f"192.0.{high}.{low}") for high in range(4) for low in range(250)]
    with store.write() as unit:
        unit.acls.replace("blue", listed(group("office", *many), rules=[naming("office")]), author="ann")
    assert rows(store) == 1000
    with store.write() as unit:
        added = unit.groups.change("blue", "office", add=[POOL[0]], author="bob")
    assert rows(store) == 1001
    with store.write() as unit:
        removed = unit.groups.change("blue", "office", remove=[many[17]], author="bob")
    assert rows(store) == 1001
    with store.write() as unit:
        same = [*many[:17], *many[18:], POOL[0]]
        assert not unit.groups.put("blue", group("office", *same), author="bob").changed
        moved = unit.groups.put("blue", group("office", *same[1:], same[0]), author="bob")
    assert rows(store) == 1002
    assert (added.generation + 1, added.version + 1) == (removed.generation, removed.version)
    with store.read() as unit:
        assert unit.groups.get("blue", "office").group.prefixes == (*same[1:], same[0])
        assert unit.acls.at("blue", added.version).acl.groups["office"].prefixes == (*many, POOL[0])
        assert [each.author for each in unit.acls.versions("blue")][:3] == ["bob"] * 3
        assert unit.acls.version("blue") == moved.version


@st.composite
def steps(draw: st.DrawFn) -> tuple[str, ...] | tuple[str, str, tuple[int, ...]]:
    kind = draw(st.sampled_from(("put", "add", "remove", "delete", "list")))
    members = draw(st.lists(st.integers(0, len(POOL) - 1), max_size=6, unique=kind != "put"))
    return kind, draw(st.sampled_from(NAMES)), tuple(members)


@pytest.fixture
def fresh_tenant(store: Store) -> Callable[[], str]:
    populate(store)
    made = iter(range(10_000))

    def make() -> str:
        name = f"t{next(made)}"
        with store.write() as unit:
            unit.tenants.create(name, name="", domain="pop")
        return name

    return make


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps(), min_size=1, max_size=8))
def test_memory_rows_and_history_agree_after_any_steps(
    store: Store,
    open_another: Callable[..., Store],
    fresh_tenant: Callable[[], str],
    taken: list[tuple[str, str, tuple[int, ...]]],
) -> None:
    tenant = fresh_tenant()
    expected: dict[str, tuple[Prefix, ...]] = {}
    history = {0: dict(expected)}
    for kind, name, indices in taken:
        chosen = tuple(POOL[index] for index in indices)
        with store.write() as unit:
            changed = carried_out(unit.groups, unit.acls, tenant, kind, name, chosen, expected)
            version = unit.acls.version(tenant)
        assert changed == (expected != history[version - changed])
        history[version] = dict(expected)
        with store.read() as unit:
            assert members(unit.acls.current(tenant).acl) == expected
    other = open_another()
    with other.read() as unit:
        for version, groups in history.items():
            assert members(unit.acls.at(tenant, version).acl) == groups
    other.close()


def carried_out(groups, acls, tenant, kind, name, chosen, expected) -> bool:  # type: ignore[no-untyped-def]
    """Do a step to the store and to what is expected of it; whether the store says that it changed something."""
    old = expected.get(name)
    if kind == "put":
        expected[name] = chosen
        return bool(groups.put(tenant, group(name, *chosen), author="t").changed)
    if kind == "list":
        expected.clear()
        expected[name] = chosen
        return bool(acls.replace(tenant, listed(group(name, *chosen)), author="t").changed)
    if old is None:
        with pytest.raises(NotFound):
            groups.delete(tenant, name, author="t")
        return False
    if kind == "delete":
        del expected[name]
        return bool(groups.delete(tenant, name, author="t").changed)
    if kind == "add":
        expected[name] = (*old, *(each for each in chosen if each not in old))
        return bool(groups.change(tenant, name, add=chosen, author="t").changed)
    gone = tuple(each for each in chosen if each in old)
    expected[name] = tuple(each for each in old if each not in gone)
    return bool(groups.change(tenant, name, remove=gone, author="t").changed)


def members(of: Acl) -> dict[str, tuple[Prefix, ...]]:
    return {name: each.prefixes for name, each in of.groups.items()}


def test_a_group_in_use_stays_and_the_rules_are_named(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.acls.replace("blue", listed(group("office", POOL[0]), rules=[naming("office", "a")]), author="ann")
        unit.acls.insert_rule("blue", naming("office", "b"), position=0, author="ann")
    with store.write() as unit, pytest.raises(Conflict, match="'office': b, a"):
        unit.groups.delete("blue", "office", author="ann")
    with store.write() as unit:
        for each in ("a", "b"):
            unit.acls.delete_rule("blue", each, author="ann")
        unit.groups.delete("blue", "office", author="ann")
        assert unit.groups.list("blue") == ()


def test_members_on_the_own_side_must_be_owned(store: Store) -> None:
    populate(store)
    inward = replace(rule("in"), destination=Addresses(groups=(GroupName("web"),)))
    with store.write() as unit:
        unit.acls.replace("blue", listed(group("web", prefix("10.1.0.0/24")), rules=[inward]), author="ann")
    for attempt, place in (
        (lambda unit: unit.groups.change("blue", "web", add=[POOL[4], POOL[1]], author="x"), "add[1]"),
        (lambda unit: unit.groups.put("blue", group("web", POOL[5], POOL[0]), author="x"), "prefixes[1]"),
    ):
        with store.write() as unit, pytest.raises(BadPolicy, match="rule 'in'") as caught:
            attempt(unit)
        assert caught.value.place == place
    with store.write() as unit:
        assert unit.groups.change("blue", "web", add=[POOL[5]], author="x").changed


def test_what_cannot_be_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    populate(store)
    with store.write() as unit:
        unit.groups.put("blue", group("g", POOL[0]), author="x")
    cases = (
        (
            BadInput,
            "remove[0]",
            lambda unit: unit.groups.change("blue", "g", add=POOL[:1], remove=POOL[:1], author="x"),
        ),
        (NotFound, "remove[1]", lambda unit: unit.groups.change("blue", "g", remove=POOL[:2], author="x")),
        (NotFound, None, lambda unit: unit.groups.change("blue", "h", add=POOL[:1], author="x")),
        (Stale, None, lambda unit: unit.groups.change("blue", "g", add=POOL[:1], author="x", expected_version=0)),
        (BadInput, "description", lambda unit: unit.groups.put("blue", group("g", description="a\0"), author="x")),
        (TooLarge, None, lambda unit: unit.groups.change("blue", "g", add=POOL[1:4], author="x")),
        (TooLarge, "groups", lambda unit: unit.groups.put("blue", group("h"), author="x")),
        (TooLarge, "groups.h", lambda unit: unit.acls.replace("blue", listed(group("h", *POOL)), author="x")),
    )
    monkeypatch.setattr(grouprows, "MOST_MEMBERS", 3)
    monkeypatch.setattr(grouprows, "MOST_GROUPS", 1)
    for kind, place, attempt in cases:
        with store.write() as unit, pytest.raises(kind) as caught:
            attempt(unit)
        assert caught.value.place == place, kind


def test_a_group_without_room_at_its_end_is_written_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    populate(store)
    monkeypatch.setattr(grouprows, "spread", lambda kept, count: array("q", range(HIGHEST_KEY - count, HIGHEST_KEY)))
    with store.write() as unit:
        unit.groups.put("blue", group("g", *POOL[:3]), author="x")
    monkeypatch.undo()
    with store.write() as unit:
        unit.groups.change("blue", "g", add=POOL[3:5], remove=POOL[:1], author="x")
    with store.read() as unit:
        assert unit.groups.get("blue", "g").group.prefixes == POOL[1:5]


def test_an_expired_rule_is_not_written(store: Store, wall: FakeWall) -> None:
    populate(store)
    over = replace(rule("over"), expires=wall.now)
    for attempt, place in (
        (lambda unit: unit.acls.replace("blue", acl(rule("a"), over), author="x"), "rules[1].expires"),
        (lambda unit: unit.acls.insert_rule("blue", over, position=0, author="x"), "expires"),
        (lambda unit: unit.acls.put_rule("blue", over, author="x"), "expires"),
    ):
        with store.write() as unit, pytest.raises(BadPolicy, match="has passed already") as caught:
            attempt(unit)
        assert caught.value.place == place
