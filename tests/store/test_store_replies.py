"""Answers kept for idempotency keys, in a transaction of a domain's part: keys and room are free after their time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from patience import until
from sqlalchemy import text
from store.conftest import FakeWall

from orchestrator.errors import Conflict, TooOften
from orchestrator.store import Store
from orchestrator.store.records import Reply, Role
from orchestrator.store.sql.database import lock_log
from orchestrator.store.transaction import domain_part

DONE = Reply(201, {}, b"done")


@pytest.fixture
def token(store: Store) -> int:
    with store.write() as unit:
        unit.domains.create("d")
        return unit.tokens.create(Role.ADMIN).record.id


def keep(store: Store, token: int, key: str, domain: str = "d") -> None:
    """Do what is asked for the first time with a key."""
    with store.write(part=domain_part(domain)) as unit:
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


WAITING = text("SELECT count(*) FROM pg_locks WHERE NOT granted")


def test_of_two_domains_that_use_a_key_at_once_one_is_answered(
    store: Store, open_another: Callable[..., Store], token: int
) -> None:
    """The second finds no answer, for the first is under way: it waits for it, and neither makes it twice."""
    if store.is_alone:
        pytest.skip("SQLite has one writer")
    other = open_another()
    outcome: list[object] = []

    def second() -> None:
        try:
            with other.write(part=domain_part("e")) as unit:
                outcome.append(unit.replies.find(token, "key", b"another"))
                unit.replies.keep(token, "key", b"another", DONE)
        except Conflict as error:
            outcome.append(error)

    writer = threading.Thread(target=second)
    with store.engine.connect() as looking:
        with store.write(part=domain_part("d")) as unit:
            assert unit.replies.find(token, "key", b"request") is None
            unit.replies.keep(token, "key", b"request", DONE)
            writer.start()
            until(lambda: looking.execute(WAITING).scalar_one())
        writer.join()
    assert outcome[0] is None
    assert "another request" in str(outcome[1])
    with other.write(part=domain_part("e")) as unit, pytest.raises(Conflict, match="another request"):
        unit.replies.find(token, "key", b"another")
    with store.read() as unit:
        assert unit.replies.find(token, "key", b"request") == DONE


def test_a_key_that_is_used_again_and_what_forgets_old_ones_do_not_wait_for_each_other(
    store: Store, open_another: Callable[..., Store], wall: FakeWall, token: int
) -> None:
    """One holds the old answer and waits for the log; the other has the log and would take the old answer out."""
    if store.is_alone:
        pytest.skip("SQLite has one writer")
    keep(store, token, "nightly")
    wall.move(hours=25)
    other = open_another()
    with store.engine.connect() as looking, other.engine.connect() as log:
        log.begin()
        lock_log(log)
        failures: list[Exception] = []

        def work(of: Store, key: str, domain: str) -> None:
            try:
                keep(of, token, key, domain)
            except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                failures.append(error)

        writers = [threading.Thread(target=work, args=each) for each in ((store, "new", "d"), (other, "nightly", "e"))]
        for place, writer in enumerate(writers, 1):  # the lock is given to them in this order
            writer.start()
            until(lambda: looking.execute(WAITING).scalar_one() == place)  # noqa: B023
        log.rollback()
        for writer in writers:
            writer.join()
    assert failures == []
