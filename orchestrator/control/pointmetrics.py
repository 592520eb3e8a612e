"""Prometheus metrics of enforcement points: hosts behind, and seconds of silence.

They are read at each scrape.

Everybody who reaches the service may read this, so no host is named and enforcers are numbers: `aclflow domain show`
names them to operators.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestrator.control.timekeeper import Units
from orchestrator.errors import TryAgain
from orchestrator.store.points.records import Heard


class PointMetrics(Collector):
    """Collects hosts' state from the store.

    `units` are where the store is read. Hosts that nobody ever spoke for have no time at which they were heard.
    """

    def __init__(self, units: Units) -> None:
        self._units = units

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Every domain's hosts; none while the store does not answer."""
        found = self._found()
        behind = GaugeMetricFamily(
            "aclflow_hosts_behind", "Hosts that do not hold the newest generation", labels=["domain"]
        )
        for domain in dict.fromkeys(each.domain for each in found):
            behind.add_metric([domain], sum(each.domain == domain and each.is_behind for each in found))
        yield behind
        heard = GaugeMetricFamily(
            "aclflow_points_heard_timestamp_seconds",
            "When an enforcer that speaks for hosts was last heard, by its number",
            labels=["domain", "enforcer"],
        )
        times = {(each.domain, each.enforcer): each.heard.timestamp() for each in found if each.heard is not None}
        for (domain, enforcer), time in times.items():
            heard.add_metric([domain, str(enforcer)], time)
        yield heard

    def _found(self) -> tuple[Heard, ...]:
        try:
            return self._units.read(lambda unit: unit.enforcers.heard())
        except TryAgain:
            return ()
