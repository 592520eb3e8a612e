"""Encode rows of table `GROUPS` as group-mods, and decode group descriptions.

    ┌ bundle-add ─────────────┐┌ group-mod ────────────────────────────────────────────────────────┐
    │ header 8 │ id 4 │ 0 │ fl ││ header 8 │ command 2 │ type 1 │ 0 │ number 4 │ length 2 │ ... │ buckets
    └─────────────────────────┘└───────────────────────────────────────────────────────────────────┘

A group that is there already is changed in place, which flows that lead to it do not notice: deleting a group would
delete them. Whether it is there need not be known (Open vSwitch's command "add or modify").
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Sequence

import numpy as np

from orchestrator.compile.openflow import groups
from orchestrator.enforce.drivers.openflow.flowmods import Encoded
from orchestrator.enforce.drivers.openflow.messages import (
    ATOMIC_ORDERED,
    MULTIPART_BODY,
    VERSION,
    Multipart,
    Type,
    multipart_request,
)
from orchestrator.errors import Drifted
from orchestrator.program.flows import Flow, FlowTable
from orchestrator.program.program import Tier


class GroupCommand(enum.IntEnum):
    """The command of a group-mod."""

    DELETE = 2
    ADD_OR_MODIFY = 0x8000
    """Open vSwitch's own."""


ALL_GROUPS = 0xFFFFFFFC
NO_BUCKET = 0xFFFFFFFF

_MESSAGE = struct.Struct("!BBHIIHHBBHIHBxIHxxI")
_MOD_AT = 16
_DESCRIPTION = struct.Struct("!HBxIH6x")


def bundle_groups(command: GroupCommand, rows: FlowTable, *, bundle: int, first_xid: int) -> Encoded:
    """A bundle-add message for every row, all of which are groups, in their order."""
    data = [_pack_message(command, row, bundle, xid) for xid, row in enumerate(rows.rows(), first_xid)]
    return Encoded(np.arange(len(data)), lambda: iter(data))


def _pack_message(command: GroupCommand, row: Flow, bundle: int, xid: int) -> bytes:
    number = int.from_bytes(row.match, "big")
    kind, buckets, properties = groups.split_group(row.instructions)
    body = buckets + properties if command is GroupCommand.ADD_OR_MODIFY else b""
    size = _MESSAGE.size + len(body)
    inside = len(buckets) if body else 0
    head = _MESSAGE.pack(
        *(VERSION, Type.BUNDLE_ADD, size, xid, bundle, 0, ATOMIC_ORDERED),
        *(VERSION, Type.GROUP_MOD, size - _MOD_AT, xid, command, kind, number, inside, NO_BUCKET),
    )
    return head + body


def request(xid: int) -> bytes:
    """Encode the request for the descriptions of every group."""
    return multipart_request(Multipart.GROUP_DESC, xid, struct.pack("!I4x", ALL_GROUPS))


def decode(replies: Sequence[bytes], tier: Tier) -> FlowTable:
    """Decode group-desc replies to rows of a tier.

    Raises Drifted for other bytes.
    """
    try:
        return FlowTable.of(row for reply in replies for row in _read_rows(reply[MULTIPART_BODY:], tier))
    except struct.error:
        raise Drifted("the switch's description of groups is cut off or garbled") from None


def _read_rows(data: bytes, tier: Tier) -> Iterator[Flow]:
    at = 0
    while at < len(data):
        length, kind, number, size = _DESCRIPTION.unpack_from(data, at)
        if not _DESCRIPTION.size + size <= length <= len(data) - at:
            raise struct.error("a group's length is wrong")
        buckets_at = at + _DESCRIPTION.size
        buckets, properties = data[buckets_at : buckets_at + size], data[buckets_at + size : at + length]
        yield groups.group_row(tier, number, groups.group_body(kind, buckets, properties))
        at += length
