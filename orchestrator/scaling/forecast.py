"""Where a load is going: the median slope of what was seen lately, drawn on.

The slope is the median of the slopes between all pairs of samples (Theil and Sen), so a single burst or gap does not
turn it. The forecast is for growing only: nobody shrinks because of what may come.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MOST_SAMPLES = 12
"""Of those given, as many of the newest are looked at: 66 pairs."""
_FEWEST = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """An observed load: `pps` packets a second at `at_s` of a monotonic clock."""

    at_s: float
    pps: float


def slope(samples: Sequence[Sample]) -> float:
    """Packets a second, a second; 0 where too little was seen to tell."""
    newest = samples[-MOST_SAMPLES:]
    if len(newest) < _FEWEST:
        return 0.0
    slopes = [
        (later.pps - earlier.pps) / (later.at_s - earlier.at_s)
        for index, earlier in enumerate(newest)
        for later in newest[index + 1 :]
        if later.at_s > earlier.at_s
    ]
    return statistics.median(slopes) if slopes else 0.0


def forecast(samples: Sequence[Sample], now_s: float, ahead_s: float) -> float:
    """Forecast the load in `ahead_s` seconds, at least the newest sample's; 0 without samples."""
    if not samples:
        return 0.0
    newest = samples[-1]
    rise = slope(samples) * (now_s + ahead_s - newest.at_s)
    return max(newest.pps, newest.pps + rise)
