"""Answers kept for idempotency keys, in a transaction of a domain's part: keys and room are free after their time."""

from __future__ import annotations

import pytest
from store.conftest import FakeWall

from orchestrator.errors import TooOften
from orchestrator.store import Store
from orchestrator.store.records import Reply, Role
from orchestrator.store.transaction import domain_part

DONE = Reply(201, {}, b"done")


@pytest.fixture
def token(store: Store) -> int:
    with store.write() as unit:
        unit.domains.create("d")
        return unit.tokens.create(Role.ADMIN).record.id


def keep(store: Store, token: int, key: str) -> None:
    """Do what is asked for the first time with a key."""
    with store.write(part=domain_part("d")) as unit:
        assert unit.replies.find(token, key, b"request") is None
        unit.replies.keep(token, key, b"request", DONE)


def test_a_key_is_free_again_after_its_answers_time(store: Store, wall: FakeWall, token: int) -> None:
    for _ in range(2):
        keep(store, token, "key")
        with store.read() as unit:
            assert unit.replies.find(token, "key", b"request") == DONE
        wall.move(hours=25)


def test_old_answers_take_no_room(store: Store, wall: FakeWall, token: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.store.replies.MOST_KEPT", 2)
    for key in "ab":
        keep(store, token, key)
    with pytest.raises(TooOften):
        keep(store, token, "c")
    wall.move(hours=25)
    keep(store, token, "c")
