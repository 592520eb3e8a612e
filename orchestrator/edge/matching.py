"""Which lines match which chunks, for many of both: in C where it was built, else in NumPy, with the same answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.edge.hashing import U16, U64
from orchestrator.errors import TooLarge

I64 = npt.NDArray[np.int64]

_BATCH_WORDS = 1 << 21
_BLOCK = 8
"""Words that the extension looks at together."""


def _load() -> Any:
    try:
        from orchestrator.edge import _matches  # noqa: PLC0415 -- optional: it takes a C compiler to be there
    except ImportError:
        return None
    return _matches


extension = _load()


def matches(bits: npt.NDArray[np.bool_], where: U16, most: int) -> tuple[I64, I64]:
    """Every pair of a chunk and a line that matches it, by chunk, then by line.

    `bits` is (lines, width), `where` (chunks, k). Raises TooLarge beyond `most` pairs.
    """
    rows = rows_of(bits)
    if extension is None:
        return _in_numpy(rows, where, most)
    try:
        chunk, line = extension.matches(rows, rows.shape[1], np.ascontiguousarray(where), where.shape[1], most)
    except OverflowError:
        raise _too_many(most) from None
    return np.frombuffer(chunk, np.int64), np.frombuffer(line, np.int64)


def rows_of(bits: npt.NDArray[np.bool_]) -> U64:
    """For each bit the lines that have it set: (width, words), line 64 w + i in bit i of word w; whole blocks."""
    lines, width = bits.shape
    words = -(-lines // (64 * _BLOCK)) * _BLOCK
    padded = np.zeros((width, words * 64), np.bool_)
    padded[:, :lines] = bits.T
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def _in_numpy(rows: U64, where: U16, most: int) -> tuple[I64, I64]:
    words = rows.shape[1]
    step = max(1, _BATCH_WORDS // max(words, 1))
    chunks, lines, count = [], [], 0
    for start in range(0, len(where), step):
        left = rows[where[start : start + step, 0]].copy()
        for column in range(1, where.shape[1]):
            left &= rows[where[start : start + step, column]]
        octets = np.ascontiguousarray(left).astype("<u8").view(np.uint8).reshape(len(left), -1)
        chunk, line = np.nonzero(np.unpackbits(octets, axis=1, bitorder="little"))
        count += len(chunk)
        if count > most:
            raise _too_many(most)
        chunks.append(chunk + start)
        lines.append(line)
    if not chunks:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate(chunks).astype(np.int64), np.concatenate(lines).astype(np.int64)


def _too_many(most: int) -> TooLarge:
    return TooLarge(f"lines match chunks more than {most} times: take fewer chunks a line, or wider lines")
