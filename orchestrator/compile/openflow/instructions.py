"""OpenFlow actions and instructions as bytes, as Open vSwitch writes them back.

A flow's instructions are one optional apply-actions list and one optional goto-table; none at all drops the packet.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable

from orchestrator.compile.openflow.oxm import Field

IN_PORT = 0xFFFFFFF8
"""The reserved port number that sends a packet back to where it came from, which a plain port number never does."""

DROP = b""
"""No instructions."""

_OUTPUT, _SET_FIELD, _COPY_FIELD, _EXPERIMENTER = 0, 25, 28, 0xFFFF
_GOTO_TABLE, _APPLY_ACTIONS = 1, 4
_NICIRA, _OUTPUT_REGISTER, _CONJUNCTION, _CONTROLLER = 0x00002320, 15, 34, 37
_MOST_OCTETS, _METER = 0, 5
"""Properties of the controller action."""

_METER_ACTION = 29
_MULTIPATH = 10
_RESUBMIT_TABLE, _SAME_IN_PORT = 14, 0xFFF8
"""Of the resubmit action: its subtype, and the input port that leaves the packet's own."""
_STACK_PUSH, _STACK_POP = 27, 28

REPORTED_BYTES = 128
"""So much of a packet is shown to the controller: its headers."""


def output(port: int) -> bytes:
    """Send the packet out of a port: a number, a symbol or `IN_PORT`."""
    return struct.pack(">HHIH6x", _OUTPUT, 16, port, 0)


def output_register(register: Field) -> bytes:
    """Send the packet out of the port whose number a register holds (a Nicira extension)."""
    whole = 8 * register.size - 1
    return struct.pack(">HHIHHIH6x", _EXPERIMENTER, 24, _NICIRA, _OUTPUT_REGISTER, whole, register.header, 0xFFFF)


def set_field(field: Field, value: int, mask: int | None = None) -> bytes:
    """Write a constant into a field or register, or under a mask into some bits."""
    oxm = (field.header if mask is None else field.masked_header).to_bytes(4, "big") + value.to_bytes(field.size, "big")
    if mask is not None:
        oxm += mask.to_bytes(field.size, "big")
    return _pad_action(struct.pack(">HH", _SET_FIELD, _round_up(4 + len(oxm))) + oxm)


def copy_field(source: Field, destination: Field, *, bits: int | None = None, source_at: int = 0) -> bytes:
    """Copy a field into another of its size, or some of its bits.

    `bits` bits from bit `source_at` on go into the lowest of another. Bits are counted from the least significant.
    """
    bits = 8 * source.size if bits is None else bits
    headers = source.header.to_bytes(4, "big") + destination.header.to_bytes(4, "big")
    return _pad_action(struct.pack(">HHHHH2x", _COPY_FIELD, _round_up(12 + len(headers)), bits, source_at, 0) + headers)


def read_field(source: Field, destination: Field, *, bits: int, source_at: int = 0) -> bytes:
    """Copy `bits` bits of a field into the lowest of another, whatever the packet's state.

    By the stack, a Nicira extension. Open vSwitch leaves `copy_field` out where a packet lacks what the field needs.
    Of a connection's fields it takes that to be a packet which opens, continues or answers one, and an ICMP error about
    a connection is none of these, though it has the fields.
    """
    ends = ((_STACK_PUSH, source, source_at), (_STACK_POP, destination, 0))
    return b"".join(
        struct.pack(">HHIHHIH6x", _EXPERIMENTER, 24, _NICIRA, subtype, at, field.header, bits)
        for subtype, field, at in ends
    )


def resubmit(table: int) -> bytes:
    """Look the packet up in a table as it is now, act, and go on.

    A Nicira extension.
    """
    return struct.pack(">HHIHHB3x", _EXPERIMENTER, 16, _NICIRA, _RESUBMIT_TABLE, _SAME_IN_PORT, table)


def conjunction(number: int, clause: int, clauses: int) -> bytes:
    """Mark that the packet meets clause `clause` (from 0) of `clauses` (2..64).

    A conjunctive match, a Nicira extension.

    A packet that meets them all, at one priority, is looked up again with the conjunction's number as its `conj_id`.
    """
    return struct.pack(">HHIHBBI", _EXPERIMENTER, 16, _NICIRA, _CONJUNCTION, clause, clauses, number)


def report(meter: int) -> bytes:
    """Report the packet's headers to the controller, limited by a meter.

    A Nicira extension.

    The packet itself goes on in any case: what the meter holds back is the report.
    """
    most, metered = struct.pack(">HHH2x", _MOST_OCTETS, 8, REPORTED_BYTES), struct.pack(">HHI", _METER, 8, meter)
    return struct.pack(">HHIH6x", _EXPERIMENTER, 32, _NICIRA, _CONTROLLER) + most + metered


def reporting(doing: bytes, meter: int) -> bytes:
    """The instruction list that does the same and reports the packet first."""
    return _before(report(meter), doing)


def limit(meter: int) -> bytes:
    """Drop the packet if a meter has let through as many as it may."""
    return struct.pack(">HHI", _METER_ACTION, 8, meter)


def limiting(doing: bytes, meter: int) -> bytes:
    """Return instructions that do the same for packets within a meter's rate."""
    return _before(limit(meter), doing)


class HashFields(enum.IntEnum):
    """The hashed fields of a packet.

    Symmetric: the two directions of a connection have the same hash.
    """

    ETH_SRC = 0
    SYMMETRIC_L3L4 = 2
    """Addresses and protocol, and TCP's and SCTP's ports."""
    NW_SRC = 4
    NW_DST = 5


def multipath(fields: HashFields, basis: int, modulo: int, register: Field) -> bytes:
    """Write a hash of the packet into a register's lower 16 bits.

    Modulo a number of 2 to 65536. A Nicira extension.
    """
    modulo_n, bits = 0, 15
    return struct.pack(
        ">HHIHHH2xHHI2xHI",
        *(_EXPERIMENTER, 32, _NICIRA, _MULTIPATH, fields, basis, modulo_n, modulo - 1, 0, bits, register.header),
    )


def list_meters(doing: bytes) -> list[int]:
    """Return the numbers of the meters that an instruction list reports or limits packets by."""
    found = []
    for begun in (report(0)[:-4], limit(0)[:-4]):
        at = doing.find(begun)
        while at >= 0:
            at += len(begun)
            found.append(int.from_bytes(doing[at : at + 4], "big"))
            at = doing.find(begun, at)
    return found


def instructions(actions: Iterable[bytes] = (), *, goto: int | None = None) -> bytes:
    """Return instructions that apply `actions`, then go to table `goto`.

    None: the packet's path ends here.
    """
    body = b"".join(actions)
    applied = struct.pack(">HHI", _APPLY_ACTIONS, 8 + len(body), 0) + body if body else b""
    return applied + (struct.pack(">HHB3x", _GOTO_TABLE, 8, goto) if goto is not None else b"")


def _before(action: bytes, doing: bytes) -> bytes:
    """The instruction list with an action in front of its own."""
    first, length = struct.unpack_from(">HH", doing.ljust(4, b"\0"))
    applied, rest = (doing[8:length], doing[length:]) if first == _APPLY_ACTIONS else (b"", doing)
    return instructions([action, applied]) + rest


def _round_up(length: int) -> int:
    return (length + 7) // 8 * 8


def _pad_action(action: bytes) -> bytes:
    return action.ljust(_round_up(len(action)), b"\0")
