"""Columns of numbers as bytes, each column as wide as its largest number.

| columns x width in bytes: u8 | rows: u32 | column | column | ... |         little-endian; widths are 1, 2, 4 or 8
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from orchestrator.errors import BadInput
from orchestrator.program.flows import U64

_ROWS = struct.Struct("<I")
_WIDTHS = (1, 2, 4, 8)


def pack(columns: Sequence[U64]) -> bytes:
    """Columns of one length as bytes."""
    widths = [np.min_scalar_type(int(column.max(initial=0))).itemsize for column in columns]
    parts = [column.astype(f"<u{width}").tobytes() for column, width in zip(columns, widths, strict=True)]
    return b"".join((bytes(widths), _ROWS.pack(len(columns[0])), *parts))


def unpack(data: bytes, columns: int) -> tuple[list[U64], int]:
    """Unpack columns from the start of bytes; return them and the bytes used.

    Raises BadInput.
    """
    at = columns + _ROWS.size
    if len(data) < at or any(width not in _WIDTHS for width in data[:columns]):
        raise BadInput("columns are cut off or garbled", place="columns")
    (rows,) = _ROWS.unpack_from(data, columns)
    found = []
    for width in data[:columns]:
        if len(data) - at < rows * width:
            raise BadInput("columns are cut off", place="columns")
        found.append(np.frombuffer(data, f"<u{width}", rows, at).astype(np.uint64))
        at += rows * width
    return found, at
