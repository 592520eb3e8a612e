"""Frames of every kind that the replicator reads, built byte by byte."""

from __future__ import annotations

import ipaddress
import struct

from orchestrator.statesync.messages import Key, Message
from orchestrator.statesync.oracle import ACK, FIN, RST, SYN, Kind

TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
FLAGS = {
    Kind.SYN: SYN, Kind.SYN_ACK: SYN | ACK, Kind.ACK: ACK | 8, Kind.FIN: FIN | ACK, Kind.RST: RST, Kind.BAD: FIN | SYN,
}  # fmt: skip
_ETHERNET = bytes.fromhex("020000000001020000000002")
LOW4, HIGH4 = "10.1.0.2", "10.2.0.2"
LOW6, HIGH6 = "2001:db8:1::2", "2001:db8:2::2"
LOW_PORT, HIGH_PORT, ECHO = 40000, 80, 7


def mapped(address: str) -> int:
    """An address as keys hold it."""
    read = ipaddress.ip_address(address)
    return int(read) if read.version == 6 else 0xFFFF << 32 | int(read)


def ends(version: int) -> tuple[str, str]:
    """The lower and the upper end's address."""
    return (LOW4, HIGH4) if version == 4 else (LOW6, HIGH6)


def key_of(version: int, protocol: int) -> Key:
    """The key of the connection that `framed` makes packets of."""
    low, high = (mapped(end) for end in ends(version))
    if protocol in (ICMP, ICMPV6):
        return Key(low, high, ECHO, ECHO, protocol)
    return Key(low, high, LOW_PORT, HIGH_PORT, protocol)


def upper(protocol: int, kind: Kind, sender: bool, payload: bytes = b"") -> bytes:
    """What is behind the IP header, of a packet that the upper end sends (True) or the lower one."""
    source, destination = (HIGH_PORT, LOW_PORT) if sender else (LOW_PORT, HIGH_PORT)
    if protocol == TCP:
        return struct.pack(">HHIIBBHHH", source, destination, 1, 1, 0x50, FLAGS[kind], 1000, 0, 0) + payload
    if protocol == UDP:
        return struct.pack(">HHHH", source, destination, 8 + len(payload), 0) + payload
    types = {Kind.REQUEST: 8, Kind.REPLY: 0} if protocol == ICMP else {Kind.REQUEST: 128, Kind.REPLY: 129}
    return struct.pack(">BBHHH", types[kind], 0, 0, ECHO, 1) + payload


def packet(version: int, protocol: int, above: bytes, sender: bool, *, fragment: int = 0x4000) -> bytes:
    """An IP packet between the two ends."""
    low, high = (ipaddress.ip_address(end).packed for end in ends(version))
    source, destination = (high, low) if sender else (low, high)
    if version == 4:
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(above), 0, fragment, 63, protocol, 0)
    else:
        head = struct.pack(">IHBB", 6 << 28, len(above), protocol, 63)
    return head + source + destination + above


def ethernet(inner: bytes) -> bytes:
    """A frame around an IP packet."""
    return _ETHERNET + (b"\x08\x00" if inner[0] >> 4 == 4 else b"\x86\xdd") + inner


def framed(version: int, protocol: int, kind: Kind, sender: bool, payload: bytes = b"") -> bytes:
    """A frame of the connection that `key_of` names."""
    return ethernet(packet(version, protocol, upper(protocol, kind, sender, payload), sender))


def error_about(version: int, quoted: bytes, sender: bool) -> bytes:
    """A frame with an ICMP error (unreachable) that quotes the beginning of an IP packet."""
    protocol, kind = (ICMP, 3) if version == 4 else (ICMPV6, 1)
    return ethernet(packet(version, protocol, struct.pack(">BBHI", kind, 1, 0, 0) + quoted, sender))


def message_frame(sealed: bytes, to: str, port: int = 3781) -> bytes:
    """A frame with a message for a member."""
    above = struct.pack(">HHHH", port, port, 8 + len(sealed), 0) + sealed
    head = struct.pack(">BBHHHBBH", 0x45, 0xC0, 20 + len(above), 0, 0x4000, 64, UDP, 0)
    return ethernet(head + ipaddress.IPv4Address("10.9.0.2").packed + ipaddress.IPv4Address(to).packed + above)


def message_of(frame: bytes) -> bytes:
    """What is behind the UDP header."""
    return frame[42:]


__all__ = ["Message", "ends", "error_about", "ethernet", "framed", "key_of", "message_frame", "message_of", "packet"]
