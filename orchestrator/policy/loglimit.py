"""Limits of reports for rules that log: `log` asks for samples, not for all packets."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.errors import BadInput

MOST_A_SECOND = 10_000
"""No controller keeps up with more."""


@dataclass(frozen=True, slots=True)
class LogLimit:
    """A switch's limit for each tenant: `rate` packets a second, `burst` after a silence.

    Every tenant has a measure of its own, so that a flood of one never hides the packets of another. Raises BadInput.
    """

    rate: int = 10
    burst: int = 20

    def __post_init__(self) -> None:
        for name, value in (("rate", self.rate), ("burst", self.burst)):
            if not 1 <= value <= MOST_A_SECOND:
                raise BadInput(f"{value} is not in 1..{MOST_A_SECOND} packets", place=f"log_{name}")


USUAL = LogLimit()
