"""Clocks for expiry and records: one that never goes back, and one that services share.

one service      wall clock ──────────────────────────────▶ SteadyClock ──▶ the time of a transaction
several          PostgreSQL's clock ──▶ DatabaseClock ────▶ SteadyClock ──▶ ...
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import deque
from collections.abc import Callable


def utc_now() -> dt.datetime:
    """The wall clock."""
    return dt.datetime.now(dt.UTC)


class DatabaseClock:
    """The clock of the database, as it was read last, with the time since.

    Services that share a database agree on the time by it, whatever their machines' clocks say.
    """

    def __init__(self, now: dt.datetime) -> None:
        self.note(now)

    def note(self, now: dt.datetime) -> None:
        """Note what the database's clock says now."""
        self._at_zero = now.astimezone(dt.UTC) - dt.timedelta(seconds=time.monotonic())

    def __call__(self) -> dt.datetime:
        return self._at_zero + dt.timedelta(seconds=time.monotonic())


def ticks_since_boot() -> float:
    """Return the seconds since the machine started, those that it slept among them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """A wall clock that goes on from its last time while it is set back.

    So a token that has expired stays expired, and a later record never bears an earlier time. A clock that was far
    ahead and is corrected stays ahead until the process is started anew: tokens expire too early rather than too late.
    Of a jump forward nobody can tell whether the time before or the one after it was right: `jumped` is their sum.
    """

    JUMP = dt.timedelta(minutes=1)
    """By more than so much at once the clock jumps; by less it is corrected."""

    def __init__(
        self, wall: Callable[[], dt.datetime] = utc_now, ticks: Callable[[], float] = ticks_since_boot
    ) -> None:
        self.jumped = dt.timedelta()
        self._wall = wall
        self._count_ticks = ticks
        self._lock = threading.Lock()
        self._last = wall()
        self._ticks = ticks()

    def __call__(self) -> dt.datetime:
        with self._lock:
            ticks, wall = self._count_ticks(), self._wall()
            expected = self._last + dt.timedelta(seconds=ticks - self._ticks)
            if wall - expected > self.JUMP:
                self.jumped += wall - expected
            self._last, self._ticks = max(wall, expected), ticks
            return self._last


class Ages:
    """How long ago moments of a clock were, where it may have jumped forwards since.

    It never goes back (`SteadyClock`). A jump counts for nothing, so what came before it looks no older than it is;
    what came between a jump and the next look at the clock looks younger.
    """

    _LEAST_S = 0.05
    """So much more than the ticks a clock may gain between two looks, where it is slewed."""
    _MOST_JUMPS = 16

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._lock = threading.Lock()
        self._ahead_s: float | None = None
        """How far the clock was ahead of the ticks."""
        self._jumps: deque[tuple[dt.datetime, float]] = deque(maxlen=self._MOST_JUMPS)
        """The moments at which jumps were seen, and by how many seconds the clock jumped."""

    def since(self, moment: dt.datetime, now: dt.datetime) -> float:
        """Return the seconds from a moment until `now`, which the clock says; never below 0."""
        self.look(now)
        with self._lock:
            jumped_s = sum(seconds for seen, seconds in self._jumps if moment < seen)
        return max(0.0, (now - moment).total_seconds() - jumped_s)

    def look(self, now: dt.datetime) -> float:
        """Return by how many seconds the clock has jumped since the last look."""
        with self._lock:
            ahead_s = now.timestamp() - self._ticks()
            before_s = ahead_s if self._ahead_s is None else self._ahead_s
            self._ahead_s = max(before_s, ahead_s)  # `now` may be some time ago, as a transaction's is
            if ahead_s - before_s <= self._LEAST_S:
                return 0.0
            self._jumps.append((now, ahead_s - before_s))
            return ahead_s - before_s
