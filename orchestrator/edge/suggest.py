"""Suggest a chunk size and heavy-hitter share for a target, or the TCAM needed.

Small chunks give tenants little more than they own, large ones keep lines empty; entries for heavy hitters are taken
from the lines. So the smallest chunks are looked for that reach the target with the heavy hitters' share as it is, then
the largest share that still does. If chunks of no size do, the share gives way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.edge.planner import Cloud, Tcam, filters_of

SMALLEST, LARGEST = 1 << 8, 1 << 80
"""Chunks that are looked at: from 256 addresses to an IPv6 /48, as long a prefix as the switch's hash takes."""
_HALVINGS = 12
_MOST_ENTRIES = 1 << 40


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A chunk size and share that reach the target, or a sufficient TCAM's `entries`."""

    chunk_size: int | None
    heavy_share: float
    union_rate: float
    entries: int | None
    because: str


def suggest(cloud: Cloud, tcam: Tcam, target: float) -> Suggestion:
    """Suggest settings that reach a union rate of at most `target`."""
    for share in (tcam.heavy_share, 0.0):
        size = _smallest(cloud, replace(tcam, heavy_share=share), target)
        if size is not None:
            best = _largest_share(cloud, tcam, size, share, target)
            rate = filters_of(cloud, size, replace(tcam, heavy_share=best)).union_rate
            return Suggestion(size, best, rate, tcam.entries, _explain_size(cloud, size, share == tcam.heavy_share))
    return _nothing(cloud, tcam, target)


def _smallest(cloud: Cloud, tcam: Tcam, target: float) -> int | None:
    """The smallest size that reaches the target: larger ones never take more chunks."""
    size = SMALLEST
    while size <= LARGEST:
        found = filters_of(cloud, size, tcam)
        if found.union_rate <= target:
            return size
        if found.chunks == cloud.tenants * cloud.blocks_a_tenant:  # one a block: it gets no better
            return None
        size *= 2
    return None


def _largest_share(cloud: Cloud, tcam: Tcam, size: int, enough: float, target: float) -> float:
    """The largest share from `enough` on that still reaches the target, to about a thousandth."""
    low, high = enough, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        tried = replace(tcam, heavy_share=middle)
        if tried.lines >= 1 and filters_of(cloud, size, tried).union_rate <= target:
            low = middle
        else:
            high = middle
    return low


def _explain_size(cloud: Cloud, size: int, kept: bool) -> str:
    chunks = cloud.chunks(size)
    text = f"the smallest chunks that reach it; {chunks:,} of them give away {1 - cloud.vms / (chunks * size):.1%}"
    return text if kept else f"{text}; only with fewer heavy hitters than asked for"


def _nothing(cloud: Cloud, tcam: Tcam, target: float) -> Suggestion:
    """Return the least reachable rate, and the entries that would suffice.

    They suffice with a chunk for each block.
    """
    size = SMALLEST
    while cloud.chunks(size) > cloud.tenants * cloud.blocks_a_tenant and size < LARGEST:
        size *= 2
    least = filters_of(cloud, size, replace(tcam, heavy_share=0.0)).union_rate
    entries = tcam.entries
    while entries < _MOST_ENTRIES:
        entries *= 2
        if filters_of(cloud, size, replace(tcam, entries=entries)).union_rate <= target:
            break
    else:
        return Suggestion(None, 0.0, least, None, "no TCAM reaches it: lines are too narrow for a single chunk each")
    because = f"a chunk for each block already leaves {least:.3g}; a TCAM of {entries:,} entries would do"
    return Suggestion(None, 0.0, least, entries, because)
