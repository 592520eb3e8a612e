"""Statements that the driver is asked itself say what SQLAlchemy makes of them, on both databases."""

from __future__ import annotations

import datetime as dt

import pytest
from sqlalchemy import Row, literal, literal_column, select
from sqlalchemy.dialects import sqlite
from store.scenes import populate, rule

from orchestrator.errors import NotFound
from orchestrator.store import Store
from orchestrator.store.points.pointrecords import PointReport
from orchestrator.store.records import HostRecord
from orchestrator.store.sql.prepared import Prepared
from orchestrator.store.transaction import Transaction
from orchestrator.wire.points import PointState


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[Prepared]:
    """The queries that were asked, each of them both ways."""
    found: set[Prepared] = set()
    plain = Transaction.rows

    def both_ways(self: Transaction, statement: Prepared, /, **parameters: object) -> list[Row[tuple[object, ...]]]:
        rows = plain(self, statement, **parameters)
        query = statement.statement
        if statement.changes is None and not callable(query):
            answer = self.connection.execute(query, parameters)
            names, slow = list(answer.keys()), [tuple(row) for row in answer]
            assert [tuple(row) for row in rows] == slow
            assert [tuple(getattr(row, name) for name in names) for row in rows] == slow
            found.add(statement)
        return rows

    monkeypatch.setattr(Transaction, "rows", both_ways)
    return found


def test_queries_give_the_rows_that_sqlalchemy_gives(store: Store, asked: set[Prepared]) -> None:
    populate(store)
    with store.write() as unit:
        unit.domains.add_host("pop", HostRecord("h1", 71, "up"))
        later = unit.now + dt.timedelta(hours=1)
        enforcer = unit.enforcers.enrol(
            unit.enforcers.invite("pop", expires=later, author="t"), name="e", kind="openflow"
        )
    for version in range(1, 4):
        with store.write() as unit:
            unit.acls.put_rule("blue", rule(f"r{version}"), author="ann")
            unit.events.append("rule.changed", "blue", {"generation": unit.generations["pop"]})
        with store.write() as unit:
            point = PointReport("h1", unit.domains.get("pop").generation, bytes(16), PointState.ENFORCED)
            assert unit.enforcers.report(enforcer.enforcer.id, [point], sequence=version)
            assert unit.enforcers.standing("pop").is_done(point.generation)
            assert not unit.enforcers.enforced_state("pop", point.generation + 1).done
            assert len(unit.enforcers.points("pop")) == 1
    assert len(asked) > 8


def test_what_a_change_returns_is_remembered_as_it_is_then(store: Store) -> None:
    populate(store)
    with store.write() as unit:
        before = unit.acls.version("blue"), unit.domains.get("pop").generation
        change = unit.acls.put_rule("blue", rule("new"), author="ann")
        assert (unit.acls.version("blue"), unit.domains.get("pop").generation) == (change.version, change.generation)
        assert change.version > before[0]
        assert change.generation > before[1]
        unit.tenants.rename("blue", "Azure")
        assert unit.tenants.get("blue").name == "Azure"


def test_a_statement_that_failed_spends_its_transaction(store: Store) -> None:
    broken = Prepared(select(literal_column("nonsense")))
    with pytest.raises(Exception, match="nonsense"), store.write() as unit:
        unit.transaction.rows(broken)
    with store.write() as unit, pytest.raises(NotFound):
        unit.tenants.get("nobody")


def test_a_prepared_statement_has_no_values_of_its_own() -> None:
    with pytest.raises(ValueError, match="only parameters"):
        Prepared(select(literal(7).label("seven"))).compile(sqlite.dialect())
