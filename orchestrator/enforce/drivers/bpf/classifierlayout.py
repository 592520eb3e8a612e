"""Bit vectors and outcomes as the bytes of maps: the structures of `_native/classifier.h`.

intervals    count, zero, MOST_INTERVALS starts (4 bytes, or 16 for addresses of IPv6), as many classes
classes      VALUES classes (2 bytes)
vectors      for each class a summary and a vector
outcomes     MOST_RULES times three counters, the verdict, padding
rule set     the head of a flow set (`layout.py`), then which half of the maps of maps it uses
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from orchestrator.compile.filters.cacherows import CacheRow
from orchestrator.compile.servers.bitvectors import MOST_INTERVALS, MOST_RULES, SUMMARY, WORDS, Axis, summaries
from orchestrator.enforce.drivers.bpf.layout import OUTCOME_BYTES, FlowSet, looked_at, outcome
from orchestrator.policy.addresses import Family
from orchestrator.program.canonical import DIGEST_BYTES

VECTOR_BYTES = 8 * (SUMMARY + WORDS)
OUTCOMES_BYTES = MOST_RULES * OUTCOME_BYTES
_HEAD = struct.Struct(f"<QQ{DIGEST_BYTES}sIIBBB5x")
RULE_SET_BYTES = _HEAD.size + 16 + 40
VALUES = 1 << 16
_HALF = (1 << 64) - 1


def rule_set(held: FlowSet, serial: int, half: int, *, remembers: bool) -> bytes:
    """Pack the classifier's header."""
    sizes = [len(held.of(family)) for family in Family]
    head = _HEAD.pack(serial, held.stamp.generation, held.stamp.digest, *sizes, held.source_check, remembers, half)
    return head + b"".join(looked_at(family, held.of(family)) for family in Family)


def serial_of(data: bytes) -> int:
    """Return which set a header is of."""
    return int(_HEAD.unpack_from(data)[0])


def half_of(data: bytes) -> int:
    """The half of the maps of maps that a set uses."""
    return int(_HEAD.unpack_from(data)[-1])


def intervals(axis: Axis) -> bytes:
    """Pack an axis' intervals, of 32 bits each."""
    head = struct.pack("<II", len(axis.starts), 0)
    return head + _pad_column(np.array(axis.starts, "<u4")) + _pad_column(axis.classes.astype("<u4"))


def intervals6(axis: Axis) -> bytes:
    """Intervals of 128 bits, of each address the upper half first."""
    head = struct.pack("<IIII", len(axis.starts), 0, 0, 0)
    halves = np.array([half for start in axis.starts for half in (start >> 64, start & _HALF)], "<u8")
    return head + _pad_column(halves, 2 * MOST_INTERVALS) + _pad_column(axis.classes.astype("<u4"))


def classes(axis: Axis) -> bytes:
    """The class of every value of an axis of 16 bits."""
    lengths = np.diff([*axis.starts, VALUES])
    return np.repeat(axis.classes.astype("<u2"), lengths).tobytes()


def vectors(axis: Axis) -> bytes:
    """Pack the bit vectors of an axis, class by class, each behind its summary."""
    return np.concatenate([summaries(axis.vectors), axis.vectors], axis=1).astype("<u8").tobytes()


def outcomes(rows: Sequence[CacheRow], counter: Callable[[int], int]) -> bytes:
    """Pack the outcome of every row."""
    return b"".join(outcome(row, counter) for row in rows).ljust(OUTCOMES_BYTES, b"\0")


def _pad_column(column: np.ndarray[tuple[int], np.dtype[np.unsignedinteger]], most: int = MOST_INTERVALS) -> bytes:
    return column.tobytes().ljust(most * column.itemsize, b"\0")
