"""Encode columns of flow entries as bundle messages, without a loop over rows.

A bundle-add message holds one flow-mod, so a row becomes these bytes (sizes in bytes, everything big-endian):

    ┌ bundle-add ─────────────┐┌ flow-mod ──────────────────────────────────────────────────────────────────┐
    │ header 8 │ id 4 │ 0 │ fl ││ header 8 │ cookie 8 │ mask 8 │ ... │ match 4 + n │ to 8 │ instructions     │
    └─────────────────────────┘└────────────────────────────────────────────────────────────────────────────┘

Rows whose match and instructions have the same lengths have the same layout, and there are only as many layouts as a
program has shapes: each group is one structured array, filled a column at a time. Order among the rows of one table
does not matter, for no two have the same key; `Encoded.rows` tells which row a message carries, to name it when it
fails. The few rows of a small change are packed one by one (`bundled_row`), which is quicker than setting columns up.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.enforce.drivers.openflow.messages import (
    ANY_GROUP,
    ANY_PORT,
    ATOMIC_ORDERED,
    NO_BUFFER,
    VERSION,
    Type,
)
from orchestrator.program.flows import U8, Flow, FlowTable


class Command(enum.IntEnum):
    """The command of a flow-mod."""

    ADD = 0
    DELETE = 3
    """Every entry of the table (255: of all tables) that the match covers and whose cookie matches under the mask."""
    DELETE_STRICT = 4
    """The one entry with exactly this priority and match."""


RESET_COUNTS = 1 << 2
"""Flow flag: count from zero. Without it an ADD over the same key goes on from the old entry's counters."""


PIECE_ROWS = 2048
"""So many messages are made at a time at most."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Messages, and the row that each carries: the message numbered ``first_xid + i`` carries ``rows[i]``.

    `parts` makes them, some thousands at a time: the first may be on their way while the last are yet to be made.
    """

    rows: npt.NDArray[np.intp]
    parts: Callable[[], Iterator[bytes]]

    @property
    def data(self) -> bytes:
        """All messages, one after the other."""
        return b"".join(self.parts())


def bundle_flows(command: Command, flows: FlowTable, *, bundle: int, first_xid: int) -> Encoded:
    """Encode a bundle-add message for every row: add it, or delete its key."""
    instructed = command is Command.ADD
    sizes = np.array([len(each) if instructed else 0 for each in flows.instruction_set] or [0], np.uint32)
    layouts = flows.match_length.astype(np.uint32) << 16 | sizes[flows.instructions]
    order = np.argsort(layouts, kind="stable")
    begins = np.diff(layouts[order], prepend=-1) != 0
    begins[::PIECE_ROWS] = True
    starts = np.flatnonzero(begins)

    def pack_parts() -> Iterator[bytes]:
        for start, rows in zip(starts.tolist(), np.split(order, starts[1:]), strict=False):
            group = _message_array(flows, rows, instructions=_instruction_matrix(flows, rows) if instructed else None)
            group["bundle"] = bundle
            group["command"] = command
            group["flags"] = RESET_COUNTS if instructed else 0
            group["outer_xid"] = group["xid"] = np.arange(first_xid + start, first_xid + start + len(rows))
            yield group.tobytes()

    return Encoded(order, pack_parts)


def bundled_row(command: Command, flow: Flow, *, bundle: int, xid: int) -> bytes:
    """Encode the bundle-add message for one row: add it, or delete its key."""
    if command is Command.ADD:
        return _pack_message(command, flow, bundle, xid, flags=RESET_COUNTS)
    return _pack_message(command, Flow(flow.table, flow.priority, flow.match, b"", 0), bundle, xid)


def bundled_delete(table: int, cookie: int, cookie_mask: int, *, bundle: int, xid: int) -> bytes:
    """Encode a message that deletes a table's entries by cookie under a mask."""
    return _pack_message(Command.DELETE, Flow(table, 0, b"", b"", cookie), bundle, xid, cookie_mask)


def _pack_message(command: Command, flow: Flow, bundle: int, xid: int, cookie_mask: int = 0, flags: int = 0) -> bytes:
    match = flow.match + bytes(-(4 + len(flow.match)) % 8)
    size = _ROW.size + len(match) + len(flow.instructions)
    head = _ROW.pack(
        *(VERSION, Type.BUNDLE_ADD, size, xid, bundle, 0, ATOMIC_ORDERED),
        *(VERSION, Type.FLOW_MOD, size - _FLOW_MOD_AT, xid),
        *(flow.cookie, cookie_mask, flow.table, command, 0, 0, flow.priority),
        *(NO_BUFFER, ANY_PORT, ANY_GROUP, flags, 0),
        *(1, 4 + len(flow.match)),
    )
    return head + match + flow.instructions


def _message_array(flows: FlowTable, rows: npt.NDArray[np.intp], instructions: U8 | None) -> npt.NDArray[np.void]:
    """The messages of rows that share one layout, all but xids, bundle, command and flags."""
    match_length = int(flows.match_length[rows[0]])
    width = 0 if instructions is None else instructions.shape[1]
    group = np.zeros(len(rows), _layout(match_length, width))
    _fill_constants(group, match_length)
    group["table"] = flows.table[rows]
    group["priority"] = flows.priority[rows]
    if match_length:
        group["match"] = flows.match[rows, :match_length]
    if instructions is not None:
        group["cookie"] = flows.cookie[rows]
    if instructions is not None and width:
        group["instructions"] = instructions
    return group


def _fill_constants(group: npt.NDArray[np.void], match_length: int) -> None:
    size = group.dtype.itemsize
    group["outer_version"] = group["version"] = VERSION
    group["outer_type"], group["type"] = Type.BUNDLE_ADD, Type.FLOW_MOD
    group["outer_length"], group["length"] = size, size - _FLOW_MOD_AT
    group["bundle_flags"] = ATOMIC_ORDERED
    group["buffer"], group["out_port"], group["out_group"] = NO_BUFFER, ANY_PORT, ANY_GROUP
    group["match_type"], group["match_size"] = 1, match_length + 4


def _instruction_matrix(flows: FlowTable, rows: npt.NDArray[np.intp]) -> U8:
    """The instruction bytes of rows whose instruction lists are equally long."""
    used, position = np.unique(flows.instructions[rows], return_inverse=True)
    lists = [flows.instruction_set[index] for index in used.tolist()]
    return np.frombuffer(b"".join(lists), np.uint8).reshape(len(lists), len(lists[0]))[position]


_FLOW_MOD_AT = 16
_HEAD: list[tuple[str, str]] = [
    ("outer_version", "u1"), ("outer_type", "u1"), ("outer_length", ">u2"), ("outer_xid", ">u4"),
    ("bundle", ">u4"), ("zero", ">u2"), ("bundle_flags", ">u2"),
    ("version", "u1"), ("type", "u1"), ("length", ">u2"), ("xid", ">u4"),
    ("cookie", ">u8"), ("cookie_mask", ">u8"), ("table", "u1"), ("command", "u1"),
    ("idle", ">u2"), ("hard", ">u2"), ("priority", ">u2"),
    ("buffer", ">u4"), ("out_port", ">u4"), ("out_group", ">u4"), ("flags", ">u2"), ("importance", ">u2"),
    ("match_type", ">u2"), ("match_size", ">u2"),
]  # fmt: skip

_ROW = struct.Struct("!BBHIIHHBBHIQQBBHHHIIIHHHH")
"""The same head of one message."""


def _layout(match_length: int, instruction_length: int) -> np.dtype[np.void]:
    """The messages of one group of rows, as a structured type."""
    fields: list[tuple[str, str] | tuple[str, str, tuple[int]]] = list(_HEAD)
    padding = -(4 + match_length) % 8
    for name, length in (("match", match_length), ("padding", padding), ("instructions", instruction_length)):
        if length:
            fields.append((name, "u1", (length,)))
    return np.dtype(fields)
