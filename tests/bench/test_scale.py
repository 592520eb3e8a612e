"""A small world of the suite `scale`: every kind of change is made, enforced by simulated points, and measured."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
from store.postgres_cluster import running

from orchestrator.bench.results import Results
from orchestrator.bench.scale import services, suite, wholeservices
from orchestrator.bench.scale.domains import Load, measure
from orchestrator.bench.scale.scaledomain import Cost, Size, open_world
from orchestrator.errors import BadInput


def test_every_kind_of_change_is_enforced_and_measured() -> None:
    with open_world(Size(tenants=4, rules=3, hosts=2, agents=2)) as world:
        cost = world.measure(1)
    assert all(value > 0 for value in asdict(cost).values())


def test_ratios_are_those_of_pairs_and_bear_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Size] = []

    def measured(size: Size, _: int) -> Cost:
        asked.append(size)
        grows = size.tenants + size.hosts + size.agents
        return Cost(
            *[float(grows)] * 6, ready_s=1.0, ready_cpu_s=1.0, peak_mib=512.0, ready_again_s=0.5, ready_again_cpu_s=0.5
        )

    sizes = suite.Sizes(2, 300, 90, 60, Size(10, 100, 1, 0), Load(10, 10))
    monkeypatch.setattr(suite, "measure_apart", measured)
    results: Results = suite.measure(sizes, lambda *_, **__: None)
    assert results.figures["cpu_add_tenant_at_300_vs_100"].median == (300 + 10) / (100 + 10)
    assert results.figures["cpu_add_host_at_90_vs_10"].median == (100 + 90) / (100 + 10)
    assert results.figures["cpu_one_rule_agents_at_60_vs_10"].median == 61 / 11
    assert results.figures["rss_gib_1k_rules"].median == 0.5
    assert results.figures["ready_s_1k_rules"].median == 0.5
    assert results.figures["ready_cold_s_1k_rules"].median == 1.0
    assert len(asked) == 13
    assert not results.figures.keys() & results.absent.keys()


def test_a_run_that_was_cut_off_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same figures come out, and no world is measured twice, however often it is stopped."""
    asked: list[Size] = []
    sizes = suite.Sizes(2, 300, 90, 60, Size(10, 100, 1, 0), Load(10, 10))

    def measured(size: Size, _: int, most: int | None = None) -> Cost:
        if most is not None and len(asked) >= most:
            raise KeyboardInterrupt
        asked.append(size)
        grows = size.tenants + size.hosts + size.agents + len(asked)
        return Cost(
            *[float(grows)] * 6, ready_s=1.0, ready_cpu_s=1.0, peak_mib=512.0, ready_again_s=0.5, ready_again_cpu_s=0.5
        )

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
