"""The flow cache for the agent's loop: a program's rows before a packet filter.

See `filters/front.py`.

    close ──▶ the filter changes ──▶ open

A policy's rows reach the kernel only behind the policy itself, and leave it before. Where something on the machine
decides about packets that the cache would pass by (`around.py`), it holds no rows, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import structlog

from orchestrator.compile.filters.cacherows import FLOWCACHE, CacheRow, cache_table, families, read_table
from orchestrator.compile.filters.legs import NO_LEGS, Legs
from orchestrator.compile.filters.rows import Plane
from orchestrator.enforce.driver import UNKNOWN_IDLE_S, Hits, Stamp
from orchestrator.enforce.drivers.bpf.around import Around, look_around
from orchestrator.enforce.drivers.bpf.kernel import KernelCache
from orchestrator.enforce.drivers.bpf.layout import BY_LEG, FlowSet
from orchestrator.enforce.drivers.bpf.program import Counted
from orchestrator.errors import Missing
from orchestrator.policy.addresses import Family
from orchestrator.program.flows import FlowTable

log = structlog.get_logger()

NO_STAMP = Stamp(0, bytes(16))
"""For whoever opens a cache without saying of which policy."""


_KEYS = 0xCAC4E << 44


class Kernel(Protocol):
    """The holder of the rows: the kernel, or a fake."""

    def close(self) -> None: ...
    def open(self, held: FlowSet) -> None: ...
    def read(self) -> FlowSet | None: ...
    def read_counters(self) -> Counted: ...


class BpfFront:
    """A flow cache at interfaces of the current network namespace, before a plane's filter."""

    def __init__(
        self,
        interfaces: Sequence[str],
        plane: Plane,
        kernel: Kernel | None = None,
        around: Callable[[Sequence[str], Plane], Around] = look_around,
        table: int = FLOWCACHE,
        *,
        legs: Legs = NO_LEGS,
    ) -> None:
        self._table = table
        self._legs = legs
        self._kernel = kernel or KernelCache(interfaces)
        self._look = partial(around, tuple(interfaces), plane)
        self._around = self._look()
        self._lacks: str | None = None
        self._opened: tuple[tuple[CacheRow, ...], FlowTable] = (), cache_table(())
        """What was opened last, as a cache's rows and a program's, where rows that do not meet may share a priority."""

    def close(self) -> None:
        """From now on decide nothing. An error means that this is not certain."""
        self._kernel.close()

    def open(self, rows: FlowTable, stamp: Stamp = NO_STAMP) -> None:
        """Hold these rows of the stamp's policy and start deciding.

        Without rows stay closed.

        Raises Missing on a machine that lacks what a flow cache needs, and from then on it has no rows here.
        """
        self._around = self._look()
        mine = self.resolve(rows)
        found = read_table(mine)
        if not found:
            return
        try:
            self._kernel.open(FlowSet(found, stamp, self._source_check))
        except Missing as error:
            self._lacks = str(error)
            raise
        self._opened = found, mine

    def observe(self) -> FlowTable:
        """Return the rows read back.

        None while it is closed, or when it would have to be opened anew.
        """
        self._look_again()
        held = self._kernel.read()
        if held is None or held.source_check != self._source_check:
            return cache_table(())
        rows, table = self._opened
        return table if held.rows == rows else cache_table(held.rows, self._table)

    def resolve(self, rows: FlowTable) -> FlowTable:
        """Those rows of a program that the cache would hold here."""
        mine = rows.take(np.flatnonzero(rows.table == self._table))
        if self._around.bystanders or self._lacks:
            return mine.take(np.zeros(len(mine), np.bool_))
        if self._around.forwards_ipv6:
            return mine
        return mine.take(np.flatnonzero(families(mine) == Family.IPV4))

    def hits(self) -> Hits:
        """Return the cache's counts by rule."""
        found = self._kernel.read_counters()
        # A key of a flow cache's counter: nobody else's has this form, and it is another when counters begin anew.
        key = found.cookie ^ np.uint64(_KEYS | found.epoch << 8)
        idle, age = np.full(len(key), UNKNOWN_IDLE_S, np.uint32), np.full(len(key), np.nan)
        return Hits(key, found.cookie, found.packets, found.bytes, idle, age)

    @property
    def _source_check(self) -> int:
        """Return how sources are checked against interfaces: by the kernel, or by declared legs."""
        return BY_LEG if self._legs.names else self._around.source_check

    def _look_again(self) -> None:
        before, self._around = self._around, self._look()
        if self._around.bystanders and self._around != before:
            log.warning("flow_cache.stays_closed", would_pass_by=list(self._around.bystanders))
