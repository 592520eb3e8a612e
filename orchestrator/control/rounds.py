"""Periodic rounds, each key with its own interval."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable

import structlog

from orchestrator.control.pauses import Resting
from orchestrator.control.units import Units
from orchestrator.errors import TryAgain
from orchestrator.store.unit import Unit

log = structlog.get_logger()

LONGEST_LOOK_S, SHORTEST_LOOK_S = 5.0, 0.2
"""Intervals may change at any time, so they are looked at at least so often; and never more often than that."""

Left = Callable[[Unit], Iterable[tuple[str, float]]]
"""The keys that have rounds, and the seconds that are left of their intervals."""


def left_s(interval_s: float, since: dt.datetime, now: dt.datetime) -> float:
    """The seconds until the next round, after one at `since`.

    A last round that lies more than an interval ahead was had before a clock was set back: then the next one is due.
    """
    left = interval_s - (now - since).total_seconds()
    return left if left <= 2 * interval_s else 0.0


def counted_since(interval_s: float, since: dt.datetime, now: dt.datetime) -> dt.datetime:
    """Return the start of the counts for a round after one at `since`.

    For one interval, where that has yet to come.
    """
    return since if since <= now else now - dt.timedelta(seconds=interval_s)


class Rounds:
    """Runs the rounds of all keys that are due by `have`.

    One that fails rests for a while, and others go on.
    """

    def __init__(
        self, left: Left, have: Callable[[Units, str], object], *, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._left = left
        self._have = have
        self._ticks = ticks
        self._resting = Resting(ticks)
        self._look_at = 0.0

    def tick(self, units: Units) -> float:
        """Do what is due; how many seconds to sleep until something may be."""
        now = self._ticks()
        if now < self._look_at:
            return self._look_at - now
        sleep_s = LONGEST_LOOK_S
        for name, left_s in units.read(self._left):
            if left_s > 0:
                sleep_s = min(sleep_s, left_s)
            elif name not in self._resting:
                self._try_round(units, name)
        sleep_s = max(sleep_s, SHORTEST_LOOK_S)
        self._look_at = self._ticks() + sleep_s
        return sleep_s

    def _try_round(self, units: Units, name: str) -> None:
        try:
            self._have(units, name)
        except TryAgain:  # the store is away, for the others as well
            raise
        except Exception:
            log.exception("round failed", of=name, again_in_s=self._resting.note_failure(name))
        else:
            self._resting.over(name)
