"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

PAPER_OCTETS = 1024
"""The paper's datagrams where it varies the rate."""
MEGABIT = 1_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the suite.

    Numbers of rules, bytes of a datagram, rates offered to one VNF (Mb/s), numbers of VNFs, rounds, and seconds of each
    measurement. `cap` is what each of several VNFs may carry (Mb/s), `offered` the rates that they are offered.
    """

    rules: tuple[int, ...]
    lengths: tuple[int, ...]
    rates: tuple[int, ...]
    vnfs: tuple[int, ...]
    cap: int
    offered: tuple[int, ...]
    rounds: int
    seconds: int

    @property
    def lists(self) -> tuple[int, ...]:
        """Return the numbers of rules for nftables: aclflow's VNFs always hold a list."""
        return tuple(max(1, rules) for rules in self.rules)

    @classmethod
    def quick(cls) -> Self:
        return cls(
            rules=(0, 500, 2000), lengths=(64, 512, 1024), rates=(100, 300, 900), vnfs=(1, 2, 3, 5), cap=6,
            offered=(6, 30), rounds=3, seconds=2,
        )  # fmt: skip

    @classmethod
    def full(cls) -> Self:
        return cls(
            rules=(0, 250, 500, 1000, 2000), lengths=(64, 128, 256, 512, 1024, 1472), rates=(100, 300, 500, 700, 900),
            vnfs=(1, 2, 3, 5), cap=18, offered=(10, 30, 50, 70, 90), rounds=15, seconds=2,
        )  # fmt: skip
