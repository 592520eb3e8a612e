"""Checkpoints of a device's counters, kept by the service for the next counter.

The service stores a bookmark beside the sums, in the same transaction, and does not look into it. So they never
disagree: an enforcement point that starts anew, or takes a device over from another one, reads the bookmark and goes on
from exactly what is in the sums.

A bookmark is a few chunks, in order. A chunk names counters that moved and counters that are gone; the first is of all
counters that are not zero. Bytes: packed columns (`program/packing.py`) of keys, packets, bytes and ages in
milliseconds, then one of the keys that are gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from orchestrator.errors import BadInput
from orchestrator.program.flows import U64
from orchestrator.program.packing import pack, unpack

_COLUMNS = ("key", "packets", "bytes", "age_ms")


@dataclass(frozen=True, slots=True)
class Marks:
    """Counters as they were last counted, as columns of equal length, ascending by key.

    `age_ms` is how long a counter had been there at least; 0 where nobody knows. Bookmarks do not keep the cookie: it
    is 0 there.
    """

    key: U64
    cookie: U64
    packets: U64
    bytes: U64
    age_ms: U64

    @classmethod
    def new_marks(cls, key: U64, cookie: U64) -> Marks:
        """Return marks of new counters, at zero.

        Where a key comes several times, they are one.
        """
        ordered, first = np.unique(key, return_index=True)
        zero = np.zeros(len(ordered), np.uint64)
        return cls(ordered, cookie[first], zero, zero, zero)

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Marks:
        """Select some rows, by mask."""
        return Marks(self.key[rows], self.cookie[rows], self.packets[rows], self.bytes[rows], self.age_ms[rows])

    def and_others(self, others: Marks) -> Marks:
        """Return these and others, of which none has the key of another."""
        if not len(others):
            return self
        columns = [np.concatenate((getattr(self, name), getattr(others, name))) for name in (*_COLUMNS, "cookie")]
        order = np.argsort(columns[0], kind="stable")
        key, packets, byte_counts, age_ms, cookie = (column[order] for column in columns)
        return Marks(key, cookie, packets, byte_counts, age_ms)

    def without(self, keys: U64) -> Marks:
        """The rows of all other keys."""
        return self.take(~np.isin(self.key, keys)) if len(keys) and len(self) else self


NO_MARKS = Marks(*(np.empty(0, np.uint64) for _ in range(5)))


def encode_chunk(moved: Marks, gone: U64) -> bytes:
    """The bytes of a chunk."""
    return pack([getattr(moved, name) for name in _COLUMNS]) + pack([gone])


def replay_chunks(chunks: Iterable[bytes]) -> Marks:
    """Return the marks of a checkpoint's chunks.

    Raises BadInput for other bytes.
    """
    found = NO_MARKS
    for chunk in chunks:
        moved, gone = _decode_chunk(chunk)
        found = found.without(gone).without(moved.key).and_others(moved)
    return found


def _decode_chunk(chunk: bytes) -> tuple[Marks, U64]:
    (key, packets, byte_counts, age_ms), size = unpack(chunk, len(_COLUMNS))
    (gone,), rest = unpack(chunk[size:], 1)
    if size + rest != len(chunk):
        raise BadInput("a chunk is too long", place="bookmark")
    return Marks(key, np.zeros(len(key), np.uint64), packets, byte_counts, age_ms), gone
