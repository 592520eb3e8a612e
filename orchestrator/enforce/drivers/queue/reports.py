"""Reports of logged packets with their rules' cookies, limited for each tenant.

A report takes a token of the tenant's bucket. Tenants have one each, whatever the worker, so a flood of one never hides
the packets of another.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from orchestrator.classify.packets import packet_of
from orchestrator.enforce.drivers.filters.nflog import Seen
from orchestrator.enforce.drivers.queue.buckets import Buckets
from orchestrator.enforce.drivers.queue.lists import Judged, Lists, Logged
from orchestrator.enforce.drivers.queue.machine import Batch


class Reports:
    """Tells of packets. Workers share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seen: Seen | None = None
        self._buckets = Buckets(clock)

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
        limit = logged.limit
        return self._buckets.take(logged.tenant, 1, rate=limit.rate, burst=limit.burst) == 1
