"""Matches of drawn chunks, in NumPy, to hold the extension against."""

from __future__ import annotations

import numpy as np

from orchestrator.edge.hashing import positions
from orchestrator.edge.lines import Lines, matches
from orchestrator.edge.sampling import drawn

_BATCH = 1 << 18
_MOST_MATCHES = 1 << 28


def count_matches(lines: Lines, seed: int, first: int, count: int, bits: int) -> tuple[int, int]:
    """Count the draws that some line matches, and all matches."""
    some = total = 0
    for start in range(first, first + count, _BATCH):
        keys = drawn(seed, start, min(_BATCH, first + count - start), bits)
        chunk, _ = matches(lines.bits, positions(keys, lines.shape.bases, lines.shape.width), _MOST_MATCHES)
        some += len(np.unique(chunk))
        total += len(chunk)
    return some, total
