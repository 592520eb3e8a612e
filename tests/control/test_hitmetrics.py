"""What Prometheus is told of counts: few series, which name nobody and never fall."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from orchestrator.control.gauges import HitMetrics
from orchestrator.errors import TryAgain
from orchestrator.program.program import Tier
from orchestrator.store.hits.rules import Decider, HitSum


class Store:
    """Where the collector reads: a domain's sums as a test sets them."""

    def __init__(self) -> None:
        self.sums: list[HitSum] = []
        self.is_away = False

    def read(self, work: Callable[[Any], Any]) -> Any:
        if self.is_away:
            raise TryAgain("locked")
        hits = SimpleNamespace(sums=lambda _domain: tuple(self.sums))
        placements = SimpleNamespace(how_many_lifted=lambda _domain: 2, every_domain=lambda: (("pop", None),))
        return work(SimpleNamespace(hits=hits, placements=placements))

    write = read

    def rules(self, packets: int) -> None:
        self.sums = [HitSum(Tier.HOST, Decider.RULE, packets, 100 * packets, 1)]


def told(registry: CollectorRegistry) -> dict[str, float]:
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_sums_are_told_by_domain_tier_and_decider_and_never_fall() -> None:
    store, registry = Store(), CollectorRegistry()
    store.rules(10)
    registry.register(HitMetrics(store))
    series = 'aclflow_counted_packets_total{by="rule",domain="pop",tier="host"}'
    assert told(registry) == {
        series: 10,
        series.replace("packets", "octets"): 1000,
        series.replace("packets", "resets"): 1,
        'aclflow_lifted_rules{domain="pop"}': 2,
    }
    shown = []
    for packets in (12, 4, 9, 5, 6):  # a tenant went, twice
        store.rules(packets)
        shown.append(told(registry)[series])
    assert shown == [12, 12, 17, 17, 18]


def test_a_store_that_does_not_answer_is_left_out() -> None:
    store, registry = Store(), CollectorRegistry()
    registry.register(HitMetrics(store))
    store.is_away = True
    assert told(registry) == {}
