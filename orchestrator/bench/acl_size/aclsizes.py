"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from orchestrator.bench.traffic.gauges import Load

PAPER_COUNTS = (250, 500, *range(1_000, 20_001, 1_000))
"""The paper's 22 numbers of rules."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of rules, rounds of everything, and the load.

    `pairs` are further turns of the shortest and the longest list alone, `libc_pairs` such of a switch that allocates
    with the C library.
    """

    counts: tuple[int, ...]
    rounds: int
    pairs: int
    libc_pairs: int
    load: Load
    step_s: float
    """The time of a measurement, with its list's loading and the checks of its verdicts, on two cores of 2025."""

    @classmethod
    def quick(cls) -> Self:
        load = Load(connections=1_024, at_once=64, seconds=1, trips=30, sources=10)
        return cls((250, 2_000, 20_000), rounds=3, pairs=15, libc_pairs=5, load=load, step_s=2.7)

    @classmethod
    def full(cls) -> Self:
        load = Load(connections=4_096, at_once=64, seconds=1, trips=100, sources=30)
        return cls(PAPER_COUNTS, rounds=15, pairs=30, libc_pairs=15, load=load, step_s=4.7)
