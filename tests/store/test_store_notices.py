"""Listeners hear of commits, of this process and of others, and of nothing else."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import psycopg
import pytest
from patience import PATIENCE_S, until
from sqlalchemy import Connection, create_engine
from store.postgres_cluster import Cluster
from store.scenes import populate, rule

from orchestrator.errors import Unreachable
from orchestrator.store import Store, open_store
from orchestrator.store.records import Committed
from orchestrator.store.sql.notices import CHANNEL, UNKNOWN, Notices


def test_a_listener_hears_of_commits(store: Store, address: str) -> None:
    heard: list[Committed] = []
    populate(store)

    def broken(_committed: Committed) -> None:
        raise ZeroDivisionError

    store.subscribe(broken)
    stop = store.subscribe(heard.append)
    if address.startswith("postgresql"):
        until(lambda: heard)
        assert heard.pop() == UNKNOWN  # listening has begun
    with store.write() as unit:
        unit.acls.put_rule("blue", rule("a"), author="ann")
        unit.events.append("change", "blue", {})
        event = unit.events.last_id()
        assert heard == []  # not before the commit
    assert heard == [Committed({"pop": 3}, event)]

    def fail() -> None:
        with store.write() as unit:
            unit.acls.put_rule("blue", rule("b"), author="ann")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.write() as unit:
        unit.tenants.rename("blue", "Quiet")
    with store.read() as unit:
        unit.acls.current("blue")
    stop()
    with store.write() as unit:
        unit.acls.put_rule("blue", rule("c"), author="ann")
    time.sleep(0.2)  # one's own notice, come back from PostgreSQL, is not heard twice
    assert len(heard) == 1


def test_another_process_is_heard_through_postgresql(cluster: Cluster) -> None:
    address = cluster.create_database("heard")
    writer, reader = open_store(address), open_store(address)
    populate(writer)
    heard: queue.Queue[Committed] = queue.Queue()
    reader.subscribe(heard.put)
    assert heard.get(timeout=PATIENCE_S) == UNKNOWN
    with writer.write() as unit:
        unit.acls.put_rule("blue", rule("a"), author="ann")
    assert heard.get(timeout=PATIENCE_S) == Committed({"pop": 3}, None)
    with cluster.connect() as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
    assert heard.get(timeout=PATIENCE_S) == UNKNOWN  # listening again, after what may have been missed
    with writer.write() as unit:
        for number in range(600):
            unit.domains.create(f"a-domain-of-quite-a-long-name-{number}")
            unit.domains.bump_generation(f"a-domain-of-quite-a-long-name-{number}")
    assert heard.get(timeout=PATIENCE_S) == UNKNOWN  # more domains than a notice holds
    reader.close()
    writer.close()


@pytest.mark.parametrize("notice_first", [True, False])
def test_a_commit_whose_answer_was_lost_is_heard_of_when_it_was_done(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *, notice_first: bool
) -> None:
    store = open_store(cluster.create_database(f"lost{notice_first}".lower()))
    populate(store)
    heard: queue.Queue[Committed] = queue.Queue()
    store.subscribe(heard.put)
    assert heard.get(timeout=PATIENCE_S) == UNKNOWN
    come, go_on = threading.Event(), threading.Event()
    hear, commit = Notices.hear, Connection.commit

    def heard_in_turn(notices: Notices, payload: str) -> None:
        assert notice_first or go_on.wait(PATIENCE_S)
        hear(notices, payload)
        come.set()

    def then_cut_off(connection: Connection) -> None:
        commit(connection)
        assert not notice_first or come.wait(PATIENCE_S)
        raise psycopg.OperationalError("the connection was cut off")

    monkeypatch.setattr(Notices, "hear", heard_in_turn)
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "commit", then_cut_off)
        with pytest.raises(Unreachable), store.write() as unit:
            unit.acls.put_rule("blue", rule("a"), author="ann")
    go_on.set()
    assert heard.get(timeout=PATIENCE_S) == Committed({"pop": 3}, None)
    with store.write() as unit:
        unit.acls.put_rule("blue", rule("b"), author="ann")
    assert heard.get(timeout=PATIENCE_S) == Committed({"pop": 4}, None)
    store.close()
    assert heard.empty(), "what was answered is heard once"


class _Saying:
    """A transaction that only says what it would tell others."""

    payload = ""

    def rows(self, _statement: object, *, channel: str, payload: str) -> None:
        assert channel == CHANNEL
        self.payload = payload


def _unconnected() -> Notices:
    return Notices(create_engine("postgresql+psycopg://"))


def test_an_answer_that_comes_while_the_notice_is_heard_leaves_nothing_behind() -> None:
    looked, answered = threading.Event(), threading.Event()

    class Unhurried(dict[int, object]):
        def __contains__(self, number: object) -> bool:
            found = super().__contains__(number)
            looked.set()
            answered.wait(0.2)
            return found

    notices, tx = _unconnected(), _Saying()
    notices.unanswered = Unhurried()  # type: ignore[assignment]
    with notices.announce(tx, Committed({"pop": 3}, None)):  # type: ignore[arg-type]
        hears = threading.Thread(target=notices.hear, args=(tx.payload,))
        hears.start()
        assert looked.wait(PATIENCE_S)
    answered.set()
    hears.join()
    assert notices.unanswered == {}


@pytest.mark.parametrize("payload", ["", "hello", "7", "{}", '{"from": "a", "number": 1, "domains": null}'])
def test_a_notice_that_nobody_can_read_says_that_something_may_have_been_missed(payload: str) -> None:
    notices, heard = Notices(create_engine("sqlite://")), list[Committed]()
    notices.subscribe(heard.append)
    notices.hear(payload)
    assert heard == [UNKNOWN]


def test_closing_is_quick_and_final(open_another: Callable[..., Store]) -> None:
    store = open_another()
    store.subscribe(lambda _committed: None)
    store.close()
