"""Connections as the fake switch tracks them: the Nicira action `ct`, as far as our programs use it.

A connection is remembered in a zone by its two ends, so both directions of it are the same one. What the real switch
knows beyond that, the fake does not: sequence numbers, which flags may begin a connection, when one is over.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.enforce.drivers.openflow.fake.complaint import Complaint, Reason
from orchestrator.enforce.drivers.openflow.fake.fields import IP_TYPES, read_header

CT, MARK = 35, "ct_mark"
_COMMIT, _NO_TABLE = 1, 0xFF
_SET_FIELD = 25
_HEAD = struct.Struct("!10xHIHB3xH")

Connection = tuple[int, int, int, frozenset[tuple[int, int]]]
"""Zone, Ethernet type, protocol, and its two ends: address and port."""


@dataclass(frozen=True, slots=True)
class Track:
    """Look the packet's connection up in a zone and go on with its mark in `table`; or remember it under `mark`."""

    zone: int
    table: int | None = None
    mark: int | None = None


def read_track(whole: bytes) -> Track:
    """Take the action apart. Raises Complaint for what our programs never say."""
    flags, source, zone, table, helper = _HEAD.unpack_from(whole)
    if source or helper or flags not in (0, _COMMIT):
        raise Complaint(Reason.BAD_ARGUMENT)
    if not flags:
        if table == _NO_TABLE or len(whole) > _HEAD.size:
            raise Complaint(Reason.BAD_ARGUMENT)
        return Track(zone, table=table)
    return Track(zone, mark=_written_mark(whole[_HEAD.size :]))


def _written_mark(actions: bytes) -> int:
    """What the one set-field action behind the head writes."""
    if len(actions) < 8:
        raise Complaint(Reason.BAD_ARGUMENT)
    kind, length = struct.unpack_from("!HH", actions)
    if length < 8 or length % 8 or length > len(actions):
        raise Complaint(Reason.BAD_ACTION_LENGTH)
    if kind != _SET_FIELD or length < len(actions):
        raise Complaint(Reason.BAD_ARGUMENT)
    known = read_header(actions[4:8])
    if known is None or (known[0].name, known[1]) != (MARK, False):
        raise Complaint(Reason.BAD_SET_ARGUMENT)
    return int.from_bytes(actions[8:12], "big")


def can_track(values: Mapping[str, int]) -> bool:
    """Whether what has these values is an IP packet."""
    return values.get("eth_type") in IP_TYPES


def connection(zone: int, values: Mapping[str, int]) -> Connection:
    """Which one a packet belongs to."""
    ends = frozenset(
        (
            next((values[name] for name in (f"ipv4_{side}", f"ipv6_{side}") if name in values), 0),
            next((values[name] for name in (f"tcp_{side}", f"udp_{side}", f"sctp_{side}") if name in values), 0),
        )
        for side in ("src", "dst")
    )
    return zone, values.get("eth_type", 0), values.get("ip_proto", 0), ends
