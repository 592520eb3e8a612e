"""Waking coroutines from threads: a wait ends when something happened, and nobody polls.

Who waits registers first and looks afterwards; so what happens between looking and waiting is not missed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")


class Signal:
    """Something that happens now and then, on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    @property
    def waiting(self) -> int:
        """How many coroutines wait."""
        return len(self._waiting)

    def fire(self) -> None:
        """Wake all who wait. From any thread."""
        with self._lock:
            waiting = tuple(self._waiting.items())
        for event, loop in waiting:
            with suppress(RuntimeError):  # its loop has ended: nobody waits there any more
                loop.call_soon_threadsafe(event.set)

    async def until(
        self, check: Callable[[], Awaitable[T | None]], wait_s: float, *, recheck_s: float | None = None
    ) -> T | None:
        """Wait until `check` gives a value, for at most `wait_s`; None when time ran out.

        `recheck_s`: check that often without a signal too, for what may happen in another process.
        """
        deadline = time.monotonic() + wait_s
        with self._heard() as event:
            while (found := await check()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                with suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), left if recheck_s is None else min(left, recheck_s))
                event.clear()
            return found

    @contextmanager
    def _heard(self) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        with self._lock:
            self._waiting[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            with self._lock:
                del self._waiting[event]
