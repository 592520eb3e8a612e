"""Questions about lists that may take long, on threads of their own, one of a tenant at a time.

Looking at a list can take seconds, and waits for others who look (`control/workbench.py`). Requests are served by some
forty threads: were they taken for this, whoever asks often enough would hold up those who change lists, and enforcement
points that report. So a few others are kept for it, and a question that finds none of them free waits without one.

    24 checks of `blue` ── one under way, 16 wait, 7 are answered 429 ──┐
    a check of `red` ───── under way at once ───────────────────────────┴──▶ threads ──▶ the workbench's two processes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from anyio import CapacityLimiter, Lock, to_thread
from fastapi import Response

from orchestrator.errors import TooOften

MOST = 16
MOST_WAITING = 16
"""Questions about one tenant's list that wait for the one under way."""


@dataclass(slots=True)
class _Turn:
    """The questions about one list: who is under way holds the lock, `asked` counts it and those that wait."""

    lock: Lock = field(default_factory=Lock)
    asked: int = 0


class Questions:
    """The threads of one service."""

    def __init__(self, most: int = MOST) -> None:
        self._threads = CapacityLimiter(most)
        self._turns: dict[str, _Turn] = {}

    async def answered(self, tenant: str, look: Callable[[], Response]) -> Response:
        """Return the answer of `look` about a tenant's list, once those asked before are answered.

        Raises TooOften when many wait already, and what `look` raises.
        """
        turn = self._turns.setdefault(tenant, _Turn())
        if turn.asked > MOST_WAITING:
            raise TooOften(f"{turn.asked} questions about the list of '{tenant}' wait already: wait for their answers")
        turn.asked += 1
        try:
            async with turn.lock:
                return await to_thread.run_sync(look, limiter=self._threads)
        finally:
            turn.asked -= 1
            if turn.asked == 0:
                del self._turns[tenant]
