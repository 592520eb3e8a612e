"""What is fuzzed: each function reads any bytes by an extension, and returns how much it understood of them.

`SEEDS` has inputs from which the fuzzer begins, by the function's name. harness.c calls the functions.
"""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields

import numpy as np
import orjson
import plain_frames
from classify import recorded

from orchestrator.classify.captures import Capture
from orchestrator.classify.frames import Frames, Link, read_frames
from orchestrator.classify.replay import kinds_of
from orchestrator.compile import _equivalence
from orchestrator.compile.equivalence.rowdecoder import ITEM, REGISTERS
from orchestrator.edge import _matches
from orchestrator.enforce import _nfqueue
from orchestrator.enforce.drivers.openflow.flowdesc import read_counters
from orchestrator.enforce.drivers.openflow.messages import MULTIPART_BODY
from orchestrator.errors import AclflowError, Drifted
from orchestrator.policy.formats.native import rule_from_json, rule_texts, rule_to_json, rules_from_json
from orchestrator.policy.model import Rule

_LINKS = [*Link, 7]
_ON_ETHERNET = bytes([_LINKS.index(Link.ETHERNET), 0])
_SLOT, _ROOM = 64, 8
_RULE_KEYS = (*(each.name for each in fields(Rule)), "unknown")
_EMPTY = MULTIPART_BODY
"""Bytes of a reply without entries."""


def read_capture(data: bytes) -> int:
    """Read a capture and each of its frames."""
    read = 0
    try:
        for piece in Capture("fuzz", io.BytesIO(data)).pieces():
            kinds_of(piece)
            read += len(read_frames(piece)) if isinstance(piece, Frames) else len(piece)
    except AclflowError:
        pass
    return read


def read_one_frame(data: bytes) -> int:
    """Read a frame in C and in Python: both say the same. The first two bytes are its link and how much was cut."""
    if len(data) < 2:
        return 0
    link, cut, frame = _LINKS[data[0] % len(_LINKS)], data[1], data[2:]
    frames = Frames(
        frame,
        np.zeros(1, np.int64),
        np.array([len(frame)], np.uint32),
        np.array([len(frame) + cut], np.uint32),
        np.array([link], np.uint32),
        np.zeros(1, np.int64),
    )
    packets = read_frames(frames)
    assert packets.tobytes() == plain_frames.read_frames(frames).tobytes(), frame.hex()
    kinds_of(frames)
    return int(packets["family"][0] != 0)


def read_flow_stats(data: bytes) -> int:
    """Read flow-desc replies. The first byte says how long the first of two is."""
    at = data[0] if data else 0
    try:
        return len(read_counters([data[1 : 1 + at], data[1 + at :]]).key)
    except Drifted:
        return 0


def read_matches(data: bytes) -> int:
    """Read OXM matches as the proof does: rows of one width, each with a length."""
    width, count = (data[0] or 1, min(data[1], 16)) if len(data) > 1 else (1, 0)
    lengths, rows = data[2 : 2 + count], data[2 + count :]
    items, registers = np.zeros(count, ITEM), np.zeros(count, REGISTERS)
    try:
        row, _ = _equivalence.decode(rows[: count * width], width, lengths, items, registers)
    except ValueError:
        return 0
    assert row < count
    return count if row < 0 else row


def match_lines(data: bytes) -> int:
    """Search rows of bits for positions: numbers of both do not fit together in most inputs."""
    if len(data) < 5:
        return 0
    words, k, most, cut = 8 * (data[0] % 3), data[1] % 5, data[2], 64 * data[3]
    try:
        chunks, _ = _matches.matches(data[4 : 4 + cut], words, data[4 + cut :], k, most)
    except (ValueError, OverflowError):
        return 0
    return len(chunks)


def read_rules(data: bytes) -> int:
    """Read rules together and one by one, then write them: the same comes out."""
    documents = list(_rule_documents(data))
    together, one_by_one = (_read_or_none(documents, each) for each in (rules_from_json, _read_one_by_one))
    assert together == one_by_one, data
    if together is None:
        return 0
    assert rule_texts(together) == [orjson.dumps(rule_to_json(rule)).decode() for rule in together], data
    return len(together)


def _rule_documents(data: bytes) -> Iterator[object]:
    """Rules as parsed JSON has them.

    Each member is a byte for its key, one for its kind, one for its length, and its bytes. A key of 128 or more is the
    last one of its rule.
    """
    document: dict[str, object] = {}
    while len(data) > 2:
        key, kind, size = data[:3]
        document[_RULE_KEYS[key % 128 % len(_RULE_KEYS)]] = _rule_value(kind, data[3 : 3 + size])
        data = data[3 + size :]
        if key >= 128:
            yield document
            document = {}


def _rule_value(kind: int, value: bytes) -> object:
    text = value.decode(errors="ignore")
    values = (text, int.from_bytes(value, signed=True), value == b"\1", text.split("\0"), None, len(value) / 2)
    return values[kind % len(values)]


def _read_one_by_one(documents: list[object]) -> tuple[Rule, ...]:
    return tuple(map(rule_from_json, documents))


def _read_or_none(documents: list[object], read: Callable[[list[object]], tuple[Rule, ...]]) -> tuple[Rule, ...] | None:
    try:
        return read(documents)
    except AclflowError:
        return None


def receive_packets(data: bytes) -> int:
    """Receive netlink's datagrams, each behind a byte with its length, and read the packets of them."""
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, kernel:
        sent = 0
        while data and sent < _ROOM:
            kernel.send(data[1 : 1 + data[0]])
            data, sent = data[1 + data[0] :], sent + 1
        if not sent:
            return 0
        room = np.empty(_ROOM * _SLOT, np.uint8)
        ids, captured, wire, links = np.empty((4, _ROOM), np.uint32)
        starts = np.empty(_ROOM, np.int64)
        count, _ = _nfqueue.receive(ours.fileno(), room, _SLOT, ids, starts, captured, wire, links, 0, 0)
        taken = (captured[:count], wire[:count], links[:count])
        frames = Frames(room, starts[:count], *taken, np.zeros(count, np.int64))
        assert (starts[:count] + captured[:count] <= room.size).all()
        read_frames(frames)
        _nfqueue.answer(kernel.fileno(), 0, 0, ids[:count].copy(), wire[:count] & 1)
        return count


def _netlink(packet: bytes) -> bytes:
    head = struct.pack("=HHIHBB", 11, 1, 5 << 24, 0x0008, 1, 0)[:11] + b"\0"
    payload = struct.pack("=HH", 4 + len(packet), 10) + packet
    body = struct.pack("!BBH", 2, 0, 0) + head + payload
    message = struct.pack("=IHHII", 16 + len(body), 3 << 8, 0, 0, 0) + body
    return bytes([len(message)]) + message


def _rule(**members: str | int | bool) -> bytes:
    """Return the bytes from which `_rule_documents` makes a rule."""
    packed, last = bytearray(), [*members][-1]
    for key, value in members.items():
        body = value.encode() if isinstance(value, str) else value.to_bytes(2 - isinstance(value, bool))
        kind = (str, int, bool).index(type(value))
        packed += bytes([_RULE_KEYS.index(key) + 128 * (key == last), kind, len(body)]) + body
    return bytes(packed)


def _oxm(number: int, value: bytes, mask: bytes = b"") -> bytes:
    return struct.pack("!HBB", 0x8000, number << 1 | bool(mask), len(value + mask)) + value + mask


def _flow_desc(match: bytes) -> bytes:
    padded = match.ljust(-(-(4 + len(match)) // 8) * 8 - 4, b"\0")
    stats = struct.pack("!HH", 0, 4 + 12 + 12) + b"\x80\x02\x01\x08" + bytes(8) + b"\x80\x02\x08\x08" + bytes(12)
    body = struct.pack("!BxH8xQHH", 10, 100, 0xAC << 56, 1, 4 + len(match)) + padded + stats
    return struct.pack("!HH", 4 + len(body), 0) + body


_TCP = recorded.ethernet(recorded.V4, recorded.ipv4(6, recorded.tcp()))
_UDP6 = recorded.ethernet(recorded.V6, recorded.ipv6(17, recorded.udp()), 0x8100)
_WEB = (
    _oxm(5, b"\x08\x00")
    + _oxm(12, b"\x0a\x00\x00\x00", b"\xff\x00\x00\x00")
    + _oxm(10, b"\x06")
    + _oxm(14, b"\x00\x50")
)

SEEDS: dict[Callable[[bytes], int], tuple[bytes, ...]] = {
    read_capture: (recorded.pcap([_TCP, _UDP6]), recorded.pcapng([_TCP, _UDP6])),
    read_one_frame: (_ON_ETHERNET + _TCP, _ON_ETHERNET + _UDP6),
    read_flow_stats: (bytes([_EMPTY]) + bytes(2 * _EMPTY) + _flow_desc(_WEB),),
    read_matches: (bytes([len(_WEB), 1, len(_WEB)]) + _WEB,),
    match_lines: (bytes([1, 2, 9, 8]) + b"\x01" + bytes(64 * 8 - 1) + bytes(8),),
    receive_packets: (_netlink(_TCP[14:38]),),
    read_rules: (
        _rule(id="r", action="permit", protocol="tcp", source="10.0.0.0/8", destination_ports="80-90")
        + _rule(id="s", action="deny", direction="egress", description="a b", log=True),
        _rule(action="deny", protocol=17, source_ports=53, established=False, id="t"),
    ),
}
OF_OURS = frozenset({"_columns", "_cover", "_forest", "_grouping", "_index", "_levels", "_sampling"})
"""Extensions that read arrays and values which our own code has made, and so no input of others."""
