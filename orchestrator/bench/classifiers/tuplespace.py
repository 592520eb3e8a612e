"""Tuple space search: rows by shape, as prefixes on every axis. Pure.

    row       10.0.0.0/8 ──▶ :1024-65535          shapes   (/8, /0, 0, /6)  (/8, /0, 0, /5) ... (/8, /0, 0, /1)
    entries   one for each combination of prefixes, six of them here; each shape is one look-up in a hash table

Shapes are asked in the order of the lowest row that each has, so the search ends at the first that cannot have a lower
one (Srinivasan, Suri and Varghese: Packet classification using tuple space search, SIGCOMM 1999; Open vSwitch's
priority sorting).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from orchestrator.compile.filters.cacherows import CacheRow
from orchestrator.policy.spans import Span

Masked = tuple[int, int, int, int, int, int]
"""Source, destination, source port, destination port, protocol, flags: values, or masks."""


@dataclass(frozen=True, slots=True)
class TupleSpace:
    """Shapes in search order, each with its lowest row; entries by shape and masked values."""

    shapes: tuple[tuple[Masked, int], ...]
    entries: Mapping[tuple[int, Masked], int]

    def first(self, packet: Masked) -> tuple[int | None, int]:
        """The first row that holds a packet, and how many look-ups that took."""
        found: int | None = None
        for place, (mask, lowest) in enumerate(self.shapes):
            if found is not None and lowest >= found:
                return found, place
            masked = tuple(value & bits for value, bits in zip(packet, mask, strict=True))
            row = self.entries.get((place, masked))  # type: ignore[arg-type]  # six of them
            if row is not None and (found is None or row < found):
                found = row
        return found, len(self.shapes)


def tuple_space(rows: Sequence[CacheRow]) -> TupleSpace:
    """The shapes and entries of some rows of IPv4, in order."""
    of_shape: dict[Masked, dict[Masked, int]] = {}
    for number, row in enumerate(rows):
        for mask, value in _entries(row):
            of_shape.setdefault(mask, {}).setdefault(value, number)
    lowest = sorted((min(entries.values()), mask) for mask, entries in of_shape.items())
    shapes = tuple((mask, row) for row, mask in lowest)
    entries = {(place, value): row for place, (mask, _) in enumerate(shapes) for value, row in of_shape[mask].items()}
    return TupleSpace(shapes, entries)


def _entries(row: CacheRow) -> Iterator[tuple[Masked, Masked]]:
    """Masks and values of all combinations of a row's prefixes."""
    axes = (
        [*prefixes(row.source, 32)], [*prefixes(row.destination, 32)], [*prefixes(row.source_ports, 16)],
        [*prefixes(row.destination_ports, 16)], [*prefixes(row.protocols, 8)], [(row.flags[0], row.flags[1])],
    )  # fmt: skip
    for (a, am), (b, bm), (c, cm), (d, dm), (e, em), (f, fm) in product(*axes):
        yield (am, bm, cm, dm, em, fm), (a, b, c, d, e, f)


def prefixes(span: Span, bits: int) -> Iterator[tuple[int, int]]:
    """A span as prefixes: values and masks, ascending."""
    low, whole = span.low, (1 << bits) - 1
    while low <= span.high:
        size = min(low & -low or 1 << bits, 1 << ((span.high - low + 1).bit_length() - 1))
        yield low, whole & ~(size - 1)
        low += size
