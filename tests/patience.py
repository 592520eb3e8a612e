"""How tests wait: for the thing itself, and generously. A loaded machine stands still for seconds, and may."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 120.0
"""How long may take what must come about. Only who has found a defect ever waits so long."""


def until(
    holds: Callable[[], object],
    most_s: float = PATIENCE_S,
    *,
    what: Callable[[], object] = lambda: "it did not come about",
) -> None:
    """Wait until something holds that nobody tells of; `what` is asked what to say if it never does."""
    ends = time.monotonic() + most_s
    while not holds():
        assert time.monotonic() < ends, what()
        time.sleep(0.005)
