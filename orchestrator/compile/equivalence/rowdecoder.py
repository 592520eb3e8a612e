"""Decode flow entries to items by a reader that shares nothing with the encoder.

An item is a box of closed intervals and a ternary word, as `_native/equivalence/equivalence.h` draws it. Matches that
are no such box (a mask that is not a prefix, a field that is not known, fields that no packet has together) are
refused, never read as something wider.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.compile import _equivalence as native
from orchestrator.errors import NotEquivalent
from orchestrator.program.flows import FlowTable

Items = npt.NDArray[Any]

LOW, HIGH = 0, 1
PROTOCOL, FRAGMENTS, FAMILY, TABLE = range(4)
"""Places in `small_low` and `small_high`."""

ITEM = np.dtype(
    [
        ("low", np.uint64, (2, 2)),
        ("high", np.uint64, (2, 2)),
        ("port_low", np.uint16, (2,)),
        ("port_high", np.uint16, (2,)),
        ("small_low", np.uint8, (4,)),
        ("small_high", np.uint8, (4,)),
        ("word", np.uint16, (2,)),
        ("priority", np.uint16),
        ("unused", np.uint16),
        ("rule", np.uint32),
        ("padding", np.uint32),
        ("key", np.int64),
        ("end", np.uint64),
    ]
)
"""`item` of the extension. Addresses are (side, half): source and destination, the lower half first.

`word` is a value under a mask: TCP flags, and above them DSCP.
"""

REGISTERS = np.dtype([("value", np.uint32, (4,)), ("mask", np.uint32, (4,))])
"""A match's masks and values for reg0 to reg3."""

REASONS = (
    "",
    "ends early",
    "has a field that rules do not match",
    "has a field twice",
    "has value bits beside its mask",
    "has a mask that is not a prefix",
    "asks for what no packet has together",
)
"""Why a match is not understood, by the numbers of the extension."""


class Decoded(NamedTuple):
    """Decoded flow entries, a row an entry.

    `rule` and `key` are left for the caller to fill.
    """

    items: Items
    registers: npt.NDArray[Any]


def decode(flows: FlowTable) -> Decoded:
    """Decode the matches of a table's rows.

    Raises NotEquivalent for the first row that is not understood.
    """
    items, registers = np.zeros(len(flows), ITEM), np.zeros(len(flows), REGISTERS)
    match = np.ascontiguousarray(flows.match)
    row, reason = native.decode(match, match.shape[1], flows.match_length, items, registers)
    if row >= 0:
        raise NotEquivalent(
            f"a flow entry {REASONS[reason]}: table {flows.table[row]}, match {flows.row(row).match.hex()}"
        )
    items["priority"] = flows.priority
    items["small_low"][:, TABLE] = items["small_high"][:, TABLE] = flows.table
    return Decoded(items, registers)
