"""The audit trail in the store: chains, anchors, pruning; and rings of events, so that nobody erases another's."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from store.conftest import FakeWall

from orchestrator.identity.trail import AuditKey, Verified, Verifier
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import AddressGroup, GroupName
from orchestrator.store import Store, StoreSettings
from orchestrator.store.audit import Actor, Wanted
from orchestrator.store.unit import Unit
from orchestrator.wire.audit import AuditAnchor

EVERYTHING = Wanted()


@pytest.fixture
def key(tmp_path: Path) -> AuditKey:
    return AuditKey.open(tmp_path / "audit")


def act(store: Store, count: int = 1, kind: str = "domain.changed") -> None:
    for number in range(count):
        with store.write() as unit:
            unit.events.append(kind, "pop", {"by": "admin:1", "number": number}, actor=Actor("admin:1", "192.0.2.1"))


def anchored(store: Store, key: AuditKey) -> AuditAnchor:
    with store.write() as unit:
        head = unit.audit.head()
        anchor = key.anchor(unit.audit.chain, head.number, head.hash.hex(), unit.now)
        unit.audit.keep_anchor(anchor)
    return anchor


def verified(store: Store, *anchors: AuditAnchor) -> Verified:
    with store.read() as unit:
        verifier = Verifier([*anchors, *unit.audit.anchors()])
        for entry in unit.audit.page(EVERYTHING, marker=0, limit=10_000):
            verifier.read(entry)
    return verifier.result()


def tamper(store: Store, statement: str) -> None:
    with store.engine.begin() as connection:
        connection.execute(text(statement))


def places(result: Verified) -> list[int]:
    return [fault.number for fault in result.faults]


def test_what_is_written_is_verified(store: Store, key: AuditKey) -> None:
    act(store, 5)
    anchored(store, key)
    act(store, 2)
    result = verified(store)
    assert (result.entries, result.chains, result.anchors, result.faults, result.unanchored) == (7, 1, 1, (), 2)


@pytest.mark.parametrize(
    ("statement", "number", "words"),
    [
        ("UPDATE audit SET who = 'admin:2' WHERE number = 3", 3, "changed"),
        ("UPDATE audit SET time = time + 1 WHERE number = 3", 3, "changed"),
        ("UPDATE audit SET result = 'refused' WHERE number = 3", 3, "changed"),
        ("UPDATE audit SET detail = replace(detail, '2', '7') WHERE number = 3", 3, "changed"),
        ("UPDATE audit SET address = '192.0.2.9' WHERE number = 3", 3, "changed"),
        ("UPDATE audit SET kind = 'domain.created' WHERE number = 3", 3, "changed"),
        ("UPDATE audit SET subject = 'other' WHERE number = 3", 3, "changed"),
        ("UPDATE audit SET tenant = 7 WHERE number = 3", 3, "changed"),
        ("UPDATE audit SET domain = 'other' WHERE number = 3", 3, "changed"),
        ("UPDATE audit SET before = hash WHERE number = 3", 3, "changed"),
        ("UPDATE audit SET after = hash WHERE number = 3", 3, "changed"),
        ("DELETE FROM audit WHERE number = 3", 3, "missing"),
        ("DELETE FROM audit WHERE number IN (3, 4)", 3, "up to entry 4"),
        ("DELETE FROM audit WHERE number >= 4", 4, "the end is cut"),
        ("DELETE FROM audit WHERE number <= 2", 1, "no anchor vouches"),
        ("DELETE FROM audit", 1, "all of it"),
    ],
)
def test_what_was_touched_is_found_and_named(
    store: Store, key: AuditKey, statement: str, number: int, words: str
) -> None:
    act(store, 6)
    anchored(store, key)
    tamper(store, statement)
    (fault,) = verified(store).faults
    assert fault.number == number
    assert words in fault.reason


def test_entries_that_changed_places_are_found(store: Store, key: AuditKey) -> None:
    act(store, 6)
    anchored(store, key)
    tamper(store, "UPDATE audit SET number = 1000 WHERE number = 3")
    tamper(store, "UPDATE audit SET number = 3 WHERE number = 4")
    tamper(store, "UPDATE audit SET number = 4 WHERE number = 1000")
    assert places(verified(store))[0] in (3, 4)
    tamper(store, "UPDATE audit SET id = 1000 WHERE number = 2")
    assert any("moved" in fault.reason for fault in verified(store).faults)


def test_a_trail_that_was_written_anew_is_not_what_was_anchored(
    store: Store, open_another: Callable[..., Store], key: AuditKey
) -> None:
    """Who has the database can make a chain that is whole; the anchor in the sink tells of another one."""
    act(store, 4)
    anchor = anchored(store, key)
    with store.read() as unit:
        old = unit.audit.page(EVERYTHING, marker=0, limit=10)
    previous = b""
    for entry in old:
        forged = entry.link(previous) if previous else b"\0" * 32
        previous = forged
        tamper(store, f"UPDATE audit SET hash = {literal(store, forged)} WHERE number = {entry.number}")
    faults = verified(store, anchor).faults
    assert any("written anew" in fault.reason and fault.number == 4 for fault in faults)


def test_an_entry_that_was_changed_with_its_hash_is_found_at_the_next(store: Store) -> None:
    act(store, 4)
    with store.read() as unit:
        first, second = unit.audit.page(EVERYTHING, marker=0, limit=2)
    forged = replace(second, who="admin:2").link(bytes.fromhex(first.hash))
    tamper(store, f"UPDATE audit SET who = 'admin:2', hash = {literal(store, forged)} WHERE number = 2")
    assert places(verified(store)) == [3]


def literal(store: Store, raw: bytes) -> str:
    return f"X'{raw.hex()}'" if store.engine.dialect.name == "sqlite" else f"'\\x{raw.hex()}'"


def test_a_forged_anchor_is_not_believed(store: Store, key: AuditKey, tmp_path: Path) -> None:
    act(store, 3)
    anchor = anchored(store, key)
    foreign = AuditKey.open(tmp_path / "other").anchor(anchor.chain, 3, anchor.hash, anchor.time)
    changed: dict[str, object] = {
        "chain": "0" * 32, "number": 2, "hash": "0" * 64, "time": anchor.time + dt.timedelta(seconds=1),
    }  # fmt: skip
    lies = [replace(anchor, **{name: value}) for name, value in changed.items()]
    with store.read() as unit:
        entries = unit.audit.page(EVERYTHING, marker=0, limit=10)
    for anchors, words in (([foreign], "not believed"), *(([lie], "wrong signature") for lie in lies)):
        verifier = Verifier(anchors, {key.public})
        for entry in entries:
            verifier.read(entry)
        assert [words in fault.reason for fault in verifier.result().faults] == [True]


def test_the_hash_of_an_entry_is_of_each_of_its_words(store: Store) -> None:
    act(store)
    with store.read() as unit:
        [entry] = unit.audit.page(EVERYTHING, marker=0, limit=1)
    known = {"id": 7, "number": 7, "tenant": 7, "time": entry.time + dt.timedelta(microseconds=1), "detail": {}}
    for name in entry.__slots__:
        changed = replace(entry, **{name: known.get(name, "another")})
        is_same = changed.link(b"before") == entry.link(b"before")
        assert is_same is (name in ("id", "detail", "hash")), name  # `text` is the detail, an id is the database's own
    assert entry.link(b"another") != entry.link(b"before")


def test_two_services_on_one_database_have_a_chain_each(
    store: Store, open_another: Callable[..., Store], key: AuditKey
) -> None:
    other = open_another()
    for each in (store, other, store, other, other):
        act(each)
    anchored(store, key)
    anchored(other, key)
    result = verified(store)
    assert (result.chains, result.entries, result.faults, result.unanchored) == (2, 5, (), 0)


def test_a_change_that_was_rolled_back_leaves_no_entry_and_no_gap(store: Store, key: AuditKey) -> None:
    act(store, 2)
    with store.turn() as turn:  # left without a commit
        turn.unit.events.append("domain.changed", "pop", {})
    act(store, 2)
    result = verified(store)
    assert (result.entries, result.faults) == (4, ())


def test_a_commit_without_an_answer_does_not_break_the_chain(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change may be there: the next entry follows what the database has."""
    act(store, 2)
    with store.turn() as turn:
        turn.unit.events.append("domain.changed", "pop", {})
        connection = turn.unit.transaction.connection
        commit = connection.commit

        def lost() -> None:
            commit()
            raise ConnectionError

        with monkeypatch.context() as patch:
            patch.setattr(connection, "commit", lost)
            with pytest.raises(ConnectionError):
                turn.commit()
    act(store, 2)
    result = verified(store)
    assert (result.entries, result.faults) == (5, ())


def test_old_entries_are_taken_out_and_the_rest_is_still_verified(store: Store, key: AuditKey, wall: FakeWall) -> None:
    act(store, 4)
    outside = [anchored(store, key)]
    act(store, 3)
    wall.move(days=10)
    act(store, 2)
    outside.append(anchored(store, key))
    with store.write() as unit:
        before = wall.now - dt.timedelta(days=5)
        assert unit.audit.prune(before) == 4
    outside.append(anchored(store, key))
    for anchors in ((), outside):  # those of the database suffice
        result = verified(store, *anchors)
        assert (result.entries, result.faults) == (6, ())
    with store.read() as unit:
        assert unit.audit.page(EVERYTHING, marker=0, limit=1)[0].number == 5
    wall.move(days=30)
    act(store)
    outside.append(anchored(store, key))
    wall.move(days=30)
    with store.write() as unit:
        assert unit.audit.prune(wall.now - dt.timedelta(days=5)) == 7
    outside.append(anchored(store, key))
    assert verified(store, *outside).faults == ()


def test_young_entries_do_not_look_as_if_they_had_been_old(store: Store, key: AuditKey, wall: FakeWall) -> None:
    """Who deletes up to an anchor leaves a chain that begins there: only an entry of the service's permits that."""
    act(store, 4)
    anchored(store, key)
    act(store, 2)
    tamper(store, "DELETE FROM audit WHERE number <= 4")
    (fault,) = verified(store).faults
    assert "so young" in fault.reason


def test_what_permits_to_take_old_entries_out_is_anchored_itself(
    store: Store, open_another: Callable[..., Store], key: AuditKey
) -> None:
    """Whoever has the database adds an entry to the chain of a process that has ended, and deletes another chain."""
    act(store, 3)
    ended = open_another()
    act(ended, 2)
    outside = [anchored(store, key), anchored(ended, key)]
    with ended.write() as unit:
        said = f'{{"before":"{(unit.now + dt.timedelta(days=1)).isoformat()}","entries":3}}'
        unit.audit.append("audit.pruned", "audit", said, actor=Actor("service"), tenant=None, domain=None)
    assert verified(store, *outside).faults == ()
    tamper(store, f"DELETE FROM audit WHERE chain = '{outside[0].chain}'")
    assert ["all of it" in fault.reason for fault in verified(store, *outside).faults] == [True]
    anchored(ended, key)  # the service's own word, which nobody else can give
    assert verified(store, *outside).faults == ()


def test_an_entry_tells_the_rows_of_a_list_that_changed(store: Store) -> None:
    with store.write() as unit:
        unit.domains.create("pop")
        number = unit.tenants.create("blue", domain="pop", name="", prefixes=[Prefix.parse("10.0.0.0/16")]).number

    def put(port: int) -> tuple[str | None, str | None]:
        rule = {"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": port}
        with store.write() as unit:
            unit.acls.replace("blue", acl_from_json({"rules": [rule]}), author="member:1")
            unit.events.append("acl.replaced", "blue", {})
            entry = unit.audit.page(Wanted(tenant=number), marker=None, limit=1, newest=True)[0]
        return entry.before, entry.after

    first, second, again = put(80), put(81), put(80)
    assert first[0] is None
    assert second == (first[1], again[0])
    assert again[1] == first[1]


def test_an_entry_tells_what_is_said_of_a_group(store: Store) -> None:
    with store.write() as unit:
        unit.domains.create("pop")
        number = unit.tenants.create("blue", domain="pop", name="", prefixes=[Prefix.parse("10.0.0.0/16")]).number

    def describe(description: str) -> tuple[str | None, str | None]:
        group = AddressGroup(GroupName("web"), (Prefix.parse("192.0.2.0/24"),), description)
        with store.write() as unit:
            unit.groups.put("blue", group, author="member:1")
            unit.events.append("group.written", "blue", {})
            entry = unit.audit.page(Wanted(tenant=number), marker=None, limit=1, newest=True)[0]
        return entry.before, entry.after

    describe("one")
    second, third, fourth = describe("two"), describe("one"), describe("two")
    assert second[1] == third[0] != second[0] == third[1]
    assert fourth == second
    assert None not in second


def test_what_is_only_seen_to_happen_is_no_act(store: Store) -> None:
    act(store, 3, "generation.published")
    assert verified(store).entries == 0


def test_a_long_detail_is_told_by_its_digest(store: Store) -> None:
    with store.write() as unit:
        unit.events.append("domain.changed", "x" * 5000, {"words": "y" * 10_000})
        entry = unit.audit.page(EVERYTHING, marker=None, limit=1, newest=True)[0]
    assert len(entry.subject) == 256
    assert set(entry.detail) == {"bytes", "sha256"}
    assert verified(store).faults == ()


# ---------------------------------------------------------------------------------------------------- events


def tenants_of(store: Store, *names: str) -> None:
    with store.write() as unit:
        unit.domains.create("pop")
        for place, name in enumerate(names):
            unit.tenants.create(name, domain="pop", name="", prefixes=[Prefix.parse(f"10.{place}.0.0/16")])


def flood(store: Store, tenant: str, count: int) -> None:
    with store.write() as unit:
        for _ in range(count):
            unit.events.append("acl.replaced", tenant, {})
            unit.events.append("generation.published", "pop", {"generation": 1})


def kinds_of(unit: Unit, tenant: str | None = None) -> set[str]:
    number = None if tenant is None else unit.tenants.get(tenant).number
    return {event.kind for event in unit.events.since(0, limit=10_000, tenant=number).events}


def test_a_tenants_events_push_out_its_own_alone(open_another: Callable[..., Store]) -> None:
    store = open_another(settings=StoreSettings(events_kept=50))
    tenants_of(store, "blue", "red")
    with store.write() as unit:
        unit.events.append("token.created", "7", {})
        unit.events.append("host.added", "pop", {})
        unit.events.append("rule.changed", "red", {})
    flood(store, "blue", 1000)
    with store.read() as unit:
        assert {"token.created", "host.added", "rule.changed"} <= kinds_of(unit)
        assert kinds_of(unit, "red") == {"rule.changed"}
        assert 50 <= len(unit.events.since(0, limit=10_000).events) <= 350
        blue, red = (unit.tenants.get(name).number for name in ("blue", "red"))
        assert unit.events.since(1, tenant=blue).missed
        assert not unit.events.since(1, tenant=red).missed
        assert unit.events.since(1).missed


def test_events_of_tenants_that_are_gone_end_with_time(store: Store, wall: FakeWall) -> None:
    tenants_of(store, "blue")
    flood(store, "blue", 10)
    wall.move(days=500)
    with store.write() as unit:
        unit.events.append("domain.changed", "pop", {})
        unit.events.forget_before(wall.now - dt.timedelta(days=400))
        assert kinds_of(unit) == {"domain.changed"}
        assert unit.events.since(1).missed
