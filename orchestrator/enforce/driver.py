"""The boundary every data plane is driven through: observe, apply, hits.

A driver owns one device (a switch, a network namespace's rule set). It is idempotent: applying what is there already
changes nothing. `apply` is one transaction: afterwards the device holds all of it or none of it. There are two kinds of
error: `Unreachable` (try again) and `DeviceError` (Refused: the device said no; Drifted: resynchronise).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from orchestrator.program.delta import Delta
from orchestrator.program.flows import U32, U64, FlowTable


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a device says it holds: written in the same transaction as the flows, so it cannot be ahead of them."""

    generation: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Observed:
    """What a device holds: every flow but the stamp, and the stamp if it carries one."""

    flows: FlowTable
    stamp: Stamp | None


@dataclass(frozen=True, slots=True)
class Hits:
    """Counters by cookie, summed over the flow entries that share it; `idle_s` is the smallest. Columns of one size."""

    cookie: U64
    packets: U64
    bytes: U64
    idle_s: U32


class Driver(Protocol):
    """One device."""

    def observe(self, cookies: U64 | None = None) -> Observed:
        """Read the flows back: all of them, or only those of some cookies."""
        ...

    def apply(self, delta: Delta, stamp: Stamp) -> None:
        """Remove and add flows and write the stamp, all or nothing."""
        ...

    def hits(self) -> Hits:
        """Read the counters of every rule."""
        ...
