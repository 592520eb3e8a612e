"""How much of a service one enforcement point takes, and refused bodies of one sender.

A report is read under the interpreter's lock and kept under the store's, and one of megabytes takes both for a while.
So reports of one point follow each other, and all of them together take a share of the processor's time in the end:

    seconds that point 7 may take    [#####     ]    as many as `SAVED_S`, filled up at `SHARE` a second

    report ─ 0.8 s ──▶ 0.3 s are owed ──▶ the next one waits 3 s, without a thread ──▶ read ─ kept ──▶ ...
    a report of another point ─ at once ──▶

A point that reports what its devices do never waits: a report about a host takes a fraction of a millisecond, about a
thousand of them some hundredths of a second. One that sends large reports without a pause waits for itself; beyond
`MOST_UNDER_WAY` it is answered 429, before its body is read.

Programs that are sent whole, new epochs, and bodies that were refused have accounts of the same kind. They are counted
by what they usually take, when it is known that they did; who owes waits, or is answered 429.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from orchestrator.errors import TooOften

SHARE, SAVED_S = 0.1, 1.0
"""The part of a processor that reports of one kind of a point may take in the long run, and the seconds that it may
take at once after a silence."""
MOST_UNDER_WAY = 4
"""Reports of a point that are read, wait or are kept. A point sends one at a time, also after its connection broke."""
MOST_FOLLOWED = 64
"""Streams of programs, and held requests for one, of a point: it has one or two, and some that broke and end soon."""
LONGEST_REST_S = 10.0
"""A report that would have to wait longer is refused; points wait some 30 s for an answer."""
PROGRAM_BYTES_A_SECOND = 128 << 20
"""How fast a program is sent whole: what it takes of the processor."""
TURN_S = 0.05
"""The time of a turn of writers and a commit: for a new epoch, and for impostors."""
BODY_BYTES_A_SECOND = 16 << 20
"""How fast a body is read, as far as it is refused for what it says."""
MOST_ACCOUNTS = 10_000
"""So many are in memory before those that are full are forgotten."""


@dataclass(slots=True)
class Account:
    """The seconds that reports of one point may take now; negative: they owe."""

    whose: str
    ticks: Callable[[], float]
    left_s: float = SAVED_S
    counted_at: float = 0.0
    under_way: int = 0
    followed: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Account]:
        """Wait for reports that came before, and for the time that they owe.

        Raises TooOften where that is long.
        """
        async with self.lock:
            await self.rest()
            yield self

    async def rest(self) -> None:
        """Wait for the time that is owed. Raises TooOften where that is long."""
        if (rest_s := self.rest_s()) > LONGEST_REST_S:
            raise TooOften(f"{self.whose} take more than {SHARE:.0%} of a processor: wait", after_s=rest_s)
        if rest_s:
            await asyncio.sleep(rest_s)

    def rest_s(self) -> float:
        """Return how long the next report has to wait."""
        now = self.ticks()
        self.left_s = min(SAVED_S, self.left_s + (now - self.counted_at) * SHARE)
        self.counted_at = now
        return max(0.0, -self.left_s / SHARE)

    def is_as_new(self) -> bool:
        """Return whether nothing is lost where it is forgotten."""
        return not self.under_way and not self.followed and not self.rest_s() and self.left_s == SAVED_S

    @contextmanager
    def following(self, most: int | None) -> Iterator[None]:
        """Count a follower of a program while the block lasts. Raises TooOften beyond `most`."""
        if most is not None and self.followed >= most:
            raise TooOften(f"{self.whose}: {most} requests follow them already: close some", after_s=LONGEST_REST_S)
        self.followed += 1
        try:
            yield
        finally:
            self.followed -= 1

    def spend(self, seconds: float) -> None:
        """Count seconds that a report took, within its turn."""
        self.left_s -= seconds

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count the thread's processor time within the block, also where that fails."""
        started = time.thread_time()
        try:
            yield
        finally:
            self.spend(time.thread_time() - started)


class Pace:
    """The accounts of a service, for one event loop.

    `ticks` is in seconds and never goes back.
    """

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        self._ticks = ticks
        self._accounts: dict[str, Account] = {}

    @contextmanager
    def admit(self, whose: str) -> Iterator[Account]:
        """Let a report of `whose` be read. Raises TooOften where many are under way."""
        account = self.account(whose)
        if account.under_way >= MOST_UNDER_WAY:
            raise TooOften(f"{account.under_way} {whose} are under way: wait for their answers", after_s=1.0)
        account.under_way += 1
        try:
            yield account
        finally:
            account.under_way -= 1

    def account(self, whose: str) -> Account:
        """Return the account of `whose`."""
        account = self._accounts.get(whose)
        if account is None:
            if len(self._accounts) >= MOST_ACCOUNTS:
                self._accounts = {name: each for name, each in self._accounts.items() if not each.is_as_new()}
            account = self._accounts[whose] = Account(whose, self._ticks, counted_at=self._ticks())
        return account
