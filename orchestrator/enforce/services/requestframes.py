"""A question as the switch hands it over, and the frame that brings an answer.

The switch has checked who asks (`compile/pipelines/services.py`): the frame's source is the endpoint's MAC address, its
destination bears the number of the endpoint's port, and the packet's destination is the address that it is to have,
or the services' own where the endpoint renews what it has.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from orchestrator.compile.pipelines.host import CALLER_MAC, CALLER_MASK, SERVICES_IPV4
from orchestrator.policy.addresses import Family
from orchestrator.policy.protocols import ICMPV6, UDP

ETHERNET = struct.Struct("!6s6sH")
ETHERTYPES = {Family.IPV4: 0x0800, Family.IPV6: 0x86DD}
_UDP = struct.Struct("!HHHH")
_LATER_OR_MORE = 0x3FFF
"""Of IPv4's flags and offset: the packet is a fragment."""
_SIX_LENGTH, _FOUR_LENGTH = 40, 20


@dataclass(frozen=True, slots=True)
class Caller:
    """An endpoint that asks: its port number, MAC address and assigned address."""

    port: int
    mac: int
    family: Family
    address: int

    @property
    def mac_bytes(self) -> bytes:
        return self.mac.to_bytes(6, "big")


@dataclass(frozen=True, slots=True)
class Question:
    """A message to a host's services.

    `protocol` is UDP or ICMPv6, `destination` the UDP port or the ICMPv6 type, `source` the sender's address.
    """

    caller: Caller
    protocol: int
    source: int
    destination: int
    hops: int
    payload: bytes


def read_question(frame: bytes) -> Question | None:
    """Read a frame; None for all that is no whole question with a mark."""
    try:
        to, sender, kind = ETHERNET.unpack_from(frame)
    except struct.error:
        return None
    mark = int.from_bytes(to, "big")
    if mark & CALLER_MASK != CALLER_MAC:
        return None
    port, mac = mark & ~CALLER_MASK, int.from_bytes(sender, "big")
    packet = frame[ETHERNET.size :]
    try:
        if kind == ETHERTYPES[Family.IPV4]:
            return _read_four(port, mac, packet)
        return _read_six(port, mac, packet) if kind == ETHERTYPES[Family.IPV6] else None
    except (struct.error, IndexError):
        return None


def _read_four(port: int, mac: int, packet: bytes) -> Question | None:
    length = 4 * (packet[0] & 15)
    total, cut, hops, protocol = struct.unpack_from("!2xH2xHBB", packet)
    if packet[0] >> 4 != 4 or length < _FOUR_LENGTH or protocol != UDP or cut & _LATER_OR_MORE or total > len(packet):
        return None
    source, destination = struct.unpack_from("!II", packet, 12)
    address = source if destination == SERVICES_IPV4 else destination
    _, to_port, size, _ = _UDP.unpack_from(packet, length)
    if not _UDP.size <= size <= total - length:
        return None
    payload = packet[length + _UDP.size : length + size]
    return Question(Caller(port, mac, Family.IPV4, address), UDP, source, to_port, hops, payload)


def _read_six(port: int, mac: int, packet: bytes) -> Question | None:
    size, protocol, hops = struct.unpack_from("!4xHBB", packet)
    body = packet[_SIX_LENGTH : _SIX_LENGTH + size]
    if packet[0] >> 4 != 6 or len(body) != size:
        return None
    source, address = (int.from_bytes(packet[at : at + 16], "big") for at in (8, 24))
    caller = Caller(port, mac, Family.IPV6, address)
    if protocol == ICMPV6:
        return Question(caller, ICMPV6, source, body[0], hops, body)
    if protocol != UDP:
        return None
    _, to_port, length, _ = _UDP.unpack_from(body)
    if not _UDP.size <= length <= size:
        return None
    return Question(caller, UDP, source, to_port, hops, body[_UDP.size : length])


def _make_frame(caller: Caller, packet: bytes) -> bytes:
    mark = (CALLER_MAC | caller.port).to_bytes(6, "big")
    return ETHERNET.pack(caller.mac_bytes, mark, ETHERTYPES[caller.family]) + packet


def udp_frame(caller: Caller, ends: tuple[int, int], ports: tuple[int, int], payload: bytes) -> bytes:
    """Return the frame that brings a UDP payload to a caller.

    `ends` and `ports` are source and destination.
    """
    head = _UDP.pack(*ports, _UDP.size + len(payload), 0)
    body = (
        head[:6]
        + _checksum(_make_pseudo_header(caller.family, ends, UDP, len(head) + len(payload)) + head + payload)
        + payload
    )
    return _make_frame(caller, _make_ip_packet(caller.family, ends, UDP, body, hops=64))


def icmpv6_frame(caller: Caller, ends: tuple[int, int], message: bytes) -> bytes:
    """Return the frame that brings an ICMPv6 message to a caller on the same link.

    The message's checksum is zero so far.
    """
    checksum = _checksum(_make_pseudo_header(Family.IPV6, ends, ICMPV6, len(message)) + message)
    body = message[:2] + checksum + message[4:]
    return _make_frame(caller, _make_ip_packet(Family.IPV6, ends, ICMPV6, body, hops=255))


def _make_ip_packet(family: Family, ends: tuple[int, int], protocol: int, body: bytes, *, hops: int) -> bytes:
    source, destination = ends
    if family is Family.IPV6:
        head = struct.pack("!IHBB", 6 << 28, len(body), protocol, hops)
        return head + source.to_bytes(16, "big") + destination.to_bytes(16, "big") + body
    head = struct.pack("!BBHHHBBHII", 0x45, 0, _FOUR_LENGTH + len(body), 0, 0, hops, protocol, 0, source, destination)
    return head[:10] + _checksum(head) + head[12:] + body


def _make_pseudo_header(family: Family, ends: tuple[int, int], protocol: int, length: int) -> bytes:
    if family is Family.IPV6:
        return b"".join(end.to_bytes(16, "big") for end in ends) + struct.pack("!I3xB", length, protocol)
    return struct.pack("!IIxBH", *ends, protocol, length)


def _checksum(data: bytes) -> bytes:
    """Return the internet checksum (RFC 1071) of some bytes.

    0 is written as 0xffff, as UDP asks, which elsewhere says the same.
    """
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ((~total & 0xFFFF) or 0xFFFF).to_bytes(2, "big")
