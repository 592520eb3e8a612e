"""Capacity of one firewall VNF: a model of the time per packet, fitted to measurements.

A packet costs a VNF some time, whatever it is; more for every rule that it is compared with, and for every byte that
is copied. One core that is busy all the time therefore carries

    rate = 1 / (base + per_rule * rules + per_octet * size)          [packets/s]

The three times are fitted by least squares on relative errors, none below zero: a measurement of 20 kpps that the
model misses by a tenth weighs as much as one of 200 kpps. How far the model can be trusted is told by leaving each
measurement out in turn and predicting it from the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.errors import BadInput

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement: with this many rules a VNF carried at most `pps` packets a second.

    Each packet had `octets` bytes.
    """

    rules: int
    octets: int
    pps: float

    def __post_init__(self) -> None:
        if self.rules < 0 or self.octets <= 0 or not 0 < self.pps < float("inf"):
            raise BadInput(f"{self.rules} rules, {self.octets} octets, {self.pps} packets/s is no measurement")


@dataclass(frozen=True, slots=True)
class CapacityModel:
    """Times a packet takes, in seconds. `version` identifies the model; `error` is its relative error.

    `error` is the 90th percentile over the measurements, each predicted without itself; None where there are too few to
    tell. `most_rules` is as far as was measured.
    """

    version: int
    base_s: float
    per_rule_s: float
    per_octet_s: float
    error: float | None
    most_rules: int

    def __post_init__(self) -> None:
        if min(self.base_s, self.per_rule_s, self.per_octet_s) < 0 or self.base_s + self.per_octet_s <= 0:
            raise BadInput("a packet takes some time, and nothing takes less than none")

    def rate_pps(self, rules: int, size: float) -> float:
        """Packets a second that one VNF carries, of packets of `size` bytes on average."""
        return 1.0 / (self.base_s + self.per_rule_s * rules + self.per_octet_s * size)

    def safe_rate_pps(self, rules: int, size: float) -> float:
        """Return the rate that holds even if the model errs by its known error."""
        return self.rate_pps(rules, size) * (1.0 - min(self.error or 0.0, 0.9))

    def busy(self, pps: float, rules: int, size: float) -> float:
        """Return the share of its time that one VNF needs; 1 is its capacity."""
        return pps / self.rate_pps(rules, size)

    def is_beyond(self, rules: int) -> bool:
        """Whether so many rules were never measured, so that the model only extends its line."""
        return rules > self.most_rules


def fit(measured: Sequence[Measured], *, version: int) -> CapacityModel:
    """The model of some measurements. Raises BadInput for none."""
    if not measured:
        raise BadInput("without a measurement there is no model")
    base, per_rule, per_octet = _times(measured)
    return CapacityModel(
        version, base, per_rule, per_octet, _prediction_error(measured), max(each.rules for each in measured)
    )


def _times(measured: Sequence[Measured]) -> tuple[float, float, float]:
    """Fit times, none negative: the best fit among subsets without a negative time."""
    columns = np.array([(1.0, each.rules, each.octets) for each in measured])
    rates = np.array([each.pps for each in measured])
    weighted = columns * rates[:, None]  # relative errors: rate * time should be 1
    best: tuple[float, F64] | None = None
    for kept in itertools.chain.from_iterable(itertools.combinations(range(3), size) for size in (3, 2, 1)):
        times = np.zeros(3)
        times[list(kept)] = np.linalg.lstsq(weighted[:, kept], np.ones(len(measured)), rcond=None)[0]
        if (times < 0).any() or times[0] + times[2] <= 0:
            continue
        missed = float(np.square(weighted @ times - 1.0).sum())
        if best is None or missed < best[0] * (1 - 1e-9):
            best = missed, times
    if best is None:  # one column of positive numbers always fits with a positive time
        raise BadInput("the measurements contradict each other")
    base, per_rule, per_octet = best[1].tolist()
    return base, per_rule, per_octet


def _prediction_error(measured: Sequence[Measured]) -> float | None:
    """The 90th percentile of the relative errors of rates predicted from the other measurements."""
    if len(measured) < 4:
        return None
    errors = []
    for index, each in enumerate(measured):
        others = [*measured[:index], *measured[index + 1 :]]
        base, per_rule, per_octet = _times(others)
        predicted = 1.0 / (base + per_rule * each.rules + per_octet * each.octets)
        errors.append(abs(predicted - each.pps) / each.pps)
    return float(np.quantile(errors, 0.9))
