"""A packet that a switch shows us, taken from its packet-in without the library's objects.

header 8 │ buffer 4 │ whole length 2 │ reason 1 │ table 1 │ cookie 8 │ match, padded │ 0 2 │ the packet's beginning
"""

from __future__ import annotations

import struct

from orchestrator.enforce.drivers.openflow import headers
from orchestrator.enforce.drivers.openflow.channel import HEADER
from orchestrator.policy.model import Packet

_HEAD = struct.Struct("!4xHBBQHH")
_BY_AN_ACTION = 1


def read(message: bytes) -> tuple[int, Packet, int] | None:
    """Return a packet-in's cookie, packet and original length; None without an IP packet.

    Bytes cut off behind the headers do not matter. Never raises: a switch may send what it likes.
    """
    try:
        whole, reason, _, cookie, _, match = _HEAD.unpack_from(message, HEADER.size)
        frame = message[HEADER.size + _HEAD.size - 4 + (match + 7) // 8 * 8 + 2 :]
    except struct.error:
        return None
    if reason != _BY_AN_ACTION or not frame:
        return None
    packet = headers.packet_of(headers.parse(frame.ljust(whole, b"\0")))
    return None if packet is None else (cookie, packet, whole)
