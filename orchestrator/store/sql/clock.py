"""A clock for expiry and records that never goes back."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable


def utc_now() -> dt.datetime:
    """The wall clock."""
    return dt.datetime.now(dt.UTC)


class SteadyClock:
    """A wall clock that goes on from its last time while it is set back.

    So a token that has expired stays expired, and a later record never bears an earlier time. A clock that was far
    ahead and is corrected stays ahead until the process is started anew: tokens expire too early rather than too late.
    """

    def __init__(self, wall: Callable[[], dt.datetime] = utc_now) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._last = wall()
        self._ticks = time.monotonic()

    def __call__(self) -> dt.datetime:
        with self._lock:
            ticks = time.monotonic()
            self._last = max(self._wall(), self._last + dt.timedelta(seconds=ticks - self._ticks))
            self._ticks = ticks
            return self._last
