"""Prometheus metrics of edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestrator.control.pops.edges import EdgeReport

_COUNTS = {
    "chunks": "Chunks that are somebody's",
    "lines": "Lines that stand",
    "exceptions": "Chunks with an entry of their own",
    "stale": "Chunks that lines hold and that are nobody's any more",
    "misdirected": "Chunks that reach a wrong firewall server",
    "draw": "How often lines were built anew",
}


class EdgeMetrics(Collector):
    """The edges of a service as they were compiled last, whenever somebody looks."""

    def __init__(self, reports: Callable[[], Mapping[str, EdgeReport]]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield gauges by domain and IP version, and heavy hitters' entries."""
        reports = self._reports()
        for name, says in _COUNTS.items():
            gauge = GaugeMetricFamily(f"aclflow_edge_{name}", says, labels=["domain", "family"])
            for domain, report in reports.items():
                for family, lines in report.lines.items():
                    gauge.add_metric([domain, f"ipv{family.value}"], getattr(lines, name))
            yield gauge
        heavy = GaugeMetricFamily("aclflow_edge_heavy_entries", "Entries of heavy hitters", labels=["domain"])
        for domain, report in reports.items():
            heavy.add_metric([domain], len(report.heavy.rows))
        yield heavy
