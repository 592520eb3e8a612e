"""Wake coroutines from threads without polling.

A waiter registers first and looks afterwards; so nothing between looking and waiting is missed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")


class Signal:
    """Something that happens now and then, on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[_Ear] = set()

    @property
    def waiting(self) -> int:
        """How many coroutines wait."""
        return len(self._waiting)

    def fire(self) -> None:
        """Wake all who wait. From any thread."""
        waiting: dict[asyncio.AbstractEventLoop, list[_Ear]] = {}
        with self._lock:
            for ear in self._waiting:
                waiting.setdefault(ear.loop, []).append(ear)
        for loop, ears in waiting.items():
            with suppress(RuntimeError):  # the loop has ended: nobody waits there any more
                loop.call_soon_threadsafe(_wake, ears)  # once: each call writes to a socket to wake the loop

    async def until(
        self,
        check: Callable[[], Awaitable[T | None]],
        wait_s: float,
        *,
        recheck_s: float | None = None,
        gather_s: float = 0.0,
    ) -> T | None:
        """Wait until `check` gives a value, for at most `wait_s`; None when time ran out.

        `recheck_s`: check that often without a signal too, for what may happen in another process. `gather_s`: let so
        much more time pass after a signal before checking, for what else is about to happen.
        """
        deadline = time.monotonic() + wait_s
        with self._listen() as ear:
            while (found := await check()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                await ear.wait(left if recheck_s is None else min(left, recheck_s))
                if gather_s:
                    await asyncio.sleep(min(gather_s, max(0.0, deadline - time.monotonic())))
            return found

    @contextmanager
    def _listen(self) -> Iterator[_Ear]:
        ear = _Ear(asyncio.get_running_loop())
        with self._lock:
            self._waiting.add(ear)
        try:
            yield ear
        finally:
            with self._lock:
                self._waiting.remove(ear)


class _Ear:
    """Of one who waits; all but its making happens on its loop.

    An `asyncio.Event` and `wait_for` do the same by way of a task and several rounds of the loop, which take longer
    than what a change has to wait for.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._heard = False
        self._sleeping: asyncio.Future[None] | None = None

    def hear(self) -> None:
        """Wake who listens: it has happened."""
        self._heard = True
        self._wake()

    async def wait(self, seconds: float) -> None:
        """Wait until it happens, or has since the last time; `seconds` at most."""
        if not self._heard:
            self._sleeping = self.loop.create_future()
            alarm = self.loop.call_later(seconds, self._wake)
            try:
                await self._sleeping
            finally:
                alarm.cancel()
                self._sleeping = None
        self._heard = False

    def _wake(self) -> None:
        if self._sleeping is not None and not self._sleeping.done():
            self._sleeping.set_result(None)


def _wake(ears: Iterable[_Ear]) -> None:
    """Have all these ears hear the signal."""
    for ear in ears:
        ear.hear()
