"""Open vSwitch's connection tracking: the Nicira action `ct`, as the switch writes it back.

    ┌ head: type, length, vendor, subtype, flags 2, zone's source 4, zone 2, table 1, pad 3, helper 2 ┐┌ actions ...

`track` looks the packet's connection up and goes on in a table, where its state, its first packet and its mark can be
matched; `begin` has the switch remember the connection under a mark. It is the datapath that does both, with the packet
itself, whichever cache entry the packet met. Both can be used only where the match says which IP version the packet is
of.
"""

from __future__ import annotations

import enum
import struct

from orchestrator.compile.openflow.instructions import set_field
from orchestrator.compile.openflow.oxm import CT_MARK

_EXPERIMENTER, _NICIRA, _CT = 0xFFFF, 0x00002320, 35
_COMMIT, _FORCE, _NO_TABLE = 1, 2, 0xFF
_HEAD = struct.Struct(">HHIHHIHB3xH")


class State(enum.IntFlag):
    """Bits of `CT_STATE`."""

    NEW = 0x01
    """No connection is known, or none that was answered."""
    ESTABLISHED = 0x02
    RELATED = 0x04
    """An ICMP error about a known connection."""
    REPLY = 0x08
    """Against the direction of the first packet."""
    INVALID = 0x10
    TRACKED = 0x20
    """It was looked up."""


def track(zone: int, table: int) -> bytes:
    """Go to a table with the mark of the packet's connection (0: none)."""
    return _pack_ct(0, zone, table, b"")


def begin(zone: int, mark: int) -> bytes:
    """Remember the packet's connection in a zone, under a mark above 0.

    A known connection gets the mark. Packets that belong to no connection (a broken checksum, flags that nothing begins
    with) are not remembered.
    """
    return _pack_ct(_COMMIT, zone, _NO_TABLE, set_field(CT_MARK, mark))


def open_with(zone: int, mark: int, table: int, *, mask: int | None = None) -> bytes:
    """Remember a connection that the packet opens, and go on in a table.

    A mask says which bits of the mark are written.

    There the mark is 0 if there was no room.

    One that is known, but the other way round, is forgotten: this packet opens it.
    """
    return _pack_ct(_COMMIT | _FORCE, zone, table, set_field(CT_MARK, mark, mask))


def _pack_ct(flags: int, zone: int, table: int, actions: bytes) -> bytes:
    return _HEAD.pack(_EXPERIMENTER, _HEAD.size + len(actions), _NICIRA, _CT, flags, 0, zone, table, 0) + actions
