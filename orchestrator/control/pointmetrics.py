"""Prometheus metrics of enforcement points: hosts behind, and seconds of silence.

They are read at each scrape.

Whoever reaches the service may read this, so no host is named: `aclflow domain show` names them to operators.
"""

from __future__ import annotations

import math
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
            "When the enforcer of the host that was silent longest was last heard",
            labels=["domain"],
        )
        oldest: dict[str, float] = {}
        for each in found:
            if each.heard is not None:
                oldest[each.domain] = min(each.heard.timestamp(), oldest.get(each.domain, math.inf))
        for domain, time in oldest.items():
            heard.add_metric([domain], time)
        yield heard

    def _found(self) -> tuple[Heard, ...]:
        try:
            return self._units.read(lambda unit: unit.enforcers.heard())
        except TryAgain:
            return ()
