"""Limits of list changes: a token bucket a tenant, of one second's updates.

A caller that takes more is told when to come back, and everybody else is served as before. An update is counted when it
is committed, so what was refused or rolled back costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from orchestrator.errors import TooOften


@dataclass(slots=True)
class _Bucket:
    """How many updates are left, as of a time."""

    left: float
    at: float


@dataclass(slots=True)
class UpdateRates:
    """The buckets of one domain's tenants. Safe between threads; `clock` gives seconds."""

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
        """Updates of some tenants were committed."""
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
