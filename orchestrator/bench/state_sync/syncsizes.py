"""How much of everything a run of the suite does."""

from __future__ import annotations

from dataclasses import dataclass

MEMBERS = (3, 6, 9)
"""Sizes of the cluster (paper, *Cluster Sizes*)."""
AT_ONCE = (25, 100)
"""Downloads at once (paper, *Methodology*)."""
ALONE = 1
"""One download after the other: what a held packet adds is not hidden behind others."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """`runs` of `downloads` each for every setting; `failovers` and as many scalings, with `connections` open."""

    runs: int
    downloads: int
    failovers: int
    connections: int

    @classmethod
    def full(cls) -> Sizes:
        """The paper's: 10 runs of 10,000 downloads."""
        return cls(10, 10_000, 10, 10_000)

    @classmethod
    def quick(cls) -> Sizes:
        """Return sizes of a shorter run with every setting."""
        return cls(5, 1500, 3, 10_000)
