"""How a suite tells how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

_MINUTES_SAID = 90
"""From here on hours are said."""


class Progress(Protocol):
    """Called before each step, with the number of steps done and in all, if known."""

    def __call__(self, text: str, *, done: int = 0, total: int = 0) -> None: ...


@dataclass(frozen=True, slots=True)
class Expected:
    """How long a suite is: so many measurements, each of so many seconds."""

    measurements: int
    each_s: float

    def __str__(self) -> str:
        minutes = self.measurements * self.each_s / 60
        took = f"{minutes:.0f} minutes" if minutes < _MINUTES_SAID else f"{minutes / 60:.1f} hours"
        return f"{self.measurements} measurements, which take about {took} on two idle cores"


@dataclass(slots=True)
class Steps:
    """Counts the steps of a suite that knows how many there are."""

    progress: Progress
    total: int
    _done: int = 0

    def next(self, text: str) -> None:
        """Say that the next step begins, and how far all is."""
        self.progress(text, done=self._done, total=self.total)
        self._done += 1
