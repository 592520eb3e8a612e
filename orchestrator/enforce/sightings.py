"""Gather packets of rules that log, and send them a few times a second.

Nobody waits for them and nothing depends on them: where the service is away, or packets come faster than they can be
told, the oldest are thrown away and their number is told instead. A report that was not answered is sent again under
its number, so that the service takes it once; one that the service will never take is thrown away. Numbers grow with
the clock, and begin anew with an epoch of our own: so a clock that was set back between two lives loses nothing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from orchestrator.errors import AclflowError, TryAgain, Unauthenticated
from orchestrator.policy.model import Packet
from orchestrator.program.sightings import MOST_AT_ONCE, Sighting, Sightings

MOST_KEPT = 10_000
EVERY_S = 0.5


class SightingSink(Protocol):
    """Where reports go: the service's client."""

    def report_sightings(self, domain: str, enforcer: int, report: Sightings) -> None:
        """Send a report.

        Raises what the client raises; taken or not, the same report may come again.
        """
        ...


class Lookout:
    """Keeps packets until the service has them.

    `seen` may be called from any thread and returns at once.

    `take_over` runs before a report is sent, and has nothing to do once it has succeeded.
    """

    def __init__(
        self,
        sink: SightingSink,
        domain: str,
        enforcer: int,
        take_over: Callable[[], None],
        *,
        clock: Callable[[], float] = time.time,
        most_kept: int = MOST_KEPT,
    ) -> None:
        self._sink = sink
        self._domain = domain
        self._enforcer = enforcer
        self._take_over = take_over
        self._clock = clock
        self._most_kept = most_kept
        self._lock = threading.Lock()
        self._waiting: deque[Sighting] = deque()
        self._lost = 0
        self._number = int(clock() * 1e6)
        self._sending: Sightings | None = None

    def seen(self, host: str, cookie: int, packet: Packet, size: int) -> None:
        """Take a packet that a switch has shown."""
        sighting = Sighting(host, int(self._clock() * 1e6), cookie, packet, size)
        with self._lock:
            if len(self._waiting) >= self._most_kept:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(sighting)

    def tell(self) -> None:
        """Send everything that waits.

        Raises what the sink raises; what was under way then is sent first next time, if that may help.
        """
        while (report := self._next()) is not None:
            self._take_over()
            try:
                self._sink.report_sightings(self._domain, self._enforcer, report)
            except (TryAgain, Unauthenticated):
                raise
            except AclflowError:
                self._sending = None
                with self._lock:
                    self._lost += report.lost + len(report.seen)
                raise
            self._sending = None

    def _next(self) -> Sightings | None:
        """Return the report under way, or make the next.

        For one thread at a time.
        """
        if self._sending is None:
            with self._lock:
                count = min(len(self._waiting), MOST_AT_ONCE)
                if count or self._lost:
                    self._number += 1
                    seen = tuple(self._waiting.popleft() for _ in range(count))
                    self._sending = Sightings(self._number, seen, self._lost)
                    self._lost = 0
        return self._sending
