"""A small world of the suite `scale`: every kind of change is made, enforced by simulated points, and measured."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from orchestrator.bench.results import Results
from orchestrator.bench.scale import suite
from orchestrator.bench.scale.world import Cost, Size, open_world


def test_every_kind_of_change_is_enforced_and_measured() -> None:
    with open_world(Size(tenants=4, rules=3, hosts=2, agents=2)) as world:
        cost = world.measure(1)
    assert all(value > 0 for value in asdict(cost).values())


def test_ratios_are_those_of_pairs_and_bear_their_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Size] = []

    def measured(size: Size, _: int) -> Cost:
        asked.append(size)
        grows = size.tenants + size.hosts + size.agents
        return Cost(*[float(grows)] * 6, ready_s=1.0, ready_cpu_s=1.0, peak_mib=512.0)

    sizes = suite.Sizes(2, 300, 90, 60, Size(10, 100, 1, 0))
    monkeypatch.setattr(suite, "measure_apart", measured)
    results: Results = suite.measure(sizes, lambda *_, **__: None)
    assert results.figures["cpu_add_tenant_at_300_vs_100"].median == (300 + 10) / (100 + 10)
    assert results.figures["cpu_add_host_at_90_vs_10"].median == (100 + 90) / (100 + 10)
    assert results.figures["cpu_one_rule_agents_at_60_vs_10"].median == 61 / 11
    assert results.figures["rss_gib_1k_rules"].median == 0.5
    assert len(asked) == 13
    assert not results.figures.keys() & results.absent.keys()
