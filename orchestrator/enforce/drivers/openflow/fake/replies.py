"""Messages of the fake switch, as bytes."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence

from orchestrator.enforce.drivers.openflow import messages
from orchestrator.enforce.drivers.openflow.channel import HEADER
from orchestrator.enforce.drivers.openflow.fake.actions import NICIRA_VENDOR
from orchestrator.enforce.drivers.openflow.fake.complaint import Reason
from orchestrator.enforce.drivers.openflow.fake.table import Entry
from orchestrator.enforce.drivers.openflow.messages import BundleControl, Multipart, Type

LONGEST_BODY = 60_000
"""Bytes of descriptions in one part of a multipart reply; a message has no more than 65,535 in all."""

SHOWN_OF_REQUEST = 64
"""How much of a refused message comes back with the error."""

_STATISTICS = 0x8002
_BY_AN_ACTION = 1
_LIVE = 4
_EXPERIMENTER_ERROR = 0xFFFF
_DURATION, _IDLE_TIME, _PACKET_COUNT, _BYTE_COUNT = 0, 1, 4, 5


def answer(request: bytes, kind: Type, body: bytes = b"") -> bytes:
    """A message with the request's xid."""
    return messages.message(kind, HEADER.unpack_from(request)[3], body)


def error(request: bytes, reason: Reason) -> bytes:
    """The refusal of a request."""
    vendor = struct.pack("!I", NICIRA_VENDOR) if reason.value[0] == _EXPERIMENTER_ERROR else b""
    return answer(request, Type.ERROR, struct.pack("!HH", *reason.value) + vendor + request[:SHOWN_OF_REQUEST])


def bundle(request: bytes, number: int, kind: BundleControl) -> bytes:
    """The answer to a bundle control."""
    return answer(request, Type.BUNDLE_CONTROL, struct.pack("!IHH", number, kind, 0))


def multipart(request: bytes, kind: Multipart, items: Sequence[bytes]) -> bytes:
    """Replies that hold the items, as few as their size allows."""
    parts: list[list[bytes]] = [[]]
    size = 0
    for item in items:
        if size + len(item) > LONGEST_BODY:
            parts.append([])
            size = 0
        parts[-1].append(item)
        size += len(item)
    flags = [messages.MORE_TO_COME] * (len(parts) - 1) + [0]
    return b"".join(
        answer(request, Type.MULTIPART_REPLY, struct.pack("!HH4x", kind, flag) + b"".join(part))
        for flag, part in zip(flags, parts, strict=True)
    )


def flow_description(entry: Entry, now: float) -> bytes:
    """An entry with its counters."""
    match = struct.pack("!HH", 1, 4 + len(entry.match_bytes)) + entry.match_bytes
    rest = _pad_bytes(match) + _pack_statistics(entry, now) + entry.instructions.data
    head = struct.pack("!HxxBxHHHHHQ", 24 + len(rest), entry.table, entry.priority, 0, 0, entry.flags, 0, entry.cookie)
    return head + rest


def packet_in(entry: Entry, frame: bytes) -> bytes:
    """Return a packet-in for an entry, without the registers of a real one."""
    head = struct.pack("!IHBBQHH4x", messages.NO_BUFFER, len(frame), _BY_AN_ACTION, entry.table, entry.cookie, 1, 4)
    return messages.message(Type.PACKET_IN, 0, head + bytes(2) + frame)


def port_descriptions(ports: Mapping[str, int], down: Collection[str] = ()) -> list[bytes]:
    """Every port: number, a made-up MAC, name, up, and live unless it is `down`."""
    return [
        struct.pack(
            "!IHxx6sxx16sII",
            number, 40, (0x020000000000 | number).to_bytes(6, "big"), name.encode(), 0, 0 if name in down else _LIVE,
        )
        for name, number in ports.items()
    ]  # fmt: skip


def _pack_statistics(entry: Entry, now: float) -> bytes:
    duration, idle = now - entry.created, now - entry.used
    values = (
        (_DURATION, struct.pack("!II", int(duration), int(duration % 1 * 1e9))),
        (_IDLE_TIME, struct.pack("!II", int(idle), 0)),
        (_PACKET_COUNT, struct.pack("!Q", entry.packets)),
        (_BYTE_COUNT, struct.pack("!Q", entry.byte_count)),
    )
    body = b"".join(struct.pack("!HBB", _STATISTICS, number << 1, len(value)) + value for number, value in values)
    return _pad_bytes(struct.pack("!HH", 0, 4 + len(body)) + body)


def _pad_bytes(data: bytes) -> bytes:
    return data.ljust((len(data) + 7) // 8 * 8, b"\0")
