"""The place of a row: its bucket, by tenant and cookie, and its part.

A bucket of up to `MOST_ROWS` rows is one block (part `WHOLE`); a larger one, as a rule over thousands of members makes,
is divided into `PARTS` blocks by a checksum of the row, so that one row of it still costs little. Which of the two
follows from how many rows there are, so equal rows make equal blocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from orchestrator.program.block import Block, Line
from orchestrator.program.canonical import HEAD_BYTES, Rows, canonical
from orchestrator.program.flows import FlowTable

COOKIE_BITS = 7
"""Cookies that differ only in their lowest 7 bits share a bucket: 128 rules, some two hundred rows."""

MOST_ROWS = 1024
"""A bucket of more rows is divided."""

PARTS = 128
"""Into so many blocks, less those that would be empty."""

WHOLE = PARTS
"""The one part of a bucket that is not divided."""

Bucket = tuple[int, int]
"""Tenant, and the upper bits of the cookie."""

Parts = dict[int, Block]
"""The blocks of a bucket."""


def is_divided(rows: int) -> bool:
    """Whether a bucket of so many rows is."""
    return rows > MOST_ROWS


def part_of(data: bytes) -> int:
    """The part of a divided bucket in which a line lies."""
    return zlib.crc32(data) % PARTS


def parts_of(lines: Sequence[Line]) -> Parts:
    """The blocks of a bucket that holds some lines, which are in order."""
    if not is_divided(len(lines)):
        return {WHOLE: Block.of_lines(lines)} if lines else {}
    divided: dict[int, list[Line]] = {}
    for line in lines:
        divided.setdefault(part_of(line.data), []).append(line)
    return {part: Block.of_lines(each) for part, each in divided.items()}


def buckets_of(flows: FlowTable) -> set[Bucket]:
    """The buckets that rows lie in."""
    upper: npt.NDArray[np.uint64] = flows.cookie >> np.uint64(COOKIE_BITS)
    return set(zip(flows.tenant.tolist(), upper.tolist(), strict=True))


def cut(flows: FlowTable) -> dict[Bucket, Parts]:
    """Any rows as the blocks of their buckets."""
    if not len(flows):
        return {}
    rows = canonical(flows)
    order = np.argsort(rows, kind="stable")  # rows mostly come in long ascending runs, which this sort makes use of
    ordered, rows = flows.take(order), rows[order]
    upper = ordered.cookie >> np.uint64(COOKIE_BITS)
    starts = np.flatnonzero((np.diff(ordered.tenant) != 0) | (np.diff(upper) != 0)) + 1
    buckets = {}
    for start, end in pairwise([0, *starts.tolist(), len(rows)]):
        bucket = int(ordered.tenant[start]), int(upper[start])
        buckets[bucket] = dict(_parts(ordered.part(start, end), rows[start:end]))
    return buckets


def _parts(ordered: FlowTable, rows: Rows) -> Iterator[tuple[int, Block]]:
    """The blocks of one bucket from its rows, which are in order."""
    if not is_divided(len(rows)):
        yield WHOLE, _block(ordered, rows)
        return
    part = np.array([part_of(data) for data in rows.tolist()], np.intp)
    order = np.argsort(part, kind="stable")
    starts = np.flatnonzero(np.diff(part[order])) + 1
    for chosen in np.split(order, starts):
        yield int(part[chosen[0]]), _block(ordered.take(chosen), rows[chosen])


def _block(ordered: FlowTable, rows: Rows) -> Block:
    data = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    longest = int(ordered.match_length.max())
    return Block.of_columns(ordered, data[:, : HEAD_BYTES + longest].tobytes(), longest)
