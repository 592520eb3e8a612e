"""Replay a load against `decide`: the fleet's size, carried and lost packets.

Time goes in steps. In each, VNFs that were asked for long enough ago begin to serve (or fail, where the scenario says
so), those that leave go, the load is spread evenly, what the serving ones cannot carry is lost, and every `interval_s`
a decision is made on what was seen so far. The same scenario gives the same outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.errors import BadInput
from orchestrator.scaling.capacity import CapacityModel
from orchestrator.scaling.decide import MOST_SAMPLES, Decision, Fleet, History, Limits, Load, Sample, decide

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load and the cloud that meets it.

    `pps` is the load in each step of `step_s` seconds.

    A VNF serves `serves_after_s` after it was asked for; the creations of these ordinal numbers (from 0) fail instead.
    It leaves `drains_s` after it was told to.
    """

    pps: F64
    step_s: float = 1.0
    packet_bytes: float = 512.0
    rules: int = 2000
    start: int = 1
    interval_s: float = 5.0
    serves_after_s: float = 3.0
    drains_s: float = 10.0
    failing: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.step_s <= 0 or self.interval_s < self.step_s:
            raise BadInput(f"steps of {self.step_s} s and decisions every {self.interval_s} s do not go together")
        if self.pps.ndim != 1 or not np.isfinite(self.pps).all() or (self.pps < 0).any():
            raise BadInput("a load is a row of rates, none below zero", place="pps")


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The outcome, one value a step; `decisions` lists the changes with times in seconds."""

    serving: I64
    size: I64
    capacity_pps: F64
    carried_pps: F64
    lost_pps: F64
    decisions: tuple[tuple[float, Decision], ...]

    @property
    def lost_share(self) -> float:
        """The share of all offered packets that was lost."""
        offered = float((self.lost_pps + self.carried_pps).sum())
        return float(self.lost_pps.sum()) / offered if offered else 0.0


@dataclass(slots=True)
class _Cloud:
    """The VNFs while time goes on."""

    serving: int
    coming: list[tuple[float, bool]]
    leaving: list[float]
    grew: list[float]
    shrank: list[float]
    failed: list[float]
    made: int = 0

    def passes(self, now_s: float) -> None:
        """Apply arrivals, failures and departures due by `now_s`."""
        due = [will_serve for at_s, will_serve in self.coming if at_s <= now_s]
        self.coming = [each for each in self.coming if each[0] > now_s]
        self.serving += sum(due)
        self.failed += [now_s] * (len(due) - sum(due))
        self.leaving = [at_s for at_s in self.leaving if at_s > now_s]

    def resize_group(self, size: int, now_s: float, scenario: Scenario) -> None:
        for _ in range(size - self.serving - len(self.coming)):
            self.coming.append((now_s + scenario.serves_after_s, self.made not in scenario.failing))
            self.made += 1
            self.grew.append(now_s)
        for _ in range(self.serving + len(self.coming) - size):
            self.serving -= 1
            self.leaving.append(now_s + scenario.drains_s)
            self.shrank.append(now_s)


def simulate(scenario: Scenario, model: CapacityModel, limits: Limits) -> Outcome:
    """Replay a scenario."""
    each_pps = model.rate_pps(scenario.rules, scenario.packet_bytes)
    cloud = _Cloud(scenario.start, [], [], [], [], [])
    steps = len(scenario.pps)
    serving, size = np.zeros(steps, np.int64), np.zeros(steps, np.int64)
    samples: list[Sample] = []
    decisions: list[tuple[float, Decision]] = []
    next_s = 0.0
    for step, pps in enumerate(scenario.pps.tolist()):
        now_s = step * scenario.step_s
        cloud.passes(now_s)
        if now_s >= next_s:
            samples.append(Sample(now_s, pps))
            next_s += scenario.interval_s
            decision = _decide_size(cloud, samples, scenario, model, limits, now_s)
            if decision.size != cloud.serving + len(cloud.coming):
                decisions.append((now_s, decision))
                cloud.resize_group(decision.size, now_s, scenario)
        serving[step], size[step] = cloud.serving, cloud.serving + len(cloud.coming)
    capacity = np.asarray(serving * each_pps, np.float64)
    carried = np.asarray(np.minimum(scenario.pps, capacity), np.float64)
    return Outcome(serving, size, capacity, carried, scenario.pps - carried, tuple(decisions))


def _decide_size(
    cloud: _Cloud, samples: Sequence[Sample], scenario: Scenario, model: CapacityModel, limits: Limits, now_s: float
) -> Decision:
    kept = int(max(MOST_SAMPLES, limits.peak_s / scenario.interval_s + 1))
    load = Load(tuple(samples[-kept:]), scenario.packet_bytes, scenario.rules)
    fleet = Fleet(cloud.serving, len(cloud.coming), len(cloud.leaving))
    history = History(tuple(cloud.grew), tuple(cloud.shrank), tuple(cloud.failed))
    return decide(load, fleet, model, limits, history, now_s)
