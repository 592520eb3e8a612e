"""Which lines match which chunks, for many of both, in C (`_native/matches.c`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.edge import _matches
from orchestrator.edge.hashing import U16, U64
from orchestrator.errors import TooLarge

I64 = npt.NDArray[np.int64]

_BLOCK = 8
"""Words that the extension looks at together."""


def matches(bits: npt.NDArray[np.bool_], where: U16, most: int) -> tuple[I64, I64]:
    """Find every pair of a chunk and a matching line, by chunk, then by line.

    `bits` is (lines, width), `where` (chunks, k). Raises TooLarge beyond `most` pairs.
    """
    rows = rows_of(bits)
    try:
        chunk, line = _matches.matches(rows, rows.shape[1], np.ascontiguousarray(where), where.shape[1], most)
    except OverflowError:
        raise _make_too_large(most) from None
    return np.frombuffer(chunk, np.int64), np.frombuffer(line, np.int64)


def rows_of(bits: npt.NDArray[np.bool_]) -> U64:
    """Return for each bit the lines that set it: (width, words), in whole blocks.

    Line 64 w + i is bit i of word w.
    """
    lines, width = bits.shape
    words = -(-lines // (64 * _BLOCK)) * _BLOCK
    padded = np.zeros((width, words * 64), np.bool_)
    padded[:, :lines] = bits.T
    return np.packbits(padded, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def _make_too_large(most: int) -> TooLarge:
    return TooLarge(f"lines match chunks more than {most} times: take fewer chunks a line, or wider lines")
