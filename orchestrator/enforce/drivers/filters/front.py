"""A cache before a packet filter, which must not outlive the filter's policy.

    close ──▶ the filter changes ──▶ it is read back with the new stamp ──▶ open

From the return of `close` on every packet is the filter's again; only when the filter was read back to hold the new
program is the cache opened, for that program. So at no time does the cache decide by another policy than the filter:
where it is behind, it is closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import structlog

from orchestrator.enforce.changing import Changing, change_wholly
from orchestrator.enforce.driver import Hits, Observed, Stamp
from orchestrator.enforce.standing import Device
from orchestrator.errors import AclflowError, Drifted
from orchestrator.program.delta import Delta
from orchestrator.program.flows import U64, FlowTable

log = structlog.get_logger()


class Front(Protocol):
    """A cache. Its rows are those of the program that the filter's driver passes over."""

    def close(self) -> None:
        """Stop deciding, so that the filter behind decides all packets.

        An error means that this is not certain, and nothing is changed.
        """
        ...

    def open(self, rows: FlowTable, stamp: Stamp) -> None:
        """Hold these rows of the program that the filter's stamp names, and begin to decide."""
        ...

    def observe(self) -> FlowTable:
        """Return its rows read back; none while it is closed.

        Raises Drifted for rows that aclflow did not write.
        """
        ...

    def resolve(self, rows: FlowTable) -> FlowTable:
        """The rows of a program that are the cache's, as it reads them back."""
        ...

    def hits(self) -> Hits:
        """Return its counts by rule; the filter has not seen these packets."""
        ...


@dataclass(frozen=True, slots=True)
class _Pending:
    """The cache's next content, used once the filter is read back with a stamp."""

    rows: FlowTable
    stamp: Stamp


class Fronted:
    """A filter with a cache in front: one device."""

    def __init__(self, device: Device, front: Front) -> None:
        self._device = device
        self._front = front
        self._pending: _Pending | None = None
        front.close()  # what a predecessor left open may be of another policy

    def claim(self, epoch: int) -> bool:
        """Claim the filter for an epoch."""
        return self._device.claim(epoch)

    def resolve(self, flows: FlowTable, symbols: tuple[str, ...]) -> FlowTable:
        """The filter's rows and the cache's."""
        return FlowTable.join_tables([self._device.resolve(flows, symbols), self._front.resolve(flows)])

    def observe(self, cookies: U64 | None = None) -> Observed:
        """Observe both; open the cache once the filter holds what it was closed for."""
        found = self._device.observe(cookies)
        pending, self._pending = self._pending, None
        if pending is not None and found.stamp == pending.stamp:
            try:
                self._front.open(pending.rows, pending.stamp)
            except AclflowError as error:
                log.warning("front.stays_closed", error=str(error))
        cached = self._read_cache()
        if cookies is not None:
            cached = cached.take(np.flatnonzero(np.isin(cached.cookie, cookies)))
        return Observed(FlowTable.join_tables([found.flows, cached]), found.stamp)

    def apply(self, delta: Delta, stamp: Stamp) -> None:
        """Close the cache and change the filter; the cache opens when that is read back."""
        rows = {row.key: row for row in self._read_cache().rows()}
        self._pending = None
        self._front.close()
        self._device.apply(delta, stamp)
        for row in self._front.resolve(delta.removed).rows():
            rows.pop(row.key, None)
        rows.update({row.key: row for row in self._front.resolve(delta.added).rows()})
        self._pending = _Pending(FlowTable.of(rows.values()), stamp)

    def change(self, delta: Delta, stamp: Stamp) -> Changing:
        """Apply a change and read it back; counters are read right before."""
        return change_wholly(self, delta, stamp)

    def counter_keys(self, flows: FlowTable) -> U64 | None:
        """Return the filter's counter keys."""
        return self._device.counter_keys(flows)

    def hits(self) -> Hits:
        """The counters of both."""
        return _join_hits(self._device.hits(), self._front.hits())

    def _read_cache(self) -> FlowTable:
        """Return the cache's rows; close one with foreign content, which has none."""
        try:
            return self._front.observe()
        except Drifted as error:
            log.warning("front.closed", error=str(error))
            self._front.close()
            return self._front.observe()


def _join_hits(*parts: Hits) -> Hits:
    columns = ("key", "cookie", "packets", "bytes", "idle_s", "age_s")
    return Hits(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))
