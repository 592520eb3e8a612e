"""Questions that may take long, on threads of their own.

Looking at a list can take seconds, and waits for others who look (`control/workbench.py`). Requests are served by some
forty threads: were they taken for this, whoever asks often enough would hold up those who change lists, and enforcement
points that report. So a few others are kept for it, and who finds none of them free waits without one.
"""

from __future__ import annotations

from collections.abc import Callable

from anyio import CapacityLimiter, to_thread
from fastapi import Response

MOST = 16


class Questions:
    """The threads of one service."""

    def __init__(self, most: int = MOST) -> None:
        self._threads = CapacityLimiter(most)

    async def answered(self, look: Callable[[], Response]) -> Response:
        """What `look` answers, on one of the threads, once one is free. Raises what it raises."""
        return await to_thread.run_sync(look, limiter=self._threads)
