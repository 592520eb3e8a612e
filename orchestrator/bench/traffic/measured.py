"""Values as they come in, and the lines of plots that they make. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.bench.results import Figure, Series


class Metric(enum.Enum):
    """A measured quantity; the value names it on a plot's axis, with its unit."""

    REQUESTS = "HTTP requests a second (1/s)"
    CONNECTION = "time of a connection under load (ms)"
    PACKETS = "UDP packets a second (1/s)"
    PACKET_CPU = "switch CPU a packet (us)"
    RTT = "round trip in a known flow (ms)"
    FIRST_RTT = "round trip of a new flow (ms)"
    UPCALLS = "upcalls a connection (1)"
    LATER_UPCALLS = "upcalls a connection of the clients that come next (1)"
    MEGAFLOWS = "megaflows afterwards (1)"
    CPU = "switch CPU a connection (us)"

    @property
    def unit(self) -> str:
        return self.value.rpartition("(")[2].rstrip(")")


Sample = Mapping[Metric, float]
"""The values of one measurement."""


@dataclass(slots=True)
class Measured:
    """All values by way, number of rules (0: none) and metric, in order of rounds."""

    values: dict[tuple[str, int, Metric], list[float]] = field(default_factory=dict)

    def add(self, way: str, rules: int, sample: Sample) -> None:
        for metric, value in sample.items():
            self.values.setdefault((way, rules, metric), []).append(value)

    def join(self, other: Measured) -> None:
        """Take over what was measured apart, of other ways."""
        self.values.update(other.values)

    def of(self, way: str, rules: int, metric: Metric) -> Sequence[float]:
        """The values in the order of the rounds; empty if there are none."""
        return self.values.get((way, rules, metric), ())

    def series(self) -> list[Series]:
        """Return a series for each metric and each way measured at every number of rules."""
        counts = sorted({rules for _, rules, _ in self.values if rules})
        ways = dict.fromkeys(way for way, _, _ in self.values)
        pairs = [(metric, way) for metric in Metric for way in ways]
        return [
            self._make_series(way, metric, counts)
            for metric, way in pairs
            if all(self.of(way, rules, metric) for rules in counts)
        ]

    def _make_series(self, way: str, metric: Metric, counts: Sequence[int]) -> Series:
        figures = [Figure.of(self.of(way, rules, metric), metric.unit) for rules in counts]
        return Series(
            way, tuple(map(float, counts)), tuple(each.median for each in figures), "rules", metric.value,
            low=tuple(each.low for each in figures), high=tuple(each.high for each in figures),
        )  # fmt: skip


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Round by round; both were measured in every round."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]
