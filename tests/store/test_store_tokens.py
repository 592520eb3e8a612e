"""Bearer tokens, the log of events, and kept answers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from store.conftest import FakeWall
from store.scenes import populate

from orchestrator.errors import BadInput, Conflict, NotFound, TooOften, Unauthenticated
from orchestrator.store import Store, tokens
from orchestrator.store.records import Principal, Reply, Role
from orchestrator.store.transaction import StoreSettings


def test_tokens_say_who_asks(store: Store, wall: FakeWall) -> None:
    populate(store)
    with store.write() as unit:
        admin = unit.tokens.create(Role.ADMIN, description="first")
        member = unit.tokens.create(Role.MEMBER, tenant="blue", expires=wall.now + dt.timedelta(days=1))
        assert admin.secret != member.secret
        assert member.secret.startswith("aclflow_")
    with store.read() as unit:
        assert unit.tokens.check(admin.secret) == Principal(admin.record.id, Role.ADMIN)
        assert unit.tokens.check(member.secret) == Principal(member.record.id, Role.MEMBER, tenant="blue")
        assert unit.tokens.list() == (admin.record, member.record)
        assert unit.tokens.list(tenant="blue") == (member.record,)
        for wrong in ("", "aclflow_", admin.secret[:-1], admin.secret.upper(), admin.secret + " ", "\ud800"):
            with pytest.raises(Unauthenticated):
                unit.tokens.check(wrong)


def test_a_token_ends_at_the_latest_when_tokens_may_last(store: Store, wall: FakeWall) -> None:
    populate(store)
    lasts = StoreSettings().token_lasts
    with store.write() as unit:
        plain = unit.tokens.create(Role.ADMIN)
        assert plain.record.expires == plain.record.created + lasts
        with pytest.raises(BadInput) as caught:
            unit.tokens.create(Role.ADMIN, expires=wall.now + lasts + dt.timedelta(minutes=1))
        assert caught.value.place == "expires"
    wall.now += lasts + dt.timedelta(minutes=1)
    with store.read() as unit, pytest.raises(Unauthenticated):
        unit.tokens.check(plain.secret)


def test_a_token_is_replaced_with_an_overlap(store: Store, wall: FakeWall) -> None:
    populate(store)
    hour, lasts = dt.timedelta(hours=1), StoreSettings().token_lasts
    with store.write() as unit:
        old = unit.tokens.create(Role.MEMBER, tenant="blue", description="laptop")
        short = unit.tokens.create(Role.ADMIN, expires=wall.now + hour / 2)
    with store.write() as unit:
        new = unit.tokens.rotate(old.record.id, overlap=hour)
        after = unit.tokens.rotate(short.record.id, overlap=hour)
        assert (new.record.principal.role, new.record.principal.tenant) == (Role.MEMBER, "blue")
        assert (new.record.description, new.record.expires) == ("laptop", new.record.created + lasts)
        for wrong in (-hour, lasts + hour):
            with pytest.raises(BadInput):
                unit.tokens.rotate(new.record.id, overlap=wrong)
        with pytest.raises(NotFound):
            unit.tokens.rotate(10_000, overlap=hour)
    for good in ((old, new, after), (new, after)):
        wall.now += hour / 2 + dt.timedelta(minutes=1)
        with store.read() as unit:
            for each in (old, short, new, after):
                if each in good:
                    unit.tokens.check(each.secret)
                else:
                    with pytest.raises(Unauthenticated):
                        unit.tokens.check(each.secret)


def test_a_bearer_has_only_so_many_successors(store: Store, monkeypatch: pytest.MonkeyPatch, wall: FakeWall) -> None:
    """Each could be replaced again, and they would be without an end."""
    monkeypatch.setattr(tokens, "MOST_SUCCESSORS", 3)
    populate(store)
    day = dt.timedelta(days=1)

    def rotate(token: int, overlap: dt.timedelta = day) -> int:
        with store.write() as unit:
            return unit.tokens.rotate(token, overlap=overlap).record.id

    with store.write() as unit:
        first, other = (unit.tokens.create(Role.READER, tenant="blue").record.id for _ in range(2))
    made = [rotate(first) for _ in range(3)]
    for each in (first, *made):
        with pytest.raises(TooOften, match="3 tokens"):
            rotate(each)
    rotate(other)
    with store.write() as unit:
        unit.tokens.revoke(made[0])
    rotate(first, dt.timedelta())
    wall.now += dt.timedelta(days=400)
    with store.write() as unit:
        assert unit.tokens.create(Role.ADMIN).record.id
        assert len(unit.tokens.list()) == 1


def test_tokens_expire_are_revoked_and_go_with_their_tenant(store: Store, wall: FakeWall) -> None:
    populate(store)
    with store.write() as unit:
        short = unit.tokens.create(Role.ADMIN, expires=wall.now + dt.timedelta(minutes=5))
        revoked = unit.tokens.create(Role.ADMIN)
        bound = unit.tokens.create(Role.READER, tenant="blue")
        unit.tokens.revoke(revoked.record.id)
        with pytest.raises(NotFound):
            unit.tokens.revoke(revoked.record.id)
    with store.read() as unit:
        unit.tokens.check(short.secret)
        unit.tokens.check(bound.secret)
    wall.move(minutes=5)
    with store.read() as unit, pytest.raises(Unauthenticated):
        unit.tokens.check(short.secret)
    wall.move(minutes=-60)
    with store.read() as unit, pytest.raises(Unauthenticated):
        unit.tokens.check(short.secret)
    with store.write() as unit:
        unit.tenants.delete("blue")
        for gone in (revoked, bound):
            with pytest.raises(Unauthenticated):
                unit.tokens.check(gone.secret)


def test_an_expired_token_does_not_come_back_with_a_restart(
    store: Store, open_another: Callable[..., Store], wall: FakeWall
) -> None:
    with store.write() as unit:
        short = unit.tokens.create(Role.ADMIN, expires=wall.now + dt.timedelta(minutes=5))
    wall.move(minutes=6)
    with store.write() as unit:
        unit.tokens.create(Role.ADMIN)  # sweeps
    wall.move(minutes=-60)
    with open_another().read() as unit, pytest.raises(Unauthenticated):
        unit.tokens.check(short.secret)


def test_tokens_are_checked_when_made(store: Store, wall: FakeWall) -> None:
    populate(store)
    naive = wall.now.replace(tzinfo=None)
    with store.write() as unit:
        for wrong in (
            lambda: unit.tokens.create(Role.MEMBER),
            lambda: unit.tokens.create(Role.ADMIN, tenant="blue"),
            lambda: unit.tokens.create(Role.ENFORCER),
            lambda: unit.tokens.create(Role.ADMIN, expires=wall.now),
            lambda: unit.tokens.create(Role.ADMIN, expires=naive + dt.timedelta(days=1)),
            lambda: unit.tokens.create(Role.ADMIN, description="two\nlines"),
        ):
            with pytest.raises(BadInput):
                wrong()
        with pytest.raises(NotFound):
            unit.tokens.create(Role.MEMBER, tenant="red")
        assert unit.tokens.list() == ()


def test_events_are_in_the_order_of_commits_whatever_the_clock_does(store: Store, wall: FakeWall) -> None:
    populate(store)
    for number in range(4):
        wall.move(hours=-1)
        with store.write() as unit:
            unit.events.append("change", "blue", {"number": number, "text": "\0 é"})
    with store.read() as unit:
        page = unit.events.since(0)
        assert [event.detail["number"] for event in page.events] == [0, 1, 2, 3]
        assert not page.missed
        assert [event.time for event in page.events] == sorted(event.time for event in page.events)
        second = page.events[1]
        assert [event.id for event in unit.events.since(second.id, limit=1).events] == [page.events[2].id]
        assert unit.events.last_id() == page.events[-1].id
        assert second.detail == {"number": 1, "text": "\0 é"}


def test_an_event_exists_only_with_its_change(store: Store) -> None:
    populate(store)

    def fail() -> None:
        with store.write() as unit:
            unit.events.append("change", "blue", {})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.read() as unit:
        assert unit.events.last_id() == 0
        assert unit.events.since(0).events == ()


def test_the_log_is_bounded_and_says_what_was_missed(open_another: Callable[..., Store]) -> None:
    store = open_another(settings=StoreSettings(events_kept=50))
    with store.write() as unit:
        for number in range(1000):
            unit.events.append("tick", "x", {"n": number})
        newest = unit.events.last_id()
    with store.read() as unit:
        page = unit.events.since(0, limit=1000)
        assert 50 <= len(page.events) <= 150
        assert page.events[-1].id == newest
        assert page.missed
        assert not unit.events.since(page.events[0].id).missed
        assert not unit.events.since(page.events[0].id - 1).missed
        assert unit.events.since(page.events[0].id - 2).missed


def test_answers_are_kept_for_repeated_requests(open_another: Callable[..., Store], wall: FakeWall) -> None:
    store = open_another(settings=StoreSettings(replies_kept_h=1))
    reply = Reply(201, {"ETag": '"1"', "Location": "/é"}, b"\x00{}")
    with store.write() as unit:
        one = unit.tokens.create(Role.ADMIN).record.id
        two = unit.tokens.create(Role.ADMIN).record.id
        assert unit.replies.find(one, "key", b"request") is None
        unit.replies.keep(one, "key", b"request", reply)
    with store.write() as unit:
        assert unit.replies.find(one, "key", b"request") == reply
        assert unit.replies.find(two, "key", b"request") is None
        with pytest.raises(Conflict) as caught:
            unit.replies.find(one, "key", b"another")
        assert caught.value.place == "Idempotency-Key"
        for wrong in ("", "x" * 256, "with space", "new\nline"):
            with pytest.raises(BadInput):
                unit.replies.find(one, wrong, b"request")
    wall.move(hours=1.1)
    with store.write() as unit:
        assert unit.replies.find(one, "key", b"another") is None
        unit.replies.keep(one, "key", b"another", reply)
        assert unit.replies.find(one, "key", b"another") == reply
        unit.tokens.revoke(one)
