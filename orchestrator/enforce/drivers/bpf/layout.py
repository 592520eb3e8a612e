"""A set of rows as bytes of a map's value, and back.

The layout is `struct flow_set` of `_native/flowcache.h`.

    0       serial                                    8       no other set's
    8       generation, digest                        8 + 16  the policy that the rows are of
    32      rows of IPv4, rows of IPv6                4 + 4
    40      source check                              1 + 7
    48      bits that rows of IPv4 look at            16
    64      bits that rows of IPv6 look at            40
    104     MOST_ROWS rows of IPv4                    28 each
    7272    MOST_ROWS rows of IPv6                    80 each
    27752   outcomes of IPv4, then of IPv6            8 each: three counters, the verdict, padding

A row's bytes are those of its match (`compile/filters/cacherows.py`). Whom it counts for are cookies in a program, and
places in the array of counters here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.compile.filters.cacherows import MOST_COUNTED, CacheRow, Verdict
from orchestrator.compile.filters.flowcache import MOST_ROWS
from orchestrator.enforce.driver import Stamp
from orchestrator.errors import Refused
from orchestrator.policy.addresses import Family
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.spans import Span
from orchestrator.program.canonical import DIGEST_BYTES

MOST_COUNTERS = 16384
COUNTER = struct.Struct("<QQ")
"""Packets and bytes."""

_HEAD = struct.Struct(f"<QQ{DIGEST_BYTES}sIIB7x")
_LOOKED = {Family.IPV4: struct.Struct("<IIHHBB2x"), Family.IPV6: struct.Struct("<QQQQHHBB2x")}
_ROW_BYTES = {Family.IPV4: 28, Family.IPV6: 80}
_OUTCOME = struct.Struct(f"<{MOST_COUNTED}HBx")
OUTCOME_BYTES = _OUTCOME.size
_HALF = (1 << 64) - 1
SET_BYTES = _HEAD.size + sum(
    _LOOKED[family].size + MOST_ROWS * (_ROW_BYTES[family] + OUTCOME_BYTES) for family in Family
)


BY_LEG = 3
"""A source is believed where a route leads back to it, in IPv6 too: where legs are declared."""


@dataclass(frozen=True, slots=True)
class FlowSet:
    """The rows in the kernel's cache, IPv4 first, and the stamp of their policy.

    `source_check` is what rp_filter says: 0 no check, 1 strict, 2 loose; or `BY_LEG`.
    """

    rows: tuple[CacheRow, ...]
    stamp: Stamp
    source_check: int = 0

    def of(self, family: Family) -> list[CacheRow]:
        """The rows of one IP version."""
        return [row for row in self.rows if row.family is family]


def pack(held: FlowSet, serial: int, counter: Callable[[int], int]) -> bytes:
    """Pack a set.

    `counter` gives the place of a cookie's counter. Raises Refused for more rows than have room.
    """
    by_family = {family: held.of(family) for family in Family}
    sizes = [len(rows) for rows in by_family.values()]
    if max(sizes) > MOST_ROWS:
        raise Refused(f"{max(sizes)} rows of one IP version: a flow cache has room for {MOST_ROWS}")
    head = _HEAD.pack(serial, held.stamp.generation, held.stamp.digest, *sizes, held.source_check)
    looked = (looked_at(family, rows) for family, rows in by_family.items())
    matches = (
        b"".join(row.match for row in rows).ljust(MOST_ROWS * _ROW_BYTES[family], b"\0")
        for family, rows in by_family.items()
    )
    outcomes = (
        b"".join(outcome(row, counter) for row in rows).ljust(MOST_ROWS * OUTCOME_BYTES, b"\0")
        for rows in by_family.values()
    )
    return b"".join((head, *looked, *matches, *outcomes))


def unpack(data: bytes, cookies: Mapping[int, int]) -> FlowSet:
    """Unpack a set.

    `cookies` are those of the counters. Raises ValueError for other bytes.
    """
    _, generation, digest, *sizes, source_check = _HEAD.unpack_from(data)
    if max(sizes) > MOST_ROWS:
        raise ValueError(f"{max(sizes)} rows of one IP version")
    rows: list[CacheRow] = []
    match_at = _HEAD.size + sum(looked.size for looked in _LOOKED.values())
    outcome_at = match_at + MOST_ROWS * sum(_ROW_BYTES.values())
    for size, width in zip(sizes, _ROW_BYTES.values(), strict=True):
        for place in range(size):
            *counters, verdict = _OUTCOME.unpack_from(data, outcome_at + place * OUTCOME_BYTES)
            start = match_at + place * width
            counts = tuple(cookies.get(each, 0) for each in counters if each != MOST_COUNTERS)
            rows.append(CacheRow.of(data[start : start + width], Verdict(verdict), counts))
        match_at += MOST_ROWS * width
        outcome_at += MOST_ROWS * OUTCOME_BYTES
    return FlowSet(tuple(rows), Stamp(generation, digest), source_check)


def outcome(row: CacheRow, counter: Callable[[int], int]) -> bytes:
    """Pack the outcome of a row."""
    places = [counter(cookie) for cookie in row.counts]
    return _OUTCOME.pack(*places, *[MOST_COUNTERS] * (MOST_COUNTED - len(places)), row.verdict)


def looked_at(family: Family, rows: Sequence[CacheRow]) -> bytes:
    """The bits of a packet on which the rows' answers depend, field by field."""
    sides = [_bits([getattr(row, name) for row in rows], (1 << family.bits) - 1) for name in ("source", "destination")]
    halves = sides if family is Family.IPV4 else [half for side in sides for half in (side >> 64, side & _HALF)]
    ports = [_bits([getattr(row, f"{name}_ports") for row in rows], HIGHEST_PORT) for name in ("source", "destination")]
    flags = 0
    for row in rows:
        flags |= row.flags[1]
    return _LOOKED[family].pack(*halves, *ports, _bits([row.protocols for row in rows], 0xFF), flags)


def _bits(ranges: Iterable[Span], everything: int) -> int:
    """The bits on which it depends in which of some ranges a value lies.

    A range that begins and ends at multiples of 2^t says nothing of the t bits below.
    """
    looked = 0
    for low, high in ranges:
        ends = low | (high + 1)
        looked |= everything & ~((ends & -ends) - 1)
    return looked
