"""What a process has freed goes back to the system."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from orchestrator.interpreter import give_back

_PIECE = 1 << 16  # small enough to come from the heap, not from a mapping of its own


def held() -> int:
    """Bytes that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_what_lies_free_between_what_is_held_is_given_back() -> None:
    pieces = [np.ones(_PIECE, np.uint8) for _ in range(1000)]
    kept = pieces[::10]
    del pieces
    before = held()
    give_back()
    assert before - held() > 600 * _PIECE
    assert all(piece.all() for piece in kept)
