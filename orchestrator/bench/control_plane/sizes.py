"""How much is measured, and how a ratio of paired runs is written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.policy.model import TenantId

TENANT = TenantId("lab")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rounds of whole lists, single changes at each size, and rounds of long measurements.

    `downloads` are the connections of one run.
    """

    rounds: int
    changes: int
    slow_rounds: int
    rules: int = 20_000
    scales: tuple[int, ...] = (1_000, 20_000, 100_000)
    members: int = 10_000
    downloads: int = 5_000

    @classmethod
    def quick(cls) -> Self:
        return cls(rounds=5, changes=20, slow_rounds=2)

    @classmethod
    def full(cls) -> Self:
        return cls(rounds=15, changes=60, slow_rounds=3)


def name_of(rules: int) -> str:
    """A size as figures are named: 20000 is 20k."""
    return f"{rules // 1000}k"


def record_ratio(
    results: Results,
    name: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    baseline: tuple[str, str],
    target: Target | None = None,
) -> None:
    """Record a ratio of paired runs, and both sides in seconds.

    `baseline` is its short name and what it is.
    """
    short, long = baseline
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    results.figures[f"{name}_vs_{short}"] = Figure.of(ratios, "ratio", target)
    results.figures.setdefault(f"{name}_s", Figure.of(ours, "s"))
    results.figures[f"{name}_{short}_s"] = Figure.of(theirs, "s")
    rounds = tuple(float(turn) for turn in range(1, len(ours) + 1))
    for side, values in (("aclflow", ours), (long, theirs)):
        results.series.append(Series(side, rounds, tuple(values), "round", f"{name} vs {short} seconds (s)"))
