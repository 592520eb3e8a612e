"""Pace changes of a PoP's servers: limits of list changes, and windows of programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from orchestrator.control.pauses import Pauses
from orchestrator.errors import TooOften


@dataclass(slots=True)
class _Bucket:
    """How many updates are left, as of a time."""

    left: float
    at: float


@dataclass(slots=True)
class UpdateRates:
    """The buckets of one domain's tenants. Safe between threads; `clock` gives seconds.

    Each tenant has a token bucket of one second's updates. A caller that takes more is told when to come back, and
    everybody else is served as before. An update is counted when it is committed, so what was refused or rolled back
    costs nothing.
    """

    clock: Callable[[], float]
    _buckets: dict[str, _Bucket] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self, tenants: Iterable[str], per_s: float) -> None:
        """Raises TooOften where a tenant has no update left; a rate of 0 limits nobody."""
        if not per_s:
            return
        with self._lock:
            for tenant in sorted(tenants):
                left = self._fill_bucket(tenant, per_s).left
                if left < 1:
                    raise TooOften(
                        f"its list changes more than {per_s:g} times a second: wait {(1 - left) / per_s:.1f} s",
                        place=f"tenants[{tenant}].acl",
                    )

    def take(self, tenants: Iterable[str], per_s: float) -> None:
        """Count updates of some tenants that were committed."""
        if not per_s:
            return
        with self._lock:
            for tenant in tenants:
                self._fill_bucket(tenant, per_s).left -= 1

    def _fill_bucket(self, tenant: str, per_s: float) -> _Bucket:
        now, most = self.clock(), max(1.0, per_s)
        bucket = self._buckets.setdefault(tenant, _Bucket(most, now))
        bucket.left, bucket.at = min(most, bucket.left + (now - bucket.at) * per_s), now
        return bucket


NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class _Sent:
    """The last program of a server: when, and of which generation."""

    at: float
    generation: int


@dataclass(slots=True)
class Windows:
    """Servers with something new for them, by when they are due.

    A lone change goes out at once, many go together later:

        noted     x              x xx x x           x              x
        sent      x              x      x           x              x
                  │◀ under way ▶│ │◀ ... ▶│◀ window: no answer ▶│  nothing under way: at once

    While a server has not been read back to hold the program it was sent, what is new is gathered, for at most a
    window: that is the longest that a change waits here, whatever becomes of the server. Where its program could not be
    made, it is due again later and later. Times are seconds of one clock.
    """

    _due: dict[str, float] = field(default_factory=dict)
    _under_way: dict[str, _Sent] = field(default_factory=dict)
    _unmade: Pauses = field(default_factory=Pauses)
    """Of servers whose programs could not be made."""

    def note(self, server: str, now: float, window_s: float) -> None:
        """Note that there is something new for a server."""
        if server not in self._due or server in self._unmade:
            sent = self._under_way.get(server)
            self._due[server] = now if sent is None else max(now, sent.at + window_s)

    def take(self, server: str, now: float) -> bool:
        """Take a server that is due; later changes are for the next time."""
        if self._due.get(server, NEVER) > now:
            return False
        del self._due[server]
        return True

    def note_failure(self, server: str, now: float) -> None:
        """Note that the program of a due server could not be made."""
        self._due[server] = now + self._unmade.after_failure(server)

    def note_sent(self, server: str, generation: int, now: float) -> None:
        """A server gets a program now."""
        self._unmade.over(server)
        self._under_way[server] = _Sent(now, generation)

    def note_held(self, server: str, generation: int, now: float) -> bool:
        """Note that a server holds a generation; return whether it is due now."""
        sent = self._under_way.get(server)
        if sent is not None and generation >= sent.generation:
            del self._under_way[server]
            if server in self._due:
                self._due[server] = min(self._due[server], now)
        return self._due.get(server, NEVER) <= now

    def is_idle(self, server: str) -> bool:
        """Return whether a server holds its last program, with nothing new for it."""
        return server not in self._due and server not in self._under_way

    def forget(self, server: str) -> None:
        """Forget a server that was removed."""
        self._due.pop(server, None)
        self._under_way.pop(server, None)
        self._unmade.over(server)

    @property
    def due(self) -> list[str]:
        """Those with something new for them, longest due first."""
        return sorted(self._due, key=lambda server: (self._due[server], server))

    @property
    def next_at(self) -> float:
        """When somebody is due next."""
        return min(self._due.values(), default=NEVER)
