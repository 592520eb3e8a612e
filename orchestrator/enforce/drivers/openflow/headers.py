"""The header fields of a frame, by their OpenFlow names, and their places.

Reading follows Open vSwitch, for what a switch does not see it cannot match:

* one VLAN tag is taken off (a second one is just an Ethernet type); `vlan_vid` is 0 without and 0x1000 + number with;
* a broken IP header shows nothing of the network layer; a truncated transport header shows no ports (they read 0);
* IPv6 extension headers are walked; `ip_proto` is the upper layer's, or 44 in later fragments;
* `ip_frag` has bit 0 in every fragment and bit 1 in later ones, which show nothing behind the IP header;
* padding behind the packet's own length does not count.

A field that a frame does not have is absent from `values`; switches match it as 0.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from orchestrator.enforce.drivers.openflow import frames
from orchestrator.enforce.drivers.openflow.channel import HEADER
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMP, ICMPV6, IPV6_FRAGMENT, SCTP, TCP, UDP

FRAGMENT, LATER = 1, 2
"""Bits of `ip_frag`."""

NO_TYPE = 0x05FF
"""The Ethernet type of a frame that has a length instead."""

_TAGS = (frames.VLAN, 0x88A8)
_PORTS = {TCP: ("tcp", 20), UDP: ("udp", 8), SCTP: ("sctp", 12)}


@dataclass(frozen=True, slots=True)
class Headers:
    """The fields of one frame and the bytes that hold them."""

    values: Mapping[str, int]
    places: Mapping[str, slice]
    network_at: int | None
    """Where the IP header begins."""
    transport_at: int | None
    """Where the transport header begins; None in later fragments and without one."""
    end: int
    """Where the packet ends; what follows is padding."""


@dataclass(slots=True)
class _Reader:
    """A frame, how far it was read, and what was found."""

    data: bytes
    at: int = 0
    end: int = 0
    values: dict[str, int] = field(default_factory=dict)
    places: dict[str, slice] = field(default_factory=dict)
    network_at: int | None = None
    transport_at: int | None = None

    @property
    def left(self) -> int:
        return self.end - self.at

    def note(self, name: str, at: int, size: int) -> int:
        """Read a whole field of `size` bytes."""
        place = slice(at, at + size)
        value = int.from_bytes(self.data[place], "big")
        self.values[name], self.places[name] = value, place
        return value

    def word(self, at: int) -> int:
        """Return the two bytes at a place as a number."""
        return int.from_bytes(self.data[at : at + 2], "big")


def parse(data: bytes) -> Headers:
    """Read a frame. Never fails: what cannot be read is not there."""
    reader = _Reader(data, end=len(data))
    if len(data) >= 14:
        _read_ethernet(reader)
        kind = reader.values["eth_type"]
        if kind == frames.IPV4:
            _read_ipv4(reader)
        elif kind == frames.IPV6:
            _read_ipv6(reader)
        elif kind == frames.ARP:
            _read_arp(reader)
    values, places = MappingProxyType(reader.values), MappingProxyType(reader.places)
    return Headers(values, places, reader.network_at, reader.transport_at, reader.end)


def packet_of(headers: Headers) -> Packet | None:
    """Return a frame as a policy's packet; None if it is no whole IP packet."""
    values = headers.values
    family = {frames.IPV4: Family.IPV4, frames.IPV6: Family.IPV6}.get(values.get("eth_type", 0))
    if family is None or "ip_proto" not in values:
        return None
    ports, _ = _PORTS.get(values["ip_proto"], ("", 0))
    icmp = {(Family.IPV4, ICMP): "icmp", (Family.IPV6, ICMPV6): "icmpv6"}.get((family, values["ip_proto"]), "")
    return Packet(
        family,
        values[f"ipv{family.value}_src"],
        values[f"ipv{family.value}_dst"],
        values["ip_proto"],
        values.get(f"{ports}_src", 0),
        values.get(f"{ports}_dst", 0),
        values.get(f"{icmp}_type", 0),
        values.get(f"{icmp}_code", 0),
        values.get("tcp_flags", 0) & 0xFF,
        dscp=values.get("ip_dscp", 0),
        later_fragment=bool(values["ip_frag"] & LATER),
    )


def _read_ethernet(reader: _Reader) -> None:
    reader.note("eth_dst", 0, 6)
    reader.note("eth_src", 6, 6)
    reader.values["vlan_vid"] = 0
    reader.at = 12
    if reader.word(12) in _TAGS and len(reader.data) >= 18:
        tag = reader.word(14)
        reader.values["vlan_vid"], reader.values["vlan_pcp"] = 0x1000 | tag & 0xFFF, tag >> 13
        reader.at = 16
    kind = reader.word(reader.at)
    reader.at += 2
    if kind < 0x0600:
        kind = _read_length_encapsulation(reader)
    reader.values["eth_type"] = kind


def _read_length_encapsulation(reader: _Reader) -> int:
    """IEEE 802.3 with a length: only a SNAP header tells a type."""
    snap = reader.data[reader.at : reader.at + 8]
    if len(snap) < 8 or snap[:6] != b"\xaa\xaa\x03\0\0\0" or reader.word(reader.at + 6) < 0x0600:
        return NO_TYPE
    reader.at += 8
    return reader.word(reader.at - 2)


def _read_arp(reader: _Reader) -> None:
    at = reader.at
    if reader.left < 28 or reader.data[at : at + 6] != struct.pack("!HHBB", 1, frames.IPV4, 6, 4):
        return
    if reader.word(at + 6) <= 0xFF:
        reader.note("arp_op", at + 6, 2)
    reader.note("arp_sha", at + 8, 6)
    reader.note("arp_spa", at + 14, 4)
    reader.note("arp_tha", at + 18, 6)
    reader.note("arp_tpa", at + 24, 4)


def _read_ipv4(reader: _Reader) -> None:
    at = reader.at
    if reader.left < 20:
        return
    length, total = (reader.data[at] & 15) * 4, reader.word(at + 2)
    if length < 20 or not length <= total <= reader.left:
        return
    reader.network_at, reader.end = at, at + total
    reader.note("ipv4_src", at + 12, 4)
    reader.note("ipv4_dst", at + 16, 4)
    reader.note("ip_proto", at + 9, 1)
    _note_service(reader, reader.data[at + 1], reader.data[at + 8])
    fragment = reader.word(at + 6)
    later = fragment & 0x1FFF
    reader.values["ip_frag"] = FRAGMENT | LATER if later else FRAGMENT if fragment & frames.MORE_FRAGMENTS else 0
    reader.at = at + length
    if not later:
        _read_transport(reader)


def _note_service(reader: _Reader, traffic_class: int, ttl: int) -> None:
    reader.values["ip_dscp"], reader.values["ip_ecn"] = traffic_class >> 2, traffic_class & 3
    reader.values["ip_ttl"] = ttl


def _read_ipv6(reader: _Reader) -> None:
    at = reader.at
    if reader.left < 40 or 40 + reader.word(at + 4) > reader.left:
        return
    reader.network_at, reader.end = at, at + 40 + reader.word(at + 4)
    reader.note("ipv6_src", at + 8, 16)
    reader.note("ipv6_dst", at + 24, 16)
    reader.at = at + 40
    found = _walk_extensions(reader, reader.data[at + 6])
    if found is None:
        return
    (first,) = struct.unpack_from("!I", reader.data, at)
    reader.values["ipv6_label"] = first & 0xFFFFF
    _note_service(reader, first >> 20 & 0xFF, reader.data[at + 7])
    reader.values["ip_proto"], reader.values["ip_frag"] = found
    if not found[1] & LATER:
        _read_transport(reader)


def _walk_extensions(reader: _Reader, protocol: int) -> tuple[int, int] | None:
    """Return the upper protocol and fragment bits; None if a header is cut off."""
    fragment = 0
    while protocol in frames.EXTENSION_HEADERS:
        if reader.left < 8:
            return None
        at, kind = reader.at, protocol
        protocol, length = reader.data[at], reader.data[at + 1]
        if kind == IPV6_FRAGMENT:
            size, word = 8, reader.word(at + 2)
            fragment |= FRAGMENT if word else 0
            if word & 0xFFF8:
                return IPV6_FRAGMENT, FRAGMENT | LATER
        else:
            size = (length + 2) * 4 if kind == frames.AUTHENTICATION else (length + 1) * 8
        if reader.left < size:
            return None
        reader.at += size
    return protocol, fragment


def _read_transport(reader: _Reader) -> None:
    reader.transport_at = at = reader.at
    protocol = reader.values["ip_proto"]
    if protocol in _PORTS:
        name, shortest = _PORTS[protocol]
        if reader.left < shortest or (protocol == TCP and not 20 <= (reader.data[at + 12] >> 4) * 4 <= reader.left):
            return
        reader.note(f"{name}_src", at, 2)
        reader.note(f"{name}_dst", at + 2, 2)
        if protocol == TCP:
            reader.values["tcp_flags"] = reader.word(at + 12) & 0xFFF
    elif protocol == ICMP and reader.left >= 8:
        reader.note("icmp_type", at, 1)
        reader.note("icmp_code", at + 1, 1)
    elif protocol == ICMPV6 and reader.left >= 8:
        reader.note("icmpv6_type", at, 1)
        reader.note("icmpv6_code", at + 1, 1)
        _read_neighbour_discovery(reader)


def _read_neighbour_discovery(reader: _Reader) -> None:
    """A solicitation or advertisement: its flags, its target, and the link addresses among its options."""
    at = reader.at
    if reader.values["icmpv6_code"] or reader.values["icmpv6_type"] not in (frames.SOLICITATION, frames.ADVERTISEMENT):
        return
    reader.note("nd_reserved", at + 4, 4)
    reader.at += 8
    if reader.left < 16:
        return
    reader.note("nd_target", reader.at, 16)
    reader.at += 16
    names = {frames.SOURCE_LINK_ADDRESS: "nd_sll", frames.TARGET_LINK_ADDRESS: "nd_tll"}
    while reader.left >= 8:
        option, length = reader.data[reader.at], reader.data[reader.at + 1] * 8
        if not length or length > reader.left:
            return
        name = names.get(option)
        if name is not None and length == 8:
            if reader.values.get(name):
                for wrong in ("nd_target", "nd_sll", "nd_tll"):
                    reader.values.pop(wrong, None)
                return
            reader.note(name, reader.at + 2, 6)
            if "nd_options_type" not in reader.values:
                reader.note("nd_options_type", reader.at, 1)
        reader.at += length


_HEAD = struct.Struct("!4xHBBQHH")
_BY_AN_ACTION = 1


def read_packet_in(message: bytes) -> tuple[int, Packet, int] | None:
    """Return a packet-in's cookie, packet and original length; None without an IP packet.

    Bytes cut off behind the headers do not matter. Never raises: a switch may send what it likes.

    header 8 │ buffer 4 │ whole length 2 │ reason 1 │ table 1 │ cookie 8 │ match, padded │ 0 2 │ the packet's beginning
    """
    try:
        whole, reason, _, cookie, _, match = _HEAD.unpack_from(message, HEADER.size)
        frame = message[HEADER.size + _HEAD.size - 4 + (match + 7) // 8 * 8 + 2 :]
    except struct.error:
        return None
    if reason != _BY_AN_ACTION or not frame:
        return None
    packet = packet_of(parse(frame.ljust(whole, b"\0")))
    return None if packet is None else (cookie, packet, whole)
