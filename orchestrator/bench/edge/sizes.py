"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from orchestrator.bench.pop.world import Sizes as WorldSizes

_USUAL = WorldSizes()
_MANY_FUNCTIONS = WorldSizes(functions=12)
_FULL_LINES = WorldSizes(chunks=128, per_line=32)
_NARROW = WorldSizes(width=96, per_line=4, functions=10)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the suite.

    Worlds whose counters are compared with the model, each with every seed; rounds and seconds of packets/s; chunks
    drawn against real lines; chunks of the largest build; hosts that share blocks; of the blocks that are swept for
    leaks, every so many-th.
    """

    worlds: tuple[WorldSizes, ...]
    seeds: tuple[int, ...]
    rounds: int
    seconds: float
    draws: int
    build: int
    hosts: int
    every: int = 1

    @classmethod
    def quick(cls) -> Self:
        worlds = (_USUAL, _MANY_FUNCTIONS, _FULL_LINES)
        return cls(worlds, (1,), rounds=5, seconds=1.0, draws=10**7, build=10**6, hosts=10_000)

    @classmethod
    def full(cls) -> Self:
        worlds = (_USUAL, _MANY_FUNCTIONS, _FULL_LINES, _NARROW)
        return cls(worlds, (1, 2, 3, 4, 5), rounds=15, seconds=5.0, draws=10**9, build=10**6, hosts=20_000)
