"""Turn counts of odd moments into rates in steps of equal length."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.wire.hits import VerdictStretch


@dataclass(frozen=True, slots=True)
class Rates:
    """Packets a second in each step; `times` are the steps' ends."""

    times: tuple[dt.datetime, ...]
    permitted: tuple[float, ...]
    denied: tuple[float, ...]


def rates_of(history: Sequence[VerdictStretch], now: dt.datetime, step: dt.timedelta, steps: int) -> Rates:
    """Return the last `steps` steps that are over.

    Steps begin at whole multiples, so past steps do not change any more.
    """
    length = step.total_seconds()
    last = dt.datetime.fromtimestamp(now.timestamp() // length * length, dt.UTC)
    permitted, denied = [0] * steps, [0] * steps
    for each in history:
        back = -int((each.start - last).total_seconds() // length)
        if 1 <= back <= steps:
            permitted[steps - back] += each.permitted
            denied[steps - back] += each.denied + each.denied_ahead
    times = tuple(last - step * back for back in range(steps - 1, -1, -1))
    return Rates(times, tuple(each / length for each in permitted), tuple(each / length for each in denied))
