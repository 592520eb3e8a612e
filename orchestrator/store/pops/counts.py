"""Counts of an edge: where packets from outside went, by cookies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from orchestrator.compile.cookies import HIGHEST_NUMBER, Cookie, Kind
from orchestrator.program.counts import Counts
from orchestrator.program.program import Tier
from orchestrator.store.hits.history import HitHistory
from orchestrator.store.transaction import Transaction

_KIND_SHIFT = np.uint64(48)


@dataclass(frozen=True, slots=True)
class Counted:
    """Packets and bytes."""

    packets: int = 0
    bytes: int = 0

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.packets + other.packets, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class EdgeCounts:
    """The counts of an edge's parts so far.

    Heavy hitters by rule number, exceptions and lines by the number of the server, packets to nobody, and those from
    outside with a tenant's address.
    """

    heavy: Mapping[int, Counted]
    exceptions: Mapping[int, Counted]
    lines: Mapping[int, Counted]
    nobody: Counted
    spoofed: Counted


def edge_counts(tx: Transaction, domain: str) -> EdgeCounts:
    """Return the counts of a domain's edge switches together."""
    totals = HitHistory(tx, domain).totals()
    return EdgeCounts(
        heavy=_select_kind(totals, Kind.RULE),
        exceptions=_select_kind(totals, Kind.EXCEPTION),
        lines=_select_kind(totals, Kind.LINE),
        nobody=_select_kind(totals, Kind.NOBODY).get(0, Counted()),
        spoofed=_select_kind(totals, Kind.SPOOFED).get(0, Counted()),
    )


def _select_kind(totals: Counts, kind: Kind) -> Mapping[int, Counted]:
    wanted = np.uint64(Cookie(Tier.EDGE, kind).pack()) >> _KIND_SHIFT
    mine = totals.take(totals.cookie >> _KIND_SHIFT == wanted)
    numbers = (mine.cookie & np.uint64(HIGHEST_NUMBER)).tolist()
    counted = zip(mine.packets.tolist(), mine.byte_counts.tolist(), strict=True)
    return MappingProxyType({number: Counted(*each) for number, each in zip(numbers, counted, strict=True)})
