"""The log of events as it grows, for those who follow it.

    commit ──notice──▶ Feed ── tail ── the newest events, read from the store once for all who follow
                        │                 ▲
                        └── page(after) ──┘ or, for who is further behind, a page from the store

Who follows holds nothing but the id that it has read up to, and asks for what comes after it: so a slow reader costs
no memory here, is never waited for, and can go on anywhere, after a broken connection or at another process of the
service. One that is so slow that the log has forgotten events is told that it missed some.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, takewhile

from orchestrator.control.signals import Signal
from orchestrator.errors import Busy, TooOften
from orchestrator.store import Store
from orchestrator.store.records import Committed, LoggedEvent

PAGE = 100
"""How many events are given at once."""
MOST_FOLLOWERS = 1000
MOST_EACH = 64
"""Of one tenant, or of one token that is of no tenant: more than anybody's pages, far less than all."""
TAIL = 1000
"""How many of the newest events are kept in memory."""
GATHER_S = 0.02
"""How long an event waits for others before who follows is given them: a change has several, and while it is on its way
to the switches nobody should read the log."""


def named_tenant(tenant: str) -> str:
    """Return the name under which a tenant's streams are counted."""
    return f"tenant '{tenant}'"


@dataclass(frozen=True, slots=True)
class Feeding:
    """Some events, and the id up to which the reader has seen everything.

    `missed`: events between what it had and the oldest of these may have been forgotten.
    """

    events: tuple[LoggedEvent, ...]
    upto: int
    missed: bool


class Feed:
    """The events' tail, shared by all who follow: `most` at the same time."""

    def __init__(self, store: Store, most: int = MOST_FOLLOWERS) -> None:
        self._store = store
        self._most = most
        self._signal = Signal()
        self._lock = threading.Lock()
        self._tail: deque[LoggedEvent] = deque(maxlen=TAIL)
        self._floor = 0
        """All events of a higher id, up to `_head`, are in the tail."""
        self._head: int | None = None
        self._stale = True
        self._closed = False
        self._followers: Counter[str] = Counter()
        self._unsubscribe = store.subscribe(self._note_commit)

    @property
    def closed(self) -> bool:
        """Whether the service stops, and nobody is fed any more."""
        return self._closed

    def close(self) -> None:
        """Answer all who wait: the service stops."""
        self._closed = True
        self._unsubscribe()
        self._signal.fire()

    def streams_of(self, who: str) -> int:
        """Return how many streams are open for somebody (`named_tenant`)."""
        return self._followers[who]

    @contextmanager
    def follower(self, who: str, most: int | None = None) -> Iterator[None]:
        """Count a follower; `most` is the quota, if there is one.

        Raises TooOften when `who` follows often already, Busy when all places are taken.
        """
        limit = MOST_EACH if most is None else most
        if self._followers[who] >= limit:
            raise TooOften(f"{limit} streams of events are open for {who} already: close some, or ask for pages")
        if self._followers.total() >= self._most:
            raise Busy(f"{self._most} follow the events already: ask for pages instead, or come back")
        self._followers[who] += 1
        try:
            yield
        finally:
            self._followers[who] -= 1
            if not self._followers[who]:
                del self._followers[who]

    async def newest(self) -> int:
        """The id of the newest event: where to begin without a past."""
        return await asyncio.to_thread(self._newest)

    async def after(
        self, event_id: int, wait_s: float, *, tenant: int | None = None, gather_s: float = GATHER_S
    ) -> Feeding | None:
        """Wait for events after an id, oldest first: all, or a tenant's.

        None when nothing came within `wait_s`, or the service stops. An id that no event has yet, as after a restored
        backup, counts as the newest. Events that come while somebody waits are returned `gather_s` later, with those
        that came since.
        """

        async def find_events() -> Feeding | bool | None:
            if self._closed:
                return False
            head = self._head
            if self._stale or head is None or event_id > head:  # a notice may come later than what it is about
                head = await asyncio.to_thread(self._newest, event_id)
            if head == event_id:
                return None
            page = await asyncio.to_thread(self._make_page, event_id, head, tenant)
            return page if page.events or page.missed or page.upto != event_id else None

        found_now = await self._signal.until(find_events, wait_s, gather_s=gather_s)
        return found_now if isinstance(found_now, Feeding) else None

    def _note_commit(self, committed: Committed) -> None:
        if committed.last_event is not None or not committed.domains:
            self._stale = True
            self._signal.fire()

    def _newest(self, at_least: int = 0) -> int:
        """Bring the tail up to the log, once however many ask; the newest id."""
        with self._lock:
            if self._head is not None and not self._stale and self._head >= at_least:
                return self._head
            self._stale = False  # before reading: what is committed meanwhile makes it stale again
            with self._stale_if_broken(), self._store.read() as unit:
                last = unit.events.last_id()
                if self._head is None or last < self._head:  # the first look, or the log is another one
                    self._tail.clear()
                    self._floor = self._head = last
                while self._head < last and (page := unit.events.since(self._head, limit=TAIL)).events:
                    if page.missed:  # those in between were forgotten before we read them
                        self._tail.clear()
                        self._floor = page.events[0].id - 1
                    self._append_events(page.events)
            return self._head

    @contextmanager
    def _stale_if_broken(self) -> Iterator[None]:
        """Note that the tail is behind the log where reading fails."""
        try:
            yield
        except BaseException:
            self._stale = True
            raise

    def _append_events(self, events: tuple[LoggedEvent, ...]) -> None:
        for event in events:
            if len(self._tail) == TAIL:
                self._floor = self._tail[0].id
            self._tail.append(event)
            self._head = event.id

    def _make_page(self, event_id: int, head: int, tenant: int | None) -> Feeding:
        if event_id > head:
            return Feeding((), head, missed=True)
        with self._lock:
            if event_id >= self._floor:
                fresh = list(takewhile(lambda each: each.id > event_id, reversed(self._tail)))
                events = tuple(islice((each for each in reversed(fresh) if tenant in (None, each.tenant)), PAGE))
                return Feeding(events, events[-1].id if len(events) == PAGE else self._head or head, missed=False)
        with self._store.read() as unit:
            page = unit.events.since(event_id, limit=PAGE, tenant=tenant)
            last = unit.events.last_id()
        return Feeding(page.events, page.events[-1].id if len(page.events) == PAGE else last, page.missed)
