"""Ethernet frames, made from what a policy calls a packet, or piece by piece.

`frame` makes the frame that a policy's `Packet` stands for. The builders beneath it make what a packet cannot say
(tags, first fragments, extension headers, ARP, neighbour discovery), each one layer with right lengths and checksums:

    ethernet(a, b, IPV4, ipv4(src, dst, UDP, udp(1000, 53, b"query", pseudo_v4(src, dst))))

Addresses and MACs are integers, as everywhere in the policy. `headers` reads frames.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from orchestrator.errors import NotExpressible
from orchestrator.policy.addresses import Family
from orchestrator.policy.fields import slot_values
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMP, ICMPV6, IPV6_FRAGMENT, SCTP, TCP, UDP

IPV4, ARP, VLAN, IPV6 = 0x0800, 0x0806, 0x8100, 0x86DD
"""Ethernet types."""

HOP_BY_HOP, ROUTING, AUTHENTICATION, DESTINATION_OPTIONS = 0, 43, 51, 60
EXTENSION_HEADERS = frozenset({HOP_BY_HOP, ROUTING, IPV6_FRAGMENT, AUTHENTICATION, DESTINATION_OPTIONS})
"""IPv6 headers behind which the upper layer follows."""

MORE_FRAGMENTS = 0x2000
"""IPv4's flag, in the 16 bits that it shares with the offset (in units of 8 bytes)."""

LATER_OFFSET = 185
"""The offset that `frame` gives later fragments, in units of 8 bytes: behind a first one of 1480."""

ARP_REQUEST, ARP_REPLY = 1, 2
SOLICITATION, ADVERTISEMENT = 135, 136
"""ICMPv6 types of neighbour discovery."""
SOURCE_LINK_ADDRESS, TARGET_LINK_ADDRESS = 1, 2
"""Neighbour discovery options."""

Pseudo = Callable[[int, int], bytes]
"""The pseudo header that checksums cover, given the upper protocol and its length."""


def frame(packet: Packet, *, src_mac: int, dst_mac: int, payload: bytes = b"") -> bytes:
    """Build the frame of a policy's packet.

    Raises NotExpressible where no frame can be that packet.
    """
    if packet.family is Family.IPV4:
        pseudo = pseudo_v4(packet.source, packet.destination)
        offset = LATER_OFFSET if packet.later_fragment else 0
        body = payload if packet.later_fragment else _upper(packet, payload, pseudo)
        return ethernet(
            src_mac,
            dst_mac,
            IPV4,
            ipv4(packet.source, packet.destination, packet.protocol, body, fragment=offset, service=packet.dscp << 2),
        )
    if packet.later_fragment != (packet.protocol == IPV6_FRAGMENT):
        raise NotExpressible("in IPv6, protocol 44 and later fragments are the same thing", place="protocol")
    if packet.later_fragment:
        body = fragment_header(UDP, LATER_OFFSET << 3) + payload
    elif packet.protocol in EXTENSION_HEADERS:
        raise NotExpressible(f"{packet.protocol} is an extension header, never an upper layer", place="protocol")
    else:
        body = _upper(packet, payload, pseudo_v6(packet.source, packet.destination))
    whole = ipv6(packet.source, packet.destination, packet.protocol, body, service=packet.dscp << 2)
    return ethernet(src_mac, dst_mac, IPV6, whole)


def _upper(packet: Packet, payload: bytes, pseudo: Pseudo) -> bytes:
    """Make the packet's transport header and payload; without ports, the payload alone."""
    ports = packet.source_port, packet.destination_port
    if packet.protocol == TCP:
        return tcp(*ports, packet.tcp_flags, payload, pseudo)
    if packet.protocol == UDP:
        return udp(*ports, payload, pseudo)
    if packet.protocol == SCTP:
        return sctp(*ports, payload)
    if packet.protocol == ICMP and packet.family is Family.IPV4:
        return icmp(*slot_values(packet), bytes(4) + payload)
    if packet.protocol == ICMPV6 and packet.family is Family.IPV6:
        return icmp(*slot_values(packet), bytes(4) + payload, pseudo)
    return payload


def mac_bytes(mac: int) -> bytes:
    """A MAC address on the wire."""
    return mac.to_bytes(6, "big")


def ethernet(src_mac: int, dst_mac: int, kind: int, payload: bytes) -> bytes:
    """Build an Ethernet frame, not padded."""
    return mac_bytes(dst_mac) + mac_bytes(src_mac) + kind.to_bytes(2, "big") + payload


def vlan(number: int, untagged: bytes) -> bytes:
    """Return an untagged frame with a VLAN tag."""
    return untagged[:12] + struct.pack("!HH", VLAN, number) + untagged[12:]


def ipv4(
    source: int,
    destination: int,
    protocol: int,
    payload: bytes,
    *,
    fragment: int = 0,
    options: bytes = b"",
    service: int = 0,
) -> bytes:
    """Build an IPv4 packet.

    `fragment` is the 16-bit word of flags and offset; `options` must fill whole words; `service` is DSCP and ECN.
    """
    words = 5 + len(options) // 4
    total = words * 4 + len(payload)
    head = struct.pack("!BBHHHBBH", 4 << 4 | words, service, total, 0x1F1F, fragment, 64, protocol, 0)
    head += struct.pack("!II", source, destination) + options
    return head[:10] + checksum(head).to_bytes(2, "big") + head[12:] + payload


def ipv6(source: int, destination: int, next_header: int, payload: bytes, *, service: int = 0, hops: int = 64) -> bytes:
    """An IPv6 packet; `service` is DSCP and ECN, `hops` its hop limit."""
    addresses = source.to_bytes(16, "big") + destination.to_bytes(16, "big")
    return struct.pack("!IHBB", 6 << 28 | service << 20, len(payload), next_header, hops) + addresses + payload


def extension(next_header: int, size: int = 8) -> bytes:
    """An IPv6 extension header (hop-by-hop, routing or destination options) of `size` bytes, filled with padding."""
    return struct.pack("!BBBB", next_header, size // 8 - 1, 1, size - 4).ljust(size, b"\0")


def fragment_header(next_header: int, offset_and_flags: int) -> bytes:
    """Build IPv6's fragment header.

    The offset in bytes, a multiple of 8, plus 1 if more fragments follow.
    """
    return struct.pack("!BBHI", next_header, 0, offset_and_flags, 0x1F1F1F1F)


def tcp(source_port: int, destination_port: int, flags: int, payload: bytes, pseudo: Pseudo) -> bytes:
    """Build a TCP segment."""
    head = struct.pack("!HHIIHHHH", source_port, destination_port, 1, 1, 5 << 12 | flags, 8192, 0, 0)
    return _put_checksum(head + payload, 16, pseudo, TCP)


def udp(source_port: int, destination_port: int, payload: bytes, pseudo: Pseudo) -> bytes:
    """Build a UDP datagram.

    A checksum that comes out as zero is sent as all ones, for zero means none.
    """
    head = struct.pack("!HHHH", source_port, destination_port, 8 + len(payload), 0)
    whole = _put_checksum(head + payload, 6, pseudo, UDP)
    return whole if whole[6:8] != b"\0\0" else whole[:6] + b"\xff\xff" + whole[8:]


def sctp(source_port: int, destination_port: int, payload: bytes) -> bytes:
    """An SCTP packet; `payload` stands for its chunks."""
    head = struct.pack("!HHI", source_port, destination_port, 1)
    crc = crc32c(head + bytes(4) + payload)
    return head + crc.to_bytes(4, "little") + payload


def icmp(kind: int, code: int, rest: bytes, pseudo: Pseudo | None = None) -> bytes:
    """Build an ICMP message, or with a pseudo header an ICMPv6 one.

    `rest` is all behind the checksum.
    """
    head = struct.pack("!BBH", kind, code, 0)
    return _put_checksum(head + rest, 2, pseudo or (lambda _protocol, _length: b""), ICMPV6)


def arp(operation: int, sender_mac: int, sender: int, target_mac: int, target: int) -> bytes:
    """An ARP packet for IPv4 over Ethernet."""
    head = struct.pack("!HHBBH", 1, IPV4, 6, 4, operation)
    return head + mac_bytes(sender_mac) + sender.to_bytes(4, "big") + mac_bytes(target_mac) + target.to_bytes(4, "big")


def neighbour(kind: int, flags: int, target: int, options: bytes, pseudo: Pseudo) -> bytes:
    """A neighbour solicitation or advertisement; `flags` are the 32 bits behind the checksum."""
    return icmp(kind, 0, flags.to_bytes(4, "big") + target.to_bytes(16, "big") + options, pseudo)


def link_address(option: int, mac: int) -> bytes:
    """The option of neighbour discovery that carries a MAC."""
    return bytes((option, 1)) + mac_bytes(mac)


def pseudo_v4(source: int, destination: int) -> Pseudo:
    """Build the IPv4 pseudo header of TCP and UDP checksums."""
    return lambda protocol, length: struct.pack("!IIBBH", source, destination, 0, protocol, length)


def pseudo_v6(source: int, destination: int) -> Pseudo:
    """Return the IPv6 pseudo header for checksums; ICMPv6 has it too."""
    addresses = source.to_bytes(16, "big") + destination.to_bytes(16, "big")
    return lambda protocol, length: addresses + struct.pack("!II", length, protocol)


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    even = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(even) // 2}H", even))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _put_checksum(whole: bytes, at: int, pseudo: Pseudo, protocol: int) -> bytes:
    value = checksum(pseudo(protocol, len(whole)) + whole)
    return whole[:at] + value.to_bytes(2, "big") + whole[at + 2 :]


def crc32c(data: bytes) -> int:
    """SCTP's checksum (RFC 9260, appendix A)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
