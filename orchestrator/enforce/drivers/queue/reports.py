"""Reports of logged packets with their rules' cookies, limited for each tenant.

A measure is a bucket of tokens: it fills by `rate` a second up to `burst`, and a report takes one. Tenants have a
measure each, whatever the worker, so a flood of one never hides the packets of another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.classify.packets import packet_of
from orchestrator.enforce.drivers.filters.nflog import Seen
from orchestrator.enforce.drivers.queue.lists import Judged, Lists, Logged
from orchestrator.enforce.drivers.queue.machine import Batch


@dataclass(slots=True)
class _Bucket:
    """Tokens that were there at a time."""

    tokens: float
    at_s: float


class Reports:
    """Tells of packets. Workers share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seen: Seen | None = None
        self._clock = clock
        self._turn = threading.Lock()
        self._buckets: dict[int, _Bucket] = {}

    def report(self, lists: Lists, judged: Judged, batch: Batch) -> None:
        """Tell of the packets of a batch that were counted by rows that log."""
        seen = self.seen
        if seen is None or not lists.logs:
            return
        for rows, packets in judged.counted:
            for row, packet in zip(rows.tolist(), packets.tolist(), strict=True):
                logged = lists.logs.get(row)
                if logged is not None and self._has_room(logged):
                    record = batch.packets[packet]
                    seen(logged.cookie, packet_of(record), int(record["octets"]))

    def _has_room(self, logged: Logged) -> bool:
        """Take a token of the tenant's, if there is one."""
        now_s, limit = self._clock(), logged.limit
        with self._turn:
            bucket = self._buckets.setdefault(logged.tenant, _Bucket(limit.burst, now_s))
            bucket.tokens = min(limit.burst, bucket.tokens + limit.rate * (now_s - bucket.at_s))
            bucket.at_s = now_s
            if bucket.tokens < 1:
                return False
            bucket.tokens -= 1
            return True
