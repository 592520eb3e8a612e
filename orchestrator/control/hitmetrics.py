"""Prometheus metrics of counts by domain, tier and decider, read at each scrape.

So the series stay few.

Whoever reaches the service may read them, so they name no tenant and no rule: these are told by REST to who may know.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestrator.control.timekeeper import Units
from orchestrator.errors import TryAgain
from orchestrator.store.hits.sums import HitSum
from orchestrator.store.unit import Unit

_LABELS = ("domain", "tier", "by")
_COUNTED = {
    "packets": "Packets decided",
    "octets": "Octets of the packets decided",
    "resets": "Counters of switches that began anew without having been read just before",
}
_Found = dict[str, tuple[tuple[HitSum, ...], int]]
_Series = tuple[str, str, str, str]


class HitMetrics(Collector):
    """Collects counts from the store.

    `units` are where the store is read.

    What a tenant counted goes with it when it is deleted; that a sum falls then is not shown, for whoever takes rates
    of a counter would read it as a beginning anew.
    """

    def __init__(self, units: Units) -> None:
        self._units = units
        self._shown: dict[_Series, tuple[int, int]] = {}
        """Of each series: the sum when it was last read, and what is added to it."""

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield every domain's sums and lifted rules; nothing while the store is away."""
        found = self._found()
        for name, says in _COUNTED.items():
            family = CounterMetricFamily(f"aclflow_counted_{name}", says, labels=_LABELS)
            for domain, (sums, _) in found.items():
                for each in sums:
                    labels = (domain, each.tier.value, each.decider.value)
                    family.add_metric(labels, self._growing((name, *labels), getattr(each, name)))
            yield family
        lifted = GaugeMetricFamily("aclflow_lifted_rules", "Rules decided ahead of their lists", labels=["domain"])
        for domain, (_, rules) in found.items():
            lifted.add_metric([domain], rules)
        yield lifted

    def _growing(self, series: _Series, value: int) -> int:
        before, added = self._shown.get(series, (value, 0))
        added += max(before - value, 0)
        self._shown[series] = value, added
        return value + added

    def _found(self) -> _Found:
        def work(unit: Unit) -> _Found:
            return {
                domain: (unit.hits.sums(domain), unit.placements.how_many_lifted(domain))
                for domain, _ in unit.placements.every_domain()
            }

        try:
            return self._units.read(work)
        except TryAgain:
            return {}
