"""How many rules were lifted over time, told backwards from how many are now by what was lifted and lowered since."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from orchestrator.client import Event

LIFTED, LOWERED = "placement.lifted", "placement.lowered"


def lifted_over_time(
    events: Sequence[Event], domain: str, lifted: int, now: dt.datetime
) -> tuple[tuple[dt.datetime, ...], tuple[int, ...]]:
    """Moments and how many rules of a domain were lifted from each on. `events` are the newest first, of any kind."""
    moves = [each for each in events if each.subject == domain and each.kind in (LIFTED, LOWERED)]
    times, counts = [now], [lifted]
    for event in moves:
        before = max(0, counts[-1] - 1 if event.kind == LIFTED else counts[-1] + 1)
        times += [event.time, event.time - dt.timedelta(microseconds=1)]
        counts += [counts[-1], before]
    return tuple(reversed(times)), tuple(reversed(counts))
