"""A small world of the suite `scale`: every kind of change is made, enforced by simulated points, and measured."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from store.postgres_cluster import running

from orchestrator.bench.results import Results
from orchestrator.bench.scale import domains, kills, listpages, services, suite, wholeservices
from orchestrator.bench.scale.domains import DATABASE, Latency, Load, measure
from orchestrator.bench.scale.kills import KillCost
from orchestrator.bench.scale.listpages import PageCost
from orchestrator.bench.scale.scaledomain import Cost, Size, World, measure_in, open_world
from orchestrator.errors import BadInput

SIZES = suite.Sizes(2, 300, 90, 60, Size(10, 100, 1, 0), Load(10, 10))
PAGES = PageCost(1.0, 2.0, 3.0, 6.0, 5.0, 4.0, first_search_s=7.0)


def cost(grows: float) -> Cost:
    """The costs of a world in which everything grows alike."""
    return Cost(
        *[grows] * 6,
        ready_s=1.0,
        ready_cpu_s=1.0,
        peak_mib=512.0,
        ready_again_s=0.5,
        ready_again_cpu_s=0.5,
        all_enforced_s=grows,
    )


@pytest.fixture(autouse=True)
def _no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATABASE, raising=False)


def test_every_kind_of_change_is_enforced_and_measured() -> None:
    with open_world(Size(tenants=4, rules=3, hosts=2, agents=2)) as world:
        found = world.measure(1)
    assert all(value > 0 for value in asdict(found).values())


def test_a_rule_is_enforced_when_the_last_agent_has_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    report, late_s = World._report_enforced, 0.1

    def report_late(self: World, *said: Any) -> None:
        time.sleep(late_s)
        report(self, *said)

    with open_world(Size(tenants=1, rules=3, hosts=0, agents=3)) as world:
        monkeypatch.setattr(World, "_report_enforced", report_late)
        found = world.measure(1)
    assert found.all_enforced_s >= 3 * late_s


def test_ratios_are_those_of_pairs_and_bear_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Size] = []

    def measured(size: Size, _: int) -> Cost:
        asked.append(size)
        return cost(float(size.tenants + size.hosts + size.agents))

    def measured_start(size: Size) -> Mapping[str, float]:
        return {**asdict(measured(size, 1)), **asdict(PAGES)}

    monkeypatch.setattr(suite, "measure_apart", measured)
    monkeypatch.setattr(suite, "_measure_start", measured_start)
    results: Results = suite.measure(SIZES, lambda *_, **__: None)
    assert results.figures["cpu_add_tenant_at_300_vs_100"].median == (300 + 10) / (100 + 10)
    assert results.figures["cpu_add_host_at_90_vs_10"].median == (100 + 90) / (100 + 10)
    assert results.figures["cpu_one_rule_agents_at_60_vs_10"].median == 61 / 11
    assert results.figures["all_enforced_60_agents_s"].median == 61
    assert not results.figures["all_enforced_60_agents_s"].is_met
    assert results.figures["rss_gib_1k_rules"].median == 0.5
    assert results.figures["ready_s_1k_rules"].median == 0.5
    assert results.figures["ready_cold_s_1k_rules"].median == 1.0
    assert results.figures["page_ms_1k_rules"].median == 3.0
    assert results.figures["search_ms_1k_rules"].median == 6.0
    assert results.figures["search_hits_ms_1k_rules"].median == 5.0
    assert results.figures["first_search_s_1k_rules"].median == 7.0
    assert len(asked) == 13
    assert not results.figures.keys() & results.absent.keys()
    for part in ("service", "controller", "connections"):
        assert DATABASE in results.absent[f"lost_writes_kill_{part}"]
        assert DATABASE in results.absent[f"publish_s_after_kill_{part}"]


def test_a_run_that_was_cut_off_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same figures come out, and no world is measured twice, however often it is stopped."""
    asked: list[Size] = []
    sizes = SIZES

    def measured(size: Size, _: int, most: int | None = None) -> Cost:
        if most is not None and len(asked) >= most:
            raise KeyboardInterrupt
        asked.append(size)
        return cost(float(size.tenants + size.hosts + size.agents + len(asked)))

    def measured_start(size: Size) -> Mapping[str, float]:
        return {**asdict(suite.measure_apart(size, 1)), **asdict(PAGES)}

    monkeypatch.setattr(suite, "_measure_start", measured_start)
    monkeypatch.setattr(suite, "measure_apart", measured)
    whole = suite.measure(sizes, lambda *_, **__: None)
    asked.clear()
    for most in (3, 4, 12):
        monkeypatch.setattr(suite, "measure_apart", partial(measured, most=most))
        with pytest.raises(KeyboardInterrupt):
            suite.measure(sizes, lambda *_, **__: None, journal=tmp_path / "journal")
    monkeypatch.setattr(suite, "measure_apart", measured)
    resumed = suite.measure(sizes, lambda *_, **__: None, journal=tmp_path / "journal")
    assert len(asked) == 13
    assert resumed.figures == whole.figures
    with pytest.raises(BadInput, match="another run"):
        suite.measure(replace(sizes, rounds=3), lambda *_, **__: None, journal=tmp_path / "journal")


def test_one_rule_is_measured_while_another_domain_is_filled() -> None:
    with running() as cluster:
        found = measure(cluster.create_database("scale"), Load(changes=40, rules=200))
    assert found.quiet_p99_ms > 0
    assert found.bulk_p99_ms > 0
    assert found.bulk_lists >= 2


def test_changes_are_shared_by_two_services_and_one_idles() -> None:
    with running() as cluster:
        found = services.measure(cluster.create_database("shared"), domains=2, changes=8)
    assert all(value > 0 for value in asdict(found).values())


def test_changes_over_https_are_shared_by_two_whole_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wholeservices, "RESTS_S", 0.1)
    with running() as cluster:
        found = wholeservices.measure(cluster.create_database("whole"), domains=2, changes=8)
    assert all(value > 0 for value in asdict(found).values())


# ------------------------------------------------------------------------------------------------ with a database


def kill_cost(turn: int) -> KillCost:
    """The costs of a round: in the first one a write is lost when the service is killed."""
    return KillCost(100.0, 0.0, 0.1, 3.0, 0.0, 0.5 + turn, 1.0, 1.0 - turn, 0.2, 0.3)


def test_a_write_that_one_round_loses_is_in_the_figure_and_every_step_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[tuple[int, int]] = []

    def measured_kills(_: str, *, domains: int, turn: int) -> KillCost:
        return kill_cost(turn)

    def progress(_: str, *, done: int = 0, total: int = 0) -> None:
        said.append((done, total))

    monkeypatch.setenv(DATABASE, "postgresql+psycopg://nowhere/none")
    monkeypatch.setattr(suite, "measure_apart", lambda *_: cost(1.0))
    monkeypatch.setattr(suite, "_measure_start", lambda _: {**asdict(cost(1.0)), **asdict(PAGES)})
    monkeypatch.setattr(domains, "measure", lambda *_: Latency(1.0, 2.0, 2.0))
    monkeypatch.setattr(services, "measure", lambda *_, **__: services.Share(1.0, 1.0, 1.0, 1.0))
    monkeypatch.setattr(wholeservices, "measure", lambda *_, **__: wholeservices.WholeShare(1.0, 1.0))
    monkeypatch.setattr(kills, "measure", measured_kills)
    results = suite.measure(SIZES, progress, journal=tmp_path / "journal")
    assert said == [(number, 20) for number in range(20)]
    assert not results.absent
    assert results.figures["acknowledged_writes_around_kills"].median == 200
    assert {part: results.figures[f"lost_writes_kill_{part}"].median for part in suite._KILLED} == {
        "service": 1, "controller": 0, "connections": 0
    }  # fmt: skip
    assert not results.figures["lost_writes_kill_service"].is_met
    assert results.figures["publish_s_after_kill_service"].is_met
    assert results.figures["publish_s_after_kill_connections"].high == 1.5
    monkeypatch.delenv(DATABASE)
    monkeypatch.setattr(kills, "measure", lambda *_, **__: pytest.fail("it was measured again"))
    again = suite.measure(SIZES, progress, journal=tmp_path / "journal")
    assert again.figures == results.figures
    assert said[20:] == said[:20]


def test_every_measurement_of_a_database_finds_room_in_the_same_one() -> None:
    """Their tenants own different prefixes."""
    with running() as cluster:
        url = cluster.create_database("together")
        measure(url, Load(changes=4, rules=10))
        for name, count, first in (
            ("share", suite._SHARED_DOMAINS, services._FIRST),
            ("whole", suite._SHARED_DOMAINS, wholeservices._FIRST),
            ("kill", suite._KILL_DOMAINS, kills._FIRST),
        ):
            services.fill_store(url, [f"{name}-{number}" for number in range(count)], first)


def test_pages_and_searches_of_a_world_are_timed_and_a_late_one_is_seen_in_its_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    size, late_ms, read = Size(tenants=4, rules=3, hosts=1, agents=0), 300.0, listpages.Transport.read

    def read_late(self: listpages.Transport, path: str, **query: Any) -> Any:
        if query.get("sort") == "last_hit" and path.startswith("/v1/domains"):
            time.sleep(late_ms / 1000)
        return read(self, path, **query)

    measure_in(tmp_path, size, 1)
    monkeypatch.setattr(listpages.Transport, "read", read_late)
    found = listpages.measure(tmp_path, size)
    assert all(value > 0 for value in asdict(found).values())
    assert found.page_hits_ms >= late_ms
    assert max(found.page_lists_ms, found.page_events_ms) < found.page_hits_ms
