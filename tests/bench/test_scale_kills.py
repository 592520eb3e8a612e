"""Services, controllers and connections are killed under writes, and a write that is lost is counted."""

from __future__ import annotations

from typing import Any

import pytest
from patience import PATIENCE_S
from store.postgres_cluster import running

from orchestrator.bench.scale import kills
from orchestrator.bench.scale.kills import AcknowledgedWrite, count_lost
from orchestrator.client.acls import AclCalls
from orchestrator.client.records import Written


@pytest.mark.parametrize(
    ("port", "held", "lost"),
    [
        pytest.param(80, 7, 0, id="as it was written"),
        pytest.param(81, 8, 0, id="written again since"),
        pytest.param(79, 8, 1, id="older in the database"),
        pytest.param(80, 6, 1, id="held by no point"),
    ],
)
def test_a_write_is_lost_where_it_is_not_stored_or_not_held(port: int, held: int, lost: int) -> None:
    written = [AcknowledgedWrite("east", "r1", 80, 7, 0.0)]
    assert count_lost(written, {"east": {"r1": port}}, {"east": held}) == lost


def test_a_write_to_a_rule_or_domain_that_is_gone_is_lost() -> None:
    written = [AcknowledgedWrite("east", "r1", 80, 7, 0.0), AcknowledgedWrite("east", "r2", 81, 8, 0.0)]
    assert count_lost(written, {"east": {"r2": 81}}, {"east": 8}) == 1
    assert count_lost(written, {"east": {"r1": 80, "r2": 81}}, {}) == 2


def test_each_part_is_killed_under_writes_and_the_one_write_that_is_lost_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the database has ended all sessions, one write is acknowledged that no service was sent."""
    put_rule, end_sessions = AclCalls.put_rule, kills._end_sessions
    answered: list[Written] = []
    planted: list[Written] = []

    def put_or_lose(self: AclCalls, *said: Any, **more: Any) -> Written:
        if planted:
            return planted.pop()
        answered.append(put_rule(self, *said, **more))
        return answered[-1]

    def end_sessions_and_plant(url: str) -> None:
        end_sessions(url)
        planted.append(answered[0])

    monkeypatch.setattr(AclCalls, "put_rule", put_or_lose)
    monkeypatch.setattr(kills, "_end_sessions", end_sessions_and_plant)
    monkeypatch.setattr(kills, "_GOES_ON_S", 0.2)
    with running() as cluster:
        found = kills.measure(cluster.create_database("kills"), domains=9, turn=1)
    assert not planted
    assert found.written > 30
    assert (found.lost_controller, found.lost_connections, found.lost_service) == (0, 1, 0)
    for part in ("controller", "connections", "service"):
        assert 0 < getattr(found, f"published_{part}_s") < PATIENCE_S
        assert 0 < getattr(found, f"enforced_{part}_s") < PATIENCE_S
    assert found.enforced_controller_s > 1.0, "nobody else led the killed one's switches"
