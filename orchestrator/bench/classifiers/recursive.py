"""Recursive flow classification: combine the classes of axes in tables, two at a time. Pure.

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

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.compile.servers.bitvectors import U64, Vectors
from orchestrator.errors import TooLarge

U32 = npt.NDArray[np.uint32]

_WEIGHT_BITS = 38
"""Sums of weights of 16,384 rows are whole numbers of at most 52 bits, which floats hold exactly."""
_CHUNK = 4096


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
