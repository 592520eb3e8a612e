"""Reads of the service, for pages.

The client blocks, so reads run on threads. Pages of one session that want the same at the same time share one read, and
what was read a moment ago is not read again: twenty open pages ask the service little more than one does. Slow reads
are done less often, so following a list of 20,000 rules costs no more than a tenth of the time.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestrator.errors import Busy, Unreachable

T = TypeVar("T")

FRESH_S = 1.0
REST = 10
"""For how many times as long as it took, what was read is taken for fresh."""
_MOST_KEPT = 256


@dataclass(slots=True)
class _Entry:
    task: asyncio.Task[Any]
    begun: float
    ended: float | None = None

    def is_fresh(self, fresh_s: float, rest: int, now: float) -> bool:
        """Return whether it is being read, or was read not long ago.

        A failed read is done again.
        """
        if self.ended is None:
            return True
        if self.task.cancelled() or self.task.exception() is not None:
            return False
        return now - self.begun <= max(fresh_s, rest * (self.ended - self.begun))


def begin_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start work that goes on meanwhile.

    An awaiting caller gets its failure; nobody has to await it.
    """
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


class Reading:
    """One session's reads, and whether the service answered the last of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[Hashable, _Entry] = {}
        self.lost: str | None = None
        """Why the service cannot be read; None while it answers."""

    async def get(self, key: Hashable, read: Callable[[], T], *, fresh_s: float = FRESH_S, rest: int = REST) -> T:
        """Read, or return the last result for the same key if it is fresh.

        Raises what `read` raises.

        It is fresh for `fresh_s` seconds, and for `rest` times as long as reading took.
        """
        entry = self._entries.get(key)
        if entry is None or not entry.is_fresh(fresh_s, rest, self._clock()):
            entry = _Entry(asyncio.create_task(self.once(read)), self._clock())
            entry.task.add_done_callback(functools.partial(self._note_task_end, entry))
            self._forget_old()
            self._entries[key] = entry
        found: T = await asyncio.shield(entry.task)  # the key says what kind of thing it is
        return found

    async def once(self, work: Callable[[], T]) -> T:
        """Do something that blocks, and note whether the service answered."""
        try:
            done = await asyncio.to_thread(work)
        except (Unreachable, Busy) as error:
            self.lost = error.reason
            raise
        self.lost = None
        return done

    def forget(self) -> None:
        """Read everything anew: something was changed."""
        self._entries.clear()

    def _note_task_end(self, entry: _Entry, _: asyncio.Task[Any]) -> None:
        entry.ended = self._clock()

    def _forget_old(self) -> None:
        while len(self._entries) >= _MOST_KEPT:
            del self._entries[next(iter(self._entries))]
