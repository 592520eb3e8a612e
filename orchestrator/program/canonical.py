"""Rows as bytes that sort and compare, the same in every table.

    ┌────────┬────────┬──────────┬───────┬─────────────────┬──────────────┬─────────────────────┐
    │ tenant │ cookie │ priority │ table │ H(instructions) │ match length │ match, zero-padded  │
    │ 4      │ 8      │ 2        │ 1     │ 16              │ 1            │ width of the table  │
    └────────┴────────┴──────────┴───────┴─────────────────┴──────────────┴─────────────────────┘

Numbers are big-endian, so bytes sort as the numbers do, by tenant and cookie first. Two rows are equal exactly when
their bytes are, whatever padding and numbering of instruction lists their tables have: NumPy compares byte strings of
different widths as if the shorter one went on in zeros. H is BLAKE2b with 16 bytes of output.

A single row in this form is a *line*: its bytes without the zeros at the end, which is how NumPy gives them out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.errors import Stale
from orchestrator.program.flows import Flow, FlowTable

DIGEST_BYTES = 16

Rows = npt.NDArray[np.bytes_]
"""Canonical rows, one byte string each."""

_HEAD: list[tuple[str, Any, tuple[int, ...]]] = [
    ("tenant", ">u4", ()),
    ("cookie", ">u8", ()),
    ("priority", ">u2", ()),
    ("table", "u1", ()),
    ("instructions", "u1", (DIGEST_BYTES,)),
    ("match_length", "u1", ()),
]
HEAD_BYTES = np.dtype(_HEAD).itemsize
"""The bytes of the columns before the match."""

_LINE = struct.Struct(f">IQHB{DIGEST_BYTES}sB")
"""The head of one row."""
_IDENTITY = struct.Struct(">IQHB")


def hash_bytes(data: bytes | memoryview) -> bytes:
    """The 16-byte BLAKE2b of some bytes."""
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


@lru_cache(maxsize=1 << 14)
def _digest_list(instructions: bytes) -> bytes:
    return hash_bytes(instructions)


def canonical(flows: FlowTable) -> Rows:
    """The rows of a table in canonical form, in the table's order."""
    width = flows.match.shape[1]
    rows = np.empty(len(flows), np.dtype([*_HEAD, ("match", "u1", (width,))]))
    for name in ("tenant", "cookie", "priority", "table", "match_length"):
        rows[name] = getattr(flows, name)
    if width:
        rows["match"] = flows.match
    if len(flows):
        lists = np.frombuffer(b"".join(map(_digest_list, flows.instruction_set)), np.uint8)
        rows["instructions"] = lists.reshape(-1, DIGEST_BYTES)[flows.instructions]
    return rows.view(f"S{rows.dtype.itemsize}")


def line_of(flow: Flow) -> bytes:
    """One row in canonical form, without zeros at the end."""
    lists = _digest_list(flow.instructions)
    head = _LINE.pack(flow.tenant, flow.cookie, flow.priority, flow.table, lists, len(flow.match))
    return (head + flow.match).rstrip(b"\0")


def head_of(flow: Flow) -> bytes:
    """Return the first bytes of lines of a flow's tenant, cookie, priority and table."""
    return _IDENTITY.pack(flow.tenant, flow.cookie, flow.priority, flow.table)


def flow_of(line: bytes, instructions: bytes) -> Flow:
    """Return the row of a line, given the instructions that the line hashes."""
    tenant, cookie, priority, table, _, length = _LINE.unpack(line[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0"))
    return Flow(table, priority, line[HEAD_BYTES:].ljust(length, b"\0"), instructions, cookie, tenant)


def longest_match(lines: Iterable[bytes]) -> int:
    """The length of the longest match among some lines' rows."""
    return max([line[HEAD_BYTES - 1] for line in lines if len(line) >= HEAD_BYTES], default=0)


def positions(ordered: Rows, wanted: Rows) -> npt.NDArray[np.intp]:
    """Where in ascending rows each wanted row stands. Raises Stale if one is not there."""
    place = np.searchsorted(ordered, wanted)
    found = place < len(ordered)
    found[found] = ordered[place[found]] == wanted[found]
    if not found.all():
        raise Stale(f"{int((~found).sum())} of the rows to be removed are not in the program")
    return place
