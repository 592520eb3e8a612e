"""Rows as bit vectors with aggregation.

Lakshman and Stiliadis, SIGCOMM 1998; Baboescu and Varghese, SIGCOMM 2001.

    axis         class of a packet                         vector of a class
    source       the span of addresses that it lies in     bit r: row r holds these addresses
    port, ...    what a table says for each value          bit r: row r holds these ports

The AND of a packet's vectors has a bit for each row that holds the packet; the lowest is the first row. A vector has an
*aggregate*, a bit for each of its words that says whether the word is not zero. Words of which some aggregate says zero
are not read. An axis with one class is one where every row holds everything; the kernel leaves it out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.classify.columns import I32, PARTS, U64, Columns
from orchestrator.classify.devices.tables import U32, in_words, words_of
from orchestrator.errors import TooLarge

MOST_WORDS = 1 << 29
"""Words of all vectors together: 2 GiB, as much as a device gives in one piece nearly everywhere."""

_AXES = len(PARTS) + 1
_PORTS = 1 << 16
_ADDRESS_STEP = {1: 1 << 32, 4: 1}
"""From one address to the next: in the upper half of IPv4's, in the lower half of IPv6's."""


def vectors_of(columns: Columns, most_words: int = MOST_WORDS) -> U32:
    """The vectors of some rows, as `kernels/models.c` reads them. Raises TooLarge beyond `most_words`."""
    vector_words = _count_words(len(columns))
    header, parts, at = [vector_words, _count_words(vector_words)], [], 2 + 4 * _AXES
    for number in range(_AXES):
        lookup, bits = _axis(columns, number, most_words - at)
        header.append(len(bits))
        for part in (lookup, bits, _pack_flags(bits != 0)):
            header.append(at)
            parts.append(part.reshape(-1).astype(np.uint32, copy=False))
            at += part.size
    return np.concatenate([np.array(header, np.uint32), *parts])


def _axis(columns: Columns, number: int, most_words: int) -> tuple[npt.NDArray[Any], U32]:
    """How the class of a value is found, and the vector of each class."""
    if number < 2:
        return _addresses(columns, number, most_words)
    if number < 4:
        return _ports(columns, number, most_words)
    return _values(columns, number)


def _addresses(columns: Columns, number: int, most_words: int) -> tuple[npt.NDArray[Any], U32]:
    """Where each class of addresses begins, and the vectors."""
    words = words_of(columns.family)
    row, span = _spans(columns.address_starts, columns.rows[:, number])
    behind, there = _behind(columns.addresses[span, 2:], words)
    begins = np.concatenate([np.zeros((1, 2), np.uint64), columns.addresses[span, :2], behind[there]])
    classes, place = np.unique(begins, axis=0, return_inverse=True)
    begin, end = np.split(place.reshape(-1)[1:], [len(span)])
    return in_words(classes, words), _class_vectors(
        len(columns), len(classes), (row, begin), (row[there], end), most_words
    )


def _behind(lasts: U64, words: int) -> tuple[U64, npt.NDArray[np.bool_]]:
    """The address behind each, and whether there is one."""
    upper, lower = lasts[:, 0].copy(), lasts[:, 1].copy()
    if words == 1:
        upper += np.uint64(_ADDRESS_STEP[1])
    else:
        lower += np.uint64(1)
        upper += lower == 0
    return np.stack([upper, lower], axis=1), (upper != 0) | (lower != 0)


def _ports(columns: Columns, number: int, most_words: int) -> tuple[npt.NDArray[Any], U32]:
    """The class of each port, and the vectors."""
    row, span = _spans(columns.port_starts, columns.rows[:, number])
    behind = columns.ports[span, 1].astype(np.int64) + 1
    there = behind < _PORTS
    begins = np.concatenate([[0], columns.ports[span, 0], behind[there]])
    classes, place = np.unique(begins, return_inverse=True)
    begin, end = np.split(place[1:], [len(span)])
    lookup = np.searchsorted(classes, np.arange(_PORTS), "right") - 1
    return lookup, _class_vectors(len(columns), len(classes), (row, begin), (row[there], end), most_words)


def _values(columns: Columns, number: int) -> tuple[npt.NDArray[Any], U32]:
    """The class of each value of a byte or kind of fragment, and the vectors."""
    if number < len(PARTS):
        holds = np.unpackbits(columns.sets.view(np.uint8), axis=1, bitorder="little")[columns.rows[:, number]]
    else:
        holds = np.stack([columns.rows[:, -1] & 1, columns.rows[:, -1] >> 1], axis=1)
    vectors, lookup = np.unique(_pack_flags(holds.T), axis=0, return_inverse=True)
    return lookup, vectors


def _spans(starts: I32, numbers: I32) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Each row as often as its set has spans, and those spans."""
    many = starts[numbers + 1] - starts[numbers]
    row = np.repeat(np.arange(len(numbers)), many)
    within = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)
    return row, starts[numbers][row] + within


def _class_vectors(
    rows: int,
    classes: int,
    begins: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    ends: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    most_words: int,
) -> U32:
    """The vector of each class.

    `begins` and `ends`: rows, and the class from which on each holds, or does not.
    """
    words = _count_words(rows)
    needed = classes * (words + _count_words(words) + 4)
    if needed > most_words:
        raise TooLarge(
            f"bit vectors of {rows:,} rows take {4 * needed:,} bytes on one axis: {4 * most_words:,} are left"
        )
    held = np.zeros(classes * words, np.uint32)
    for row, place in (begins, ends):
        np.bitwise_xor.at(held, place * words + row // 32, np.uint32(1) << (row % 32).astype(np.uint32))
    return np.bitwise_xor.accumulate(held.reshape(classes, words), axis=0)


def _count_words(bits: int) -> int:
    return -(-bits // 32)


def _pack_flags(flags: npt.NDArray[Any]) -> U32:
    """(n, m) flags as (n, words), the first flag in the lowest bit."""
    count, width = flags.shape
    packed = np.zeros((count, 4 * _count_words(width)), np.uint8)
    packed[:, : -(-width // 8)] = np.packbits(flags, axis=1, bitorder="little")
    return packed.view(np.uint32)
