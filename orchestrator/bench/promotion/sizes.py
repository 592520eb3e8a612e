"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from orchestrator.bench.acl_size.sizes import PAPER_COUNTS
from orchestrator.bench.traffic.gauges import Load


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of rules (the largest gives the figures), rounds, single lifts, and the load."""

    counts: tuple[int, ...]
    rounds: int
    lifts: int
    load: Load
    step_s: float
    """What a measurement takes, with its list's loading and the checks of its verdicts, on two cores of 2025."""

    @classmethod
    def quick(cls) -> Self:
        load = Load(connections=4_096, at_once=64, seconds=1, trips=30, sources=20)
        return cls((250, 2_000, 20_000), rounds=3, lifts=20, load=load, step_s=2.4)

    @classmethod
    def full(cls) -> Self:
        load = Load(connections=16_384, at_once=64, seconds=1, trips=100, sources=50)
        return cls(PAPER_COUNTS, rounds=15, lifts=60, load=load, step_s=4.7)
