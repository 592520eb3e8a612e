"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

PAPERS_MOST = 8_700_000
"""The pairs that the paper's model puts into a machine with 1,024 GB."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The set sizes, rounds, and seconds of each measurement.

    `singles` and `batch` are pairs added one by one and at once; `typed` is how often the command line tool adds one;
    `spread` is to how many pairs packets go where they are to miss the processor's caches; `general` are rules that are
    no pairs, measured in as many rounds. Over REST, `changes` pairs are added to a list that has `held`, and `burst`
    updates come from as many `tenants`. `sixes` are numbers of pairs of IPv6.
    """

    counts: tuple[int, ...]
    intervals: tuple[int, ...]
    loads: int
    rounds: int
    lookups: int
    seconds: int
    singles: int
    batch: int
    typed: int
    spread: int
    general: int
    changes: int
    held: int
    burst: int
    tenants: int
    sixes: tuple[int, ...] = (1_000, 1_000_000)

    @classmethod
    def quick(cls) -> Self:
        return cls(
            (1_000, 100_000, PAPERS_MOST), (1_000, 10_000),
            loads=1, rounds=5, lookups=25, seconds=1, singles=101, batch=1_000, typed=5, spread=20_000, general=10_000,
            changes=40, held=20_000, burst=10_000, tenants=100,
        )  # fmt: skip

    @classmethod
    def full(cls) -> Self:
        return cls(
            (1_000, 10_000, 100_000, 1_000_000, 3_000_000, PAPERS_MOST), (1_000, 10_000, 100_000),
            loads=3, rounds=15, lookups=100, seconds=10, singles=1_001, batch=10_000, typed=15, spread=100_000,
            general=10_000, changes=200, held=20_000, burst=10_000, tenants=100,
        )  # fmt: skip
