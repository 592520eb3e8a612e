"""Pauses after failures: 1, 2, 4 ...

up to 60 seconds, for each key by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

_FIRST_S, _LONGEST_S = 1.0, 60.0


@dataclass(slots=True)
class Pauses:
    """The pauses of things that failed the last time."""

    first_s: float = _FIRST_S
    _last_s: dict[str, float] = field(default_factory=dict)

    def __contains__(self, what: str) -> bool:
        return what in self._last_s

    def after_failure(self, what: str) -> float:
        """Note a failure; return for how many seconds to leave it."""
        longer = self._last_s[what] * 2 if what in self._last_s else self.first_s
        self._last_s[what] = min(longer, _LONGEST_S)
        return self._last_s[what]

    def over(self, what: str) -> None:
        """Forget the failures of what succeeded or is gone."""
        self._last_s.pop(what, None)


class Resting:
    """Failed keys that wait until their pause is over, without delaying others.

    `ticks` is a clock that never goes back, in seconds.
    """

    def __init__(self, ticks: Callable[[], float]) -> None:
        self._ticks = ticks
        self._pauses = Pauses()
        self._until: dict[str, float] = {}

    def __contains__(self, what: str) -> bool:
        return what in self._until and self._ticks() < self._until[what]

    def note_failure(self, what: str) -> float:
        """Note a failure; return for how many seconds it rests."""
        wait_s = self._pauses.after_failure(what)
        self._until[what] = self._ticks() + wait_s
        return wait_s

    def over(self, what: str) -> None:
        """Forget the failures of what succeeded or is gone."""
        self._pauses.over(what)
        self._until.pop(what, None)
