"""OpenFlow actions and instructions as bytes, in the form in which Open vSwitch writes them back.

A flow's instructions are one optional apply-actions list and one optional goto-table; none at all drops the packet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from orchestrator.compile.oxm import Field

IN_PORT = 0xFFFFFFF8
"""The reserved port number that sends a packet back to where it came from, which a plain port number never does."""

DROP = b""
"""No instructions."""

_OUTPUT, _SET_FIELD, _COPY_FIELD, _EXPERIMENTER = 0, 25, 28, 0xFFFF
_GOTO_TABLE, _APPLY_ACTIONS = 1, 4
_NICIRA, _OUTPUT_REGISTER, _CONJUNCTION = 0x00002320, 15, 34


def output(port: int) -> bytes:
    """Send the packet out of a port: a number, a symbol or `IN_PORT`."""
    return struct.pack(">HHIH6x", _OUTPUT, 16, port, 0)


def output_register(register: Field) -> bytes:
    """Send the packet out of the port whose number a register holds (a Nicira extension)."""
    whole = 8 * register.size - 1
    return struct.pack(">HHIHHIH6x", _EXPERIMENTER, 24, _NICIRA, _OUTPUT_REGISTER, whole, register.header, 0xFFFF)


def set_field(field: Field, value: int) -> bytes:
    """Write a constant into a header field or a register."""
    oxm = field.header.to_bytes(4, "big") + value.to_bytes(field.size, "big")
    return _padded(struct.pack(">HH", _SET_FIELD, _rounded(4 + len(oxm))) + oxm)


def copy_field(source: Field, destination: Field) -> bytes:
    """Copy a whole field into another of the same size."""
    bits = 8 * source.size
    headers = source.header.to_bytes(4, "big") + destination.header.to_bytes(4, "big")
    return _padded(struct.pack(">HHHHH2x", _COPY_FIELD, _rounded(12 + len(headers)), bits, 0, 0) + headers)


def conjunction(number: int, clause: int, clauses: int) -> bytes:
    """The packet meets clause `clause` (from 0) of the `clauses` (2..64) of a conjunctive match (a Nicira extension).

    A packet that meets them all, at one priority, is looked up again with the conjunction's number as its `conj_id`.
    """
    return struct.pack(">HHIHBBI", _EXPERIMENTER, 16, _NICIRA, _CONJUNCTION, clause, clauses, number)


def instructions(actions: Iterable[bytes] = (), *, goto: int | None = None) -> bytes:
    """An instruction list: apply `actions`, then go on in table `goto` (None: the packet's way ends here)."""
    body = b"".join(actions)
    applied = struct.pack(">HHI", _APPLY_ACTIONS, 8 + len(body), 0) + body if body else b""
    return applied + (struct.pack(">HHB3x", _GOTO_TABLE, 8, goto) if goto is not None else b"")


def _rounded(length: int) -> int:
    return (length + 7) // 8 * 8


def _padded(action: bytes) -> bytes:
    return action.ljust(_rounded(len(action)), b"\0")
