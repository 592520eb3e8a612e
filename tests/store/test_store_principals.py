"""Tokens in memory: known without the database, and never longer than the database knows them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from store.scenes import populate

from orchestrator.errors import Unauthenticated
from orchestrator.store import Store, open_store
from orchestrator.store.records import Principal, Role
from orchestrator.store.tokens import Bearer, PrincipalCache

ADMIN = Bearer(Principal(1, Role.ADMIN, None, None, None), None)


class Clock:
    def __init__(self) -> None:
        self.now = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def alone(sqlite_template: bytes, tmp_path: Path, clock: Clock) -> Store:
    path = tmp_path / "store.db"
    path.write_bytes(sqlite_template)
    store = open_store(f"sqlite:///{path}", clock=clock)
    populate(store)
    return store


def secret_of(store: Store, *, tenant: str | None = None, expires: dt.datetime | None = None) -> str:
    with store.write() as unit:
        role = Role.ADMIN if tenant is None else Role.MEMBER
        return unit.tokens.create(role, tenant=tenant, expires=expires).secret


def enrolled(store: Store, name: str) -> str:
    with store.write() as unit:
        invitation = unit.enforcers.invite("pop", expires=unit.now + dt.timedelta(hours=1), author="x")
        return unit.enforcers.enrol(invitation, name=name, kind="openflow").secret


def is_known(store: Store, secret: str) -> bool:
    return store.known_bearer(secret) is not None


def test_a_token_is_known_once_it_was_checked(alone: Store) -> None:
    secret = secret_of(alone)
    assert not is_known(alone, secret)
    assert alone.bearer(secret) == alone.known_bearer(secret)
    with pytest.raises(Unauthenticated):
        alone.bearer("another")
    assert not is_known(alone, "another")


def test_a_revoked_token_is_known_no_more(alone: Store) -> None:
    secret = secret_of(alone)
    principal = alone.bearer(secret)
    with alone.write() as unit:
        unit.tokens.revoke(principal.token_id)
    assert not is_known(alone, secret)


def test_a_token_expires_in_memory_too(alone: Store, clock: Clock) -> None:
    secret = secret_of(alone, expires=clock.now + dt.timedelta(seconds=10))
    alone.bearer(secret)
    clock.now += dt.timedelta(seconds=9)
    assert is_known(alone, secret)
    clock.now += dt.timedelta(seconds=1)
    assert not is_known(alone, secret)


def test_the_token_of_a_tenant_that_is_gone_is_known_no_more(alone: Store) -> None:
    secret = secret_of(alone, tenant="blue")
    alone.bearer(secret)
    with alone.write() as unit:
        unit.tenants.delete("blue")
    assert not is_known(alone, secret)


def test_the_token_of_a_replaced_enforcer_is_known_no_more(alone: Store) -> None:
    secret = enrolled(alone, "one")
    alone.bearer(secret)
    enrolled(alone, "one")
    assert not is_known(alone, secret)


def test_a_write_that_takes_no_token_leaves_them_known(alone: Store) -> None:
    secret = secret_of(alone)
    alone.bearer(secret)
    with alone.write() as unit:
        unit.tenants.rename("blue", "Bluer")
    assert is_known(alone, secret)


def test_what_was_read_before_tokens_were_taken_is_not_kept_after() -> None:
    cache = PrincipalCache()
    before = cache.cleared
    cache.clear()
    cache.put(b"digest", ADMIN, before)
    assert cache.get(b"digest") is None
    cache.put(b"digest", ADMIN, cache.cleared)
    assert cache.get(b"digest") is ADMIN


def test_beside_other_processes_nothing_is_known(store: Store) -> None:
    secret = secret_of(store)
    store.bearer(secret)
    assert is_known(store, secret) == (store.engine.dialect.name == "sqlite")
