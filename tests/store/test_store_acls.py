"""Access lists: versions, numbers, single rules, history, and how few rows a change touches."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable

import pytest
from sqlalchemy import func, select
from store.conftest import FakeWall
from store.scenes import acl, group, populate, prefix, rule

from orchestrator.errors import BadInput, BadPolicy, Conflict, NotFound, Stale
from orchestrator.policy.addresses import Addresses
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.store import Store
from orchestrator.store.schema.acls import acl_rules
from orchestrator.store.transaction import StoreSettings
from orchestrator.store.unit import Unit


def ids(store: Store) -> list[str]:
    with store.read() as unit:
        return [str(found.id) for found in unit.acls.current("blue").acl.rules]


def rows(store: Store) -> int:
    with store.engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(acl_rules)).scalar_one())


def test_replacing_makes_a_version_and_moves_the_generation(store: Store) -> None:
    populate(store)
    first, second = acl(rule("a"), rule("b")), Acl((rule("b"),), {}, Action.PERMIT, Action.DENY)
    with store.write() as unit:
        change = unit.acls.replace("blue", first, author="ann", expected_version=0)
        assert (change.version, change.generation, change.changed) == (1, 3, True)
    with store.write() as unit:
        assert unit.acls.replace("blue", second, author="bob", expected_version=1).version == 2
        assert unit.acls.current("blue").acl == second
    with store.read() as unit:
        record = unit.acls.current("blue")
        assert (record.version, record.author, record.acl) == (2, "bob", second)
        assert unit.acls.at("blue", 1).acl == first
        assert unit.acls.at("blue", 0).acl == Acl()
        assert unit.domains.get("pop").generation == 4
        history = [(line.version, line.author, line.rules) for line in unit.acls.versions("blue")]
        assert history == [(2, "bob", 1), (1, "ann", 2), (0, "", 0)]
        assert [line.version for line in unit.acls.versions("blue", limit=1, marker=2)] == [1]


def test_replacing_by_the_same_changes_nothing(store: Store) -> None:
    populate(store)
    list_ = acl(rule("a"), rule("b"))
    for expected in (True, False):
        with store.write() as unit:
            change = unit.acls.replace("blue", list_, author="ann")
            assert (change.version, change.generation, change.changed) == (1, 3, expected)
    with store.write() as unit:
        assert not unit.acls.put_rule("blue", rule("a"), author="ann").changed
        assert not unit.acls.move_rule("blue", "a", position=0, author="ann").changed
        assert unit.acls.version("blue") == 1


def test_an_id_keeps_its_number_and_gets_it_again(store: Store) -> None:
    populate(store)

    def numbers() -> dict[str, int]:
        with store.read() as unit:
            return dict(unit.acls.current("blue").numbers)

    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("a"), rule("b"), rule("c")), author="ann")
    first = numbers()
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("c", port=443), rule("a"), rule("d")), author="ann")
    second = numbers()
    assert {second["a"], second["c"]} == {first["a"], first["c"]}
    assert second["a"] == first["a"]
    with store.write() as unit:
        unit.acls.put_rule("blue", rule("b"), author="ann")
        unit.acls.move_rule("blue", "c", position=2, author="ann")
        unit.acls.put_rule("blue", rule("a", port=22), author="ann")
    third = numbers()
    assert third["a"] == first["a"]
    assert third["c"] == first["c"]
    assert third["b"] == first["b"], "what was counted for it goes on"
    assert second["d"] > max(first.values())
    with store.write() as unit:
        unit.acls.replace("blue", acl(), author="ann")
        unit.acls.replace("blue", unit.acls.at("blue", 1).acl, author="ann")
        assert dict(unit.acls.current("blue").numbers) == first
    with store.read() as unit:
        assert dict(unit.acls.at("blue", 1).numbers) == first


def test_single_rules(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.acls.insert_rule("blue", rule("b"), position=0, author="ann")
        unit.acls.insert_rule("blue", rule("a"), position=0, author="ann")
        unit.acls.put_rule("blue", rule("d"), author="ann")
        unit.acls.insert_rule("blue", rule("c"), position=2, author="ann")
    assert ids(store) == ["a", "b", "c", "d"]
    with store.write() as unit:
        unit.acls.move_rule("blue", "a", position=3, author="ann")
    assert ids(store) == ["b", "c", "d", "a"]
    with store.write() as unit:
        unit.acls.move_rule("blue", "d", position=0, author="ann")
        unit.acls.delete_rule("blue", "c", author="ann")
    assert ids(store) == ["d", "b", "a"]
    with store.read() as unit:
        record = unit.acls.rule("blue", "b")
        assert record.rule == rule("b")
        assert record.number == unit.acls.current("blue").numbers["b"]
        assert record.since_version == 1
        assert unit.acls.at("blue", 4).acl == acl(rule("a"), rule("b"), rule("c"), rule("d"))


def test_single_rules_are_checked(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("a")), author="ann")
    grouped = dataclasses.replace(rule("g"), source=Addresses(groups=("nobody",)))
    foreign = rule("f", destination="10.2.0.0/24")
    with store.write() as unit:
        with pytest.raises(Conflict) as taken:
            unit.acls.insert_rule("blue", rule("a"), position=0, author="ann")
        assert taken.value.place == "id"
        for position in (-1, 2):
            with pytest.raises(BadInput) as nowhere:
                unit.acls.insert_rule("blue", rule("b"), position=position, author="ann")
            assert nowhere.value.place == "position"
        with pytest.raises(BadInput):
            unit.acls.move_rule("blue", "a", position=1, author="ann")
        with pytest.raises(BadPolicy, match="nobody") as unknown:
            unit.acls.put_rule("blue", grouped, author="ann")
        assert unknown.value.place == "source"
        with pytest.raises(BadPolicy) as strange:
            unit.acls.put_rule("blue", foreign, author="ann")
        assert strange.value.place == "destination"
        with pytest.raises(BadPolicy) as reserved:
            unit.acls.put_rule("blue", Rule(RuleId("_return"), Action.PERMIT), author="ann")
        assert reserved.value.place == "id"
        with pytest.raises(BadInput) as unreadable:
            unit.acls.put_rule("blue", dataclasses.replace(rule("b"), description="two\nlines"), author="ann")
        assert unreadable.value.place == "description"
    assert ids(store) == ["a"]


def test_lists_are_checked(store: Store) -> None:
    populate(store)
    foreign = acl(rule("a"), rule("f", destination="10.2.0.0/24"))
    with pytest.raises(BadPolicy) as strange, store.write() as unit:
        unit.acls.replace("blue", foreign, author="ann")
    assert strange.value.place == "rules[1].destination"
    unreadable = acl(rule("a"), dataclasses.replace(rule("b"), owner="\ud800"))
    with pytest.raises(BadInput) as caught, store.write() as unit:
        unit.acls.replace("blue", unreadable, author="ann")
    assert caught.value.place == "rules[1].owner"
    assert ids(store) == []


def test_writes_expect_a_version(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("a"), rule("b")), author="ann")
    attempts: list[Callable[..., object]] = [
        lambda unit: unit.acls.replace("blue", acl(), author="ann", expected_version=0),
        lambda unit: unit.acls.put_rule("blue", rule("a", port=1), author="ann", expected_version=2),
        lambda unit: unit.acls.insert_rule("blue", rule("c"), position=0, author="ann", expected_version=0),
        lambda unit: unit.acls.move_rule("blue", "a", position=1, author="ann", expected_version=0),
        lambda unit: unit.acls.delete_rule("blue", "a", author="ann", expected_version=0),
    ]
    for attempt in attempts:
        with pytest.raises(Stale, match="version 1"), store.write() as unit:
            attempt(unit)
    assert ids(store) == ["a", "b"]


def test_groups_have_their_history_too(store: Store, open_another: Callable[..., Store]) -> None:
    populate(store)
    named = dataclasses.replace(rule("g"), source=Addresses(groups=("net",)), destination=Addresses(groups=("own",)))
    lists = [
        Acl((named,), {"net": group("net", "192.0.2.0/24"), "own": group("own", "10.1.1.0/24")}),
        Acl((named,), {"net": group("net", "192.0.2.0/25", "2001:db8::/32"), "own": group("own", "10.1.1.0/24")}),
        Acl((named,), {"net": group("net"), "own": group("own", "10.1.1.0/24"), "more": group("more", "::1")}),
        Acl((), {}),
    ]
    for version, list_ in enumerate(lists, start=1):
        with store.write() as unit:
            assert unit.acls.replace("blue", list_, author="ann").version == version
        with store.read() as unit:
            assert unit.acls.current("blue").acl == list_
    with open_another().read() as unit:
        for version, list_ in enumerate(lists, start=1):
            assert unit.acls.at("blue", version).acl == list_
    with pytest.raises(BadPolicy), store.write() as unit:
        unit.acls.replace("blue", Acl((named,), {"net": group("net"), "own": group("own", "10.9.0.0/24")}), author="a")
    with pytest.raises(BadInput, match="called 'other' in itself"), store.write() as unit:
        unit.acls.replace("blue", Acl((), {"net": group("other")}), author="ann")


def test_a_rule_may_name_a_group_when_put_alone(store: Store) -> None:
    populate(store)
    named = dataclasses.replace(rule("g"), source=Addresses(groups=("net",)))
    with store.write() as unit:
        unit.acls.replace("blue", Acl((), {"net": group("net", "192.0.2.0/24")}), author="ann")
        unit.acls.put_rule("blue", named, author="ann")
        assert unit.acls.current("blue").acl == Acl((named,), {"net": group("net", "192.0.2.0/24")})


@pytest.mark.parametrize("length", [3, 3000])
def test_a_change_of_one_rule_touches_two_rows_whatever_the_length(store: Store, length: int) -> None:
    populate(store)
    with store.write() as unit:
        unit.acls.replace("blue", acl(*(rule(f"r{index}") for index in range(length))), author="ann")
    assert rows(store) == length
    middle = f"r{length // 2}"
    with store.write() as unit:
        unit.acls.put_rule("blue", rule(middle, port=443), author="ann")
    assert rows(store) == length + 1
    with store.write() as unit:
        unit.acls.insert_rule("blue", rule("new"), position=length // 2, author="ann")
    assert rows(store) == length + 2
    with store.write() as unit:
        unit.acls.delete_rule("blue", "r0", author="ann")
    assert rows(store) == length + 2
    with store.read() as unit:
        edited = list(unit.acls.current("blue").acl.rules)
    edited[1] = rule(str(edited[1].id), port=8080)
    with store.write() as unit:
        unit.acls.replace("blue", acl(*edited), author="ann")
    assert rows(store) == length + 3


def test_a_thousand_insertions_at_one_place(store: Store, open_another: Callable[..., Store]) -> None:
    populate(store)
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("top"), rule("bottom")), author="ann")
    expected = ["top", "bottom"]
    with store.write() as unit:
        for number in range(300):
            unit.acls.insert_rule("blue", rule(f"n{number}"), position=1, author="ann")
            expected.insert(1, f"n{number}")
    assert ids(store) == expected
    assert ids(open_another()) == expected
    with open_another().read() as unit:
        at_100 = [str(found.id) for found in unit.acls.at("blue", 101).acl.rules]
    assert at_100 == ["top", *(f"n{number}" for number in reversed(range(100))), "bottom"]
    assert rows(store) < 302 * 4


@pytest.mark.parametrize("step", [0, 1], ids=["before the last", "behind the last"])
def test_rows_that_are_spread_anew_leave_their_rules_alone(store: Store, step: int) -> None:
    """One inserted rule at a time, at one place: all others are the same objects, so nothing looks at them again."""
    populate(store)
    with store.write() as unit:
        unit.acls.replace("blue", acl(*(rule(f"r{number}") for number in range(80))), author="ann")
    with store.read() as unit:
        before = unit.acls.current("blue").acl.rules
    for number in range(60):
        with store.write() as unit:
            unit.acls.insert_rule("blue", rule(f"n{number}"), position=40 + step * number, author="ann")
        with store.read() as unit:
            now = unit.acls.current("blue").acl.rules
        come = [each for each in now if not any(each is known for known in before)]
        assert [str(each.id) for each in come] == [f"n{number}"]
        before = now
    assert rows(store) > 80 + 60  # some were spread


def test_old_versions_are_forgotten(open_another: Callable[..., Store]) -> None:
    store = open_another(settings=StoreSettings(versions_kept=5))
    populate(store)
    for number in range(12):
        with store.write() as unit:
            unit.acls.put_rule("blue", rule("r", port=number + 1), author="ann")
    assert rows(store) == 5
    with store.read() as unit:
        assert [line.version for line in unit.acls.versions("blue")] == [12, 11, 10, 9, 8]
        assert unit.acls.at("blue", 8).acl == acl(rule("r", port=8))
        with pytest.raises(NotFound, match="version 7"):
            unit.acls.at("blue", 7)
        assert unit.acls.current("blue").acl == acl(rule("r", port=12))


def test_a_copy_older_than_what_is_kept_is_not_mended(store: Store, open_another: Callable[..., Store]) -> None:
    populate(store)
    forgetful = open_another(settings=StoreSettings(versions_kept=3))
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("a"), rule("b")), author="ann")
    assert ids(store) == ["a", "b"]
    with forgetful.write() as unit:
        unit.acls.delete_rule("blue", "a", author="ann")
        for port in range(1, 6):
            unit.acls.put_rule("blue", rule("b", port=port), author="ann")
    with store.read() as unit:
        assert unit.acls.current("blue").acl == acl(rule("b", port=5))


def test_after_a_jump_of_the_clock_no_rule_ends_where_that_may_open_something(store: Store, wall: FakeWall) -> None:
    populate(store)
    soon = wall.now + dt.timedelta(hours=1)
    rules = (
        dataclasses.replace(rule("permits"), expires=soon),
        dataclasses.replace(rule("denies", action=Action.DENY), expires=soon),
        dataclasses.replace(rule("alone"), stateless=True, expires=soon),
    )
    with store.write() as unit:
        unit.acls.replace("blue", acl(*rules), author="ann")
    wall.move(hours=2)
    with store.write() as unit:
        assert unit.clock_jumped > dt.timedelta(hours=1, minutes=59)
        assert unit.expiry.overdue() == ("blue",)
        (swept,) = unit.expiry.expire()
        assert swept.rules == ("permits",)
        assert (unit.expiry.overdue(), unit.expiry.expire()) == ((), ())
        unit.acls.replace("blue", acl(*rules[1:], rule("new")), author="ann")
        with pytest.raises(BadPolicy, match="has passed already"):
            unit.acls.replace("blue", acl(*rules), author="ann")


def test_rules_expire(store: Store, wall: FakeWall) -> None:
    populate(store)
    zone = dt.timezone(dt.timedelta(hours=5, minutes=30))
    soon, later = wall.now + dt.timedelta(hours=1), (wall.now + dt.timedelta(hours=2)).astimezone(zone)
    rules = (
        dataclasses.replace(rule("soon"), expires=soon),
        rule("ever"),
        dataclasses.replace(rule("later"), expires=later),
    )
    with store.write() as unit:
        assert unit.expiry.next_due() is None
        unit.acls.replace("blue", acl(*rules), author="ann")
        assert unit.expiry.next_due() == soon
        assert unit.expiry.expire() == unit.expiry.overdue() == ()
    wall.move(hours=1)
    with store.write() as unit:
        assert unit.expiry.overdue() == ("blue",)
        assert unit.expiry.expire(["red"]) == ()
        (swept,) = unit.expiry.expire()
        assert (swept.tenant, swept.rules, swept.change.version) == ("blue", ("soon",), 2)
    wall.move(hours=-9)
    with store.write() as unit:
        assert unit.expiry.expire() == ()
        assert unit.expiry.next_due() == later
    assert ids(store) == ["ever", "later"]
    with store.read() as unit:
        newest, before = unit.acls.versions("blue", limit=2)
        assert (newest.author, newest.rules) == ("expiry", 2)
        assert newest.created >= before.created


def test_what_one_unit_does_and_undoes_is_seen_in_it_only(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        unit.acls.replace("blue", acl(rule("a")), author="ann")

    def fail_late(unit: Unit) -> None:
        unit.acls.put_rule("blue", rule("b"), author="ann")
        assert len(unit.acls.current("blue").acl.rules) == 2
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), store.write() as unit:
        fail_late(unit)
    assert ids(store) == ["a"]
    with store.write() as unit:
        assert unit.acls.put_rule("blue", rule("c"), author="ann").version == 2
        assert [str(found.id) for found in unit.acls.current("blue").acl.rules] == ["a", "c"]
    assert ids(store) == ["a", "c"]


def test_a_reader_keeps_its_version_while_others_write(store: Store, open_another: Callable[..., Store]) -> None:
    populate(store)
    other = open_another()
    with store.read() as unit:
        before = unit.acls.current("blue")
        with other.write() as writer:
            writer.acls.put_rule("blue", rule("a"), author="ann")
        assert unit.acls.current("blue") == before
        assert unit.domains.policy("pop").generation == 2
    assert ids(store) == ["a"]


def test_a_reading_unit_refuses_to_write(store: Store) -> None:
    populate(store)
    with store.read() as unit, pytest.raises(RuntimeError, match="only reads"):
        unit.tenants.add_prefix("blue", prefix("10.9.0.0/16"))
    with pytest.raises(RuntimeError, match="is over"):
        unit.tenants.get("blue")
