"""Frames and captures made by hand: what is written here is what the readers must find."""

from __future__ import annotations

import gzip
import socket
import struct
from collections.abc import Iterable, Sequence

ETHERNET = 1
V4, V6 = 0x0800, 0x86DD


def ethernet(kind: int, payload: bytes, *tags: int) -> bytes:
    """A frame; `tags` are the types of VLAN tags in front of it, the outermost first."""
    vlans = b"".join(struct.pack(">HH", tag, 7) for tag in tags)
    return b"\x02" * 6 + b"\x04" * 6 + vlans + struct.pack(">H", kind) + payload


def ipv4(
    protocol: int,
    payload: bytes,
    source: str = "192.0.2.1",
    destination: str = "198.51.100.7",
    *,
    fragment: int = 0,
    options: bytes = b"",
    total: int | None = None,
) -> bytes:
    """A packet; `fragment` is the field of flags and offset, `total` the length that it claims."""
    length = 20 + len(options) + len(payload) if total is None else total
    first = 0x45 + len(options) // 4
    head = struct.pack(">BBHHHBBH", first, 0, length, 1, fragment, 64, protocol, 0)
    return head + socket.inet_aton(source) + socket.inet_aton(destination) + options + payload


def ipv6(
    following: int,
    payload: bytes,
    source: str = "2001:db8::1",
    destination: str = "2001:db8:1::7",
    *,
    length: int | None = None,
) -> bytes:
    claimed = len(payload) if length is None else length
    ends = (socket.inet_pton(socket.AF_INET6, end) for end in (source, destination))
    return struct.pack(">IHBB", 6 << 28, claimed, following, 64) + b"".join(ends) + payload


def tcp(source: int = 40000, destination: int = 80, flags: int = 0x02) -> bytes:
    return struct.pack(">HHIIBBHHH", source, destination, 1, 0, 0x50, flags, 64, 0, 0)


def udp(source: int = 40000, destination: int = 53, payload: bytes = b"") -> bytes:
    return struct.pack(">HHHH", source, destination, 8 + len(payload), 0) + payload


def sctp(source: int = 40000, destination: int = 2905) -> bytes:
    return struct.pack(">HHII", source, destination, 1, 0)


def icmp(kind: int = 8, code: int = 0) -> bytes:
    return struct.pack(">BBHI", kind, code, 0, 0)


def extension(following: int, size: int = 8) -> bytes:
    """A header of options or routing."""
    return bytes((following, size // 8 - 1)) + bytes(size - 2)


def authentication(following: int, size: int = 24) -> bytes:
    return bytes((following, size // 4 - 2)) + bytes(size - 2)


def fragment(following: int, offset: int = 0, *, more: bool = False) -> bytes:
    return struct.pack(">BBHI", following, 0, offset << 3 | more, 1)


def web(source: str = "192.0.2.1", flags: int = 0x02, port: int = 80) -> bytes:
    """A frame of TCP to a web server."""
    return ethernet(V4, ipv4(6, tcp(destination=port, flags=flags), source))


def pcap_header(order: str = "<", *, nanoseconds: bool = False, link: int = ETHERNET, major: int = 2) -> bytes:
    magic = 0xA1B23C4D if nanoseconds else 0xA1B2C3D4
    return struct.pack(order + "IHHiIII", magic, major, 4, 0, 0, 65535, link)


def record(frame: bytes, order: str = "<", *, wire: int | None = None) -> bytes:
    return struct.pack(order + "IIII", 1, 2, len(frame), len(frame) if wire is None else wire) + frame


def pcap(frames: Iterable[bytes], order: str = "<", *, nanoseconds: bool = False, link: int = ETHERNET) -> bytes:
    return pcap_header(order, nanoseconds=nanoseconds, link=link) + b"".join(record(frame, order) for frame in frames)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """A block of pcapng, filled up to words."""
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def section(order: str = "<", major: int = 1) -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, major, 0, -1), order)


def interface(order: str = "<", link: int = ETHERNET, longest: int = 0) -> bytes:
    return block(1, struct.pack(order + "HHI", link, 0, longest), order)


def packet_block(frame: bytes, order: str = "<", number: int = 0, *, wire: int | None = None) -> bytes:
    whole = len(frame) if wire is None else wire
    return block(6, struct.pack(order + "IIIII", number, 0, 0, len(frame), whole) + frame, order)


def old_packet_block(frame: bytes, order: str = "<", number: int = 0) -> bytes:
    return block(2, struct.pack(order + "HHIIII", number, 0, 0, 0, len(frame), len(frame)) + frame, order)


def simple_packet_block(frame: bytes, order: str = "<", *, wire: int | None = None) -> bytes:
    return block(3, struct.pack(order + "I", len(frame) if wire is None else wire) + frame, order)


def pcapng(frames: Iterable[bytes], order: str = "<", link: int = ETHERNET) -> bytes:
    return section(order) + interface(order, link) + b"".join(packet_block(frame, order) for frame in frames)


def packed(data: bytes, members: int = 1) -> bytes:
    """gzip, of so many members."""
    step = -(-len(data) // members)
    parts: Sequence[bytes] = [data[place : place + step] for place in range(0, len(data), step)]
    return b"".join(map(gzip.compress, parts))


class ReadsNothing:
    """In the place of the extension: it reads no run of packets, so that each is read alone, in Python."""

    @staticmethod
    def records(_data: bytes, place: int, *_: object) -> tuple[int, bytes, bytes, bytes, bytes, bytes]:
        return place, b"", b"", b"", b"", b""

    blocks = records
