"""The boundary every data plane is driven through: observe, apply, hits.

A driver owns one device (a switch, a network namespace's rule set). It is idempotent: applying what is there already
changes nothing. `apply` is one transaction: afterwards the device holds all of it or none of it. There are two kinds of
error: `Unreachable` (try again) and `DeviceError` (Refused: the device said no; Drifted: resynchronise).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from orchestrator.program.delta import Delta
from orchestrator.program.flows import U32, U64, FlowTable

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stamp:
    """A device's statement of its program, written in the flows' transaction.

    So it cannot be ahead of them.
    """

    generation: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Observed:
    """A device's content: every flow but the stamp, and the stamp if any.

    `ports` are the interfaces that a whole observation found, before it read flows; None where rows name no interface.
    """

    flows: FlowTable
    stamp: Stamp | None
    ports: frozenset[str] | None = None


UNKNOWN_IDLE_S = (1 << 32) - 1
"""The value taken where a device does not say when it last saw a packet."""


@dataclass(frozen=True, slots=True)
class Hits:
    """A device's counters as columns, one row each; a rule may have many.

    `key` names the counter: under one key it only grows, unless the device itself begins anew. `idle_s` is how long ago
    its last packet was, or `UNKNOWN_IDLE_S`; `age_s` how long the counter has been there, nan where nobody knows.
    """

    key: U64
    cookie: U64
    packets: U64
    bytes: U64
    idle_s: U32
    age_s: F64

    def __len__(self) -> int:
        return len(self.key)

    @classmethod
    def by_cookie(cls, cookie: U64, packets: U64, byte_counts: U64, idle_s: U32) -> Hits:
        """Make hits of a device that keeps one counter a cookie."""
        return cls(cookie, cookie, packets, byte_counts, idle_s, np.full(len(cookie), np.nan))

    def take(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Hits:
        """Select some rows, by mask or index."""
        counts = self.packets[rows], self.bytes[rows]
        return Hits(self.key[rows], self.cookie[rows], *counts, self.idle_s[rows], self.age_s[rows])


class Driver(Protocol):
    """One device."""

    def observe(self, cookies: U64 | None = None) -> Observed:
        """Read the flows back: all of them, or only those of some cookies."""
        ...

    def apply(self, delta: Delta, stamp: Stamp) -> None:
        """Remove and add flows and write the stamp, all or nothing."""
        ...

    def hits(self) -> Hits:
        """Read the counters of every rule: a row for each that the device keeps."""
        ...
