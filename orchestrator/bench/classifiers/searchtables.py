"""Two other searches of general rows, as tables in memory. Pure.

Tuple space search: rows by shape, as prefixes on every axis.

    row       10.0.0.0/8 ──▶ :1024-65535          shapes   (/8, /0, 0, /6)  (/8, /0, 0, /5) ... (/8, /0, 0, /1)
    entries   one for each combination of prefixes, six of them here; each shape is one look-up in a hash table

Shapes are asked in the order of the lowest row that each has, so the search ends at the first that cannot have a lower
one (Srinivasan, Suri and Varghese: Packet classification using tuple space search, SIGCOMM 1999; Open vSwitch's
priority sorting).

Recursive flow classification: the classes of axes are combined in tables, two at a time.

    source ─┐
            ├─▶ address pair ──────────────┐
    destination                            ├─▶ row
    source port ─┐                         │
                 ├─▶ port pair ─┐          │
    destination port            ├─▶ upper ─┘
    protocol, flags ────────────┘

A cell of a table is the class of a pair: pairs that the same rows reach into are one. Tables are what it costs: the
first has as many cells as there are classes of both axes (Gupta and McKeown, SIGCOMM 1999). Axes and their classes are
those of bit vectors (`compile/servers/bitvectors.py`), so both begin with the same five searches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from orchestrator.compile.filters.cacherows import CacheRow
from orchestrator.compile.servers.bitvectors import U64, Vectors
from orchestrator.errors import TooLarge
from orchestrator.policy.spans import Span

Masked = tuple[int, int, int, int, int, int]
"""Source, destination, source port, destination port, protocol, flags: values, or masks."""
U32 = npt.NDArray[np.uint32]

_WEIGHT_BITS = 38
"""Sums of weights of 16,384 rows are whole numbers of at most 52 bits, which floats hold exactly."""
_CHUNK = 4096


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


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A table: the class of each pair, and each class's vector of rows."""

    cells: U32
    vectors: U64


@dataclass(frozen=True, slots=True, eq=False)
class Recursive:
    """The four tables in the order address pair, port pair, upper, row."""

    tables: tuple[U32, ...]

    @property
    def memory_bytes(self) -> int:
        """The size in bytes."""
        return sum(table.nbytes for table in self.tables)


def recursive(vectors: Vectors, rows: int, most_cells: int) -> Recursive:
    """Build all tables for rows.

    Raises TooLarge where one of them would have more cells than `most_cells`.
    """
    source, destination, source_port, port, protocol = (each.vectors for each in vectors.axes)
    _check_cells("first", source, destination, most_cells)
    ports = _build_pair_table(source_port, port, rows)
    upper = _build_pair_table(ports.vectors, protocol, rows)
    pair = _build_pair_table(source, destination, rows)
    _check_cells("last", pair.vectors, upper.vectors, most_cells)
    return Recursive((pair.cells, ports.cells, upper.cells, _rows(pair.vectors, upper.vectors, rows)))


def _check_cells(which: str, left: U64, right: U64, most_cells: int) -> None:
    cells = len(left) * len(right)
    if cells > most_cells:
        raise TooLarge(f"the {which} table would have {cells:,} cells ({len(left):,} x {len(right):,} classes)")


def _build_pair_table(left: U64, right: U64, rows: int) -> Node:
    """Build the table of two sets of vectors.

    Sets of rows are identified by the sum of their rows' random weights.
    """
    weights = np.random.default_rng(1).integers(1, 1 << _WEIGHT_BITS, (2, rows)).astype(np.float64)
    ones, others = _unpack_bits(left, rows), _unpack_bits(right, rows).T
    sums = [(ones * weight) @ others for weight in weights]
    both = np.stack([each.ravel() for each in sums], axis=1).astype(np.uint64)
    whole = np.ascontiguousarray(both).view("V16").ravel()
    _, first, classes = np.unique(whole, return_index=True, return_inverse=True)
    at, beside = np.divmod(first, len(right))
    return Node(classes.astype(np.uint32).reshape(len(left), len(right)), left[at] & right[beside])


def _unpack_bits(vectors: U64, rows: int) -> npt.NDArray[np.float64]:
    packed = vectors.astype("<u8").view(np.uint8)
    return np.unpackbits(packed, axis=1, count=rows, bitorder="little").astype(np.float64)


def _rows(left: U64, right: U64, rows: int) -> U32:
    """Return each pair's lowest common row; the number of bits where there is none."""
    found = np.empty((len(left), len(right)), np.uint32)
    none, words = left.shape[1] * 64, -(-rows // 64)
    left, right = np.ascontiguousarray(left[:, :words]), right[:, :words]
    for first in range(0, len(left), _CHUNK):
        part = left[first : first + _CHUNK]
        for place, other in enumerate(right):
            common = part & other
            word = (common != 0).argmax(axis=1)
            value = common[np.arange(len(part)), word]
            lowest = np.bitwise_count((value & (~value + np.uint64(1))) - np.uint64(1))
            found[first : first + len(part), place] = np.where(value == 0, none, word * 64 + lowest)
    return found
