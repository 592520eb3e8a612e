"""How long to wait before a request is sent again, partly by chance.

    failures without a word of the service     half of 0.2, 0.4, 0.8 ... 5 s, and up to another half by chance
    "Retry-After: 2" with a 429 or 503         2 s at least, and by chance up to as long again, or up to the pause above
                                               where that is longer

The part by chance spreads callers that were refused, or lost their service, in the same moment.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from orchestrator.errors import AclflowError, TryAgain

FIRST_S, LONGEST_S = 0.2, 5.0

Draw = Callable[[], float]
"""Returns a number from 0 to 1, another one at each call."""


def delay_s(
    failures: int,
    error: AclflowError | None = None,
    *,
    first_s: float = FIRST_S,
    longest_s: float = LONGEST_S,
    draw: Draw = random.random,
) -> float:
    """Return how long to wait after so many failures in a row.

    `error` is the last of them.
    """
    pause_s = min(first_s * 2.0 ** min(failures - 1, 30), longest_s)
    told_s = error.after_s if isinstance(error, TryAgain) else None
    if told_s is None:
        return pause_s * (1 + draw()) / 2
    return told_s + max(told_s, pause_s) * draw()


def shorten_wait(seconds: float, draw: Draw = random.random) -> float:
    """Return a period, shortened by chance by up to a quarter.

    So callers that began together drift apart.
    """
    return seconds * (1 - draw() / 4)
