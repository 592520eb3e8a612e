"""How often a tenant, or an administrator's token, may ask for changes.

Each has a bucket, which is filled at a steady rate:

    tenant 'red'     [#######   ]   1,200 a minute, 1,200 at once      all its members' tokens together
    token 7          [##########]   60,000 a minute                    an administrator's

Enforcement points have buckets of nobody: how often they report is their loop's business, and they report their own
switches alone.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from orchestrator.errors import TooOften
from orchestrator.store.records import Principal, Role

_MOST = 10_000
"""Buckets in memory; the one that was used longest ago, which is full again, goes first."""


@dataclass(slots=True)
class _Bucket:
    """The tokens that are left, and when they were counted."""

    left: float
    at: float


class Rates:
    """The buckets of one service.

    Safe between threads. `ticks` is in seconds and never goes back.
    """

    def __init__(
        self,
        tenant_a_minute: float = 1_200.0,
        administrator_a_minute: float = 60_000.0,
        *,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tenant = tenant_a_minute
        self._administrator = administrator_a_minute
        self._ticks = ticks
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, principal: Principal) -> None:
        """Count a request for a change. Raises TooOften, with how long to wait."""
        if principal.role is Role.ENFORCER:
            return
        if principal.tenant is not None:
            whose, a_minute = f"tenant '{principal.tenant}'", self._tenant
        else:
            whose, a_minute = f"token {principal.token_id}", self._administrator
        with self._lock:
            missing = self._take(whose, a_minute)
        if missing > 0:
            wait_s = ceil(missing * 60 / a_minute)
            raise TooOften(
                f"{whose} may ask for {a_minute:g} changes a minute: come back in {wait_s} s", after_s=wait_s
            )

    def _take(self, whose: str, a_minute: float) -> float:
        """Take one from a bucket; return how much is missing for that."""
        now = self._ticks()
        bucket = self._buckets.setdefault(whose, _Bucket(a_minute, now))
        self._buckets.move_to_end(whose)
        while len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
        bucket.left = min(a_minute, bucket.left + (now - bucket.at) * a_minute / 60)
        bucket.at = now
        if bucket.left < 1:
            return 1 - bucket.left
        bucket.left -= 1
        return 0.0
