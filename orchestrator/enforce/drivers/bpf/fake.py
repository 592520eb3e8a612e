"""The flow cache's kernel in memory: it holds rows, decides and counts packets."""

from __future__ import annotations

import numpy as np

from orchestrator.compile.filters.cacherows import Verdict
from orchestrator.enforce.drivers.bpf.layout import FlowSet, pack
from orchestrator.enforce.drivers.bpf.program import Counted
from orchestrator.policy.model import Packet


class FakeKernel:
    """The kernel of one machine.

    Counters stay when a set goes, as the real kernel's do.
    """

    def __init__(self) -> None:
        self._held: FlowSet | None = None
        self._counts: dict[int, tuple[int, int]] = {}

    def close(self) -> None:
        """Stop deciding, so that the filter behind decides all packets."""
        self._held = None

    def open(self, held: FlowSet) -> None:
        """Decide by these rows. Raises Refused for what does not fit."""
        pack(held, 1, lambda cookie: len(self._counts.setdefault(cookie, (0, 0))))
        self._held = held

    def read(self) -> FlowSet | None:
        """Return the active set."""
        return self._held

    def read_counters(self) -> Counted:
        """Every counter there ever was."""
        columns = np.array([(cookie, *counts) for cookie, counts in self._counts.items()], np.uint64).reshape(-1, 3)
        return Counted(1, columns[:, 0], columns[:, 1], columns[:, 2])

    def decide(self, packet: Packet, size: int) -> Verdict:
        """Return the verdict for a packet to be forwarded; DEFER leaves it to the filter."""
        rows = self._held.rows if self._held is not None else ()
        row = next((row for row in rows if row.holds(packet)), None)
        if row is None or row.verdict is Verdict.DEFER:
            return Verdict.DEFER
        for cookie in row.counts:
            packets, total = self._counts[cookie]
            self._counts[cookie] = (packets + 1, total + size)
        return row.verdict
