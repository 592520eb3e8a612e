"""Slow questions about lists, on threads of their own, one per tenant at a time.

Looking at a list can take seconds, and waits for others who look (`control/workbench.py`). Requests are served by some
forty threads: were they taken for this, frequent questions would hold up those who change lists, and enforcement points
that report. So a few others are kept for it, and a question that finds none of them free waits without one.

A tenant's quota says for how many seconds of a minute its list is looked at; a tenant that has used them up is answered
429. The time in a process of the workbench and here counts, without waiting for a process.

    24 checks of `blue` ── one under way, 16 wait, 7 are answered 429 ──┐
    a check of `red` ───── under way at once ───────────────────────────┴──▶ threads ──▶ the workbench's two processes
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any, TypeVar

from anyio import CapacityLimiter, Lock, to_thread
from fastapi import Response

from orchestrator import stages
from orchestrator.errors import TooOften

T = TypeVar("T")

MOST = 16
MOST_WAITING = 16
"""Questions about one tenant's list that wait for the one under way."""

A_MINUTE_S = 60.0
_MOST_TENANTS = 10_000
_MOST_KEPT = 256


class Seconds:
    """How long each tenant's list was looked at in the last minute. Safe between threads.

    `ticks` is in seconds and never goes back.
    """

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._lock = threading.Lock()
        self._spent: dict[str, deque[tuple[float, float]]] = {}
        """When each look of the last minute ended, and its seconds; the tenant that looked last is last."""

    def of(self, tenant: str) -> float:
        """Return a tenant's seconds of the last minute."""
        with self._lock:
            return sum(seconds for _, seconds in self._forget_old(tenant))

    def add(self, tenant: str, seconds: float) -> None:
        """Count a look that is over."""
        with self._lock:
            spent = self._spent.pop(tenant, None) or deque()
            spent.append((self._ticks(), seconds))
            self._spent[tenant] = spent
            while len(self._spent) > _MOST_TENANTS:
                del self._spent[next(iter(self._spent))]

    def hold(self, tenant: str, most: int) -> None:
        """Raise TooOften, with how long to wait, where a tenant has used its seconds up."""
        with self._lock:
            recent, now = self._forget_old(tenant), self._ticks()
            left = sum(seconds for _, seconds in recent)
            if left < most:
                return
            wait_s = A_MINUTE_S
            for ended, seconds in recent:
                left -= seconds
                if left < most:
                    wait_s = ended + A_MINUTE_S - now
                    break
        raise TooOften(
            f"the list of '{tenant}' may be looked at for {most} seconds of a minute, its quota, and they are used up: "
            f"come back in {ceil(wait_s)} s",
            after_s=wait_s,
        )

    def _forget_old(self, tenant: str) -> deque[tuple[float, float]]:
        spent, since = self._spent.get(tenant, deque()), self._ticks() - A_MINUTE_S
        while spent and spent[0][0] <= since:
            spent.popleft()
        return spent


@dataclass(slots=True)
class _Turn:
    """The questions about one list.

    The one under way holds the lock; `asked` counts it and those that wait.
    """

    lock: Lock = field(default_factory=Lock)
    asked: int = 0


class Questions:
    """The threads of one service, and how long they look at each tenant's list.

    `quota` gives the seconds a minute for a tenant, if it has such a quota.
    """

    def __init__(self, quota: Callable[[str], int | None] = lambda _: None, most: int = MOST) -> None:
        self._quota = quota
        self._threads = CapacityLimiter(most)
        self._turns: dict[str, _Turn] = {}
        self._seconds = Seconds()

    def seconds_of(self, tenant: str) -> float:
        """Return for how long a tenant's list was looked at in the last minute."""
        return self._seconds.of(tenant)

    async def answer_in_turn(self, tenant: str, look: Callable[[], Response]) -> Response:
        """Return the answer of `look` about a tenant's list, once those asked before are answered.

        Raises TooOften when many wait already or the tenant's seconds are used up, and what `look` raises.
        """
        turn = self._turns.setdefault(tenant, _Turn())
        if turn.asked > MOST_WAITING:
            raise TooOften(f"{turn.asked} questions about the list of '{tenant}' wait already: wait for their answers")
        turn.asked += 1
        try:
            async with turn.lock:
                return await to_thread.run_sync(partial(self._look_and_count, tenant, look), limiter=self._threads)
        finally:
            turn.asked -= 1
            if turn.asked == 0:
                del self._turns[tenant]

    def _look_and_count(self, tenant: str, look: Callable[[], Response]) -> Response:
        most = self._quota(tenant)
        if most is not None:
            self._seconds.hold(tenant, most)
        with stages.measuring() as clock:
            try:
                return look()
            finally:
                clock.lap(stages.LOOK)
                self._seconds.add(tenant, clock.seconds[stages.LOOK])


class Reviews:
    """The newest answers to questions about committed lists.

    They are of those that were asked last. Looking at 20,000 rules takes its time, dashboards ask every time they are
    opened, and the answer stays the same until the list, or what the tenant owns, changes. Safe to share between
    threads.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turns: dict[Hashable, threading.Lock] = {}
        self._known: OrderedDict[Hashable, tuple[Hashable, Any]] = OrderedDict()

    @property
    def subjects(self) -> frozenset[Hashable]:
        """The subjects of which anything is kept."""
        with self._guard:
            return frozenset({*self._turns, *self._known})

    def of(self, about: Hashable, state: Hashable, look: Callable[[], T]) -> T:
        """Return the result of `look`, or the earlier one for this `state`.

        `about` is the subject of both. A second caller meanwhile waits for the first.
        """
        with self._guard:
            turn = self._turns.setdefault(about, threading.Lock())
        with turn:
            known = self._known.get(about)
            if known is not None and known[0] == state:
                answer: T = known[1]  # `about` says what kind of thing it is
                return answer
            try:
                found = look()
            except BaseException:
                self._let_go(about)
                raise
            self._keep_answer(about, state, found)
            return found

    def _keep_answer(self, about: Hashable, state: Hashable, found: object) -> None:
        with self._guard:
            self._known[about] = state, found
            self._known.move_to_end(about)
            while len(self._known) > _MOST_KEPT:
                forgotten, _ = self._known.popitem(last=False)
                self._turns.pop(forgotten, None)

    def _let_go(self, about: Hashable) -> None:
        """Forget a look that failed, where nothing is known from before."""
        with self._guard:
            if about not in self._known:
                self._turns.pop(about, None)
