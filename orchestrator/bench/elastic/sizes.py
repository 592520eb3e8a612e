"""How long, how much, and what a VNF may carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

OCTETS = 1000
"""Of a datagram."""
FRAME_OCTETS = OCTETS + 42
"""Of the frame that carries it."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Some seconds in which the load goes evenly to `load`, in VNF capacities."""

    seconds: float
    load: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """The load's course, from `start`; `cap_mbps` of each VNF; lasting connections; runs."""

    start: float
    phases: tuple[Phase, ...]
    cap_mbps: float
    connections: int
    runs: int

    @property
    def capacity_pps(self) -> float:
        """Datagrams a second that one VNF carries at most."""
        return self.cap_mbps * 1e6 / 8 / FRAME_OCTETS

    @property
    def seconds(self) -> float:
        """How long a run takes."""
        return sum(each.seconds for each in self.phases)

    def pps(self, at_s: float) -> float:
        """Return the offered packets a second at a moment of the run."""
        before = self.start
        for phase in self.phases:
            if at_s < phase.seconds:
                return self.capacity_pps * (before + (phase.load - before) * at_s / phase.seconds)
            at_s, before = at_s - phase.seconds, phase.load
        return self.capacity_pps * before

    @classmethod
    def quick(cls) -> Self:
        phases = (Phase(10, 0.3), Phase(30, 1.4), Phase(15, 1.4), Phase(10, 0.3), Phase(45, 0.3))
        return cls(0.3, phases, cap_mbps=4.0, connections=20, runs=1)

    @classmethod
    def full(cls) -> Self:
        phases = (Phase(20, 0.3), Phase(60, 2.4), Phase(30, 2.4), Phase(30, 0.3), Phase(90, 0.3))
        return cls(0.3, phases, cap_mbps=4.0, connections=50, runs=3)
