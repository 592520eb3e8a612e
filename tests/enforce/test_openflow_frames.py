"""Frames are what they were made from, their checksums are right, and reading them never fails."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import packets

from orchestrator.enforce.drivers.openflow import frames
from orchestrator.enforce.drivers.openflow.frames import (
    ARP_REPLY,
    IPV4,
    IPV6,
    MORE_FRAGMENTS,
    SOLICITATION,
    SOURCE_LINK_ADDRESS,
    arp,
    ethernet,
    extension,
    fragment_header,
    frame,
    ipv4,
    ipv6,
    link_address,
    neighbour,
    pseudo_v4,
    pseudo_v6,
    sctp,
    udp,
    vlan,
)
from orchestrator.enforce.drivers.openflow.headers import NO_TYPE, packet_of, parse
from orchestrator.errors import NotExpressible
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP

ME, YOU = 0x020000000A01, 0x020000000A02
A4, B4, A6, B6 = 0x0A000001, 0x0A000002, 0x20010DB8 << 96 | 1, 0x20010DB8 << 96 | 2


@given(packets(), st.binary(max_size=40))
@settings(max_examples=examples(300), deadline=None)
def test_a_frame_is_read_as_the_packet_it_was_made_from(packet: Packet, payload: bytes) -> None:
    made = frame(packet, src_mac=ME, dst_mac=YOU, payload=payload)
    headers = parse(made)
    assert packet_of(headers) == packet
    assert (headers.values["eth_src"], headers.values["eth_dst"], headers.values["vlan_vid"]) == (ME, YOU, 0)
    assert headers.end == len(made)
    assert packet_of(parse(made + bytes(7))) == packet, "padding changes nothing"
    assert packet_of(parse(vlan(5, made))) == packet


@given(packets(), st.binary(max_size=40))
@settings(max_examples=examples(300), deadline=None)
def test_checksums_are_right(packet: Packet, payload: bytes) -> None:
    made = frame(packet, src_mac=ME, dst_mac=YOU, payload=payload)
    if packet.family is Family.IPV4:
        assert plain_checksum(made[14:34]) == 0
    if packet.later_fragment:
        return
    at = 34 if packet.family is Family.IPV4 else 54
    over = made[at:]
    covered = {
        (Family.IPV4, ICMP): over,
        (Family.IPV6, ICMPV6): pseudo(packet, len(over)) + over,
        (packet.family, TCP): pseudo(packet, len(over)) + over,
        (packet.family, UDP): pseudo(packet, len(over)) + over,
    }.get((packet.family, packet.protocol))
    if covered is not None:
        assert plain_checksum(covered) == 0


def plain_checksum(octets: bytes) -> int:
    """RFC 1071, written another way: the sum modulo 2^16 - 1 of what a right checksum is part of is 0."""
    even = octets + bytes(len(octets) % 2)
    return int.from_bytes(even, "big") % 0xFFFF


def pseudo(packet: Packet, length: int) -> bytes:
    size = packet.family.bits // 8
    addresses = packet.source.to_bytes(size, "big") + packet.destination.to_bytes(size, "big")
    return addresses + struct.pack("!II", length, packet.protocol)


def test_sctp_has_the_checksum_of_its_standard() -> None:
    assert frames.crc32c(b"123456789") == 0xE3069283
    assert sctp(1, 2, b"")[8:12] == frames.crc32c(struct.pack("!HHII", 1, 2, 1, 0)).to_bytes(4, "little")


def test_a_udp_checksum_is_never_sent_as_none() -> None:
    lengths = (udp(1, port, b"", pseudo_v4(A4, B4))[6:8] for port in range(65536))
    assert all(checksum != b"\0\0" for checksum in lengths)


@pytest.mark.parametrize("protocol", [0, 43, 44, 51, 60])
def test_an_extension_header_is_no_upper_layer(protocol: int) -> None:
    with pytest.raises(NotExpressible):
        frame(Packet(Family.IPV6, A6, B6, protocol), src_mac=ME, dst_mac=YOU)
    assert packet_of(parse(frame(Packet(Family.IPV4, A4, B4, protocol), src_mac=ME, dst_mac=YOU))) is not None


def test_a_later_fragment_of_ipv6_has_no_other_protocol() -> None:
    with pytest.raises(NotExpressible, match="44"):
        frame(Packet(Family.IPV6, A6, B6, UDP, later_fragment=True), src_mac=ME, dst_mac=YOU)


def test_tags_and_lengths() -> None:
    body = ethernet(ME, YOU, IPV4, ipv4(A4, B4, 47, b"gre"))
    once = parse(vlan(0x6FFF & 0xEFFF, body)).values
    assert (once["vlan_vid"], once["vlan_pcp"], once["eth_type"]) == (0x1FFF, 3, IPV4)
    twice = parse(vlan(7, vlan(8, body))).values
    assert (twice["vlan_vid"], twice["eth_type"]) == (0x1007, 0x8100)
    assert "ipv4_src" not in twice
    snap = ethernet(ME, YOU, 40, bytes.fromhex("aaaa03000000") + b"\x08\x00" + body[14:])
    assert parse(snap).values["ipv4_dst"] == B4
    assert parse(ethernet(ME, YOU, 40, bytes(40))).values["eth_type"] == NO_TYPE


def test_fragments_show_what_they_carry() -> None:
    whole = udp(7, 9, b"", pseudo_v4(A4, B4))
    first = parse(ethernet(ME, YOU, IPV4, ipv4(A4, B4, UDP, whole, fragment=MORE_FRAGMENTS))).values
    assert (first["ip_frag"], first["udp_src"], first["udp_dst"]) == (1, 7, 9)
    later = parse(ethernet(ME, YOU, IPV4, ipv4(A4, B4, UDP, whole, fragment=3))).values
    assert later["ip_frag"] == 3
    assert "udp_src" not in later
    tiny = parse(ethernet(ME, YOU, IPV4, ipv4(A4, B4, TCP, whole, fragment=MORE_FRAGMENTS))).values
    assert tiny["ip_frag"] == 1
    assert "tcp_src" not in tiny
    atomic = parse(ethernet(ME, YOU, IPV6, ipv6(A6, B6, 44, fragment_header(UDP, 0) + whole))).values
    assert (atomic["ip_frag"], atomic["ip_proto"], atomic["udp_dst"]) == (0, UDP, 9)


def test_extension_headers_are_walked_to_the_upper_layer() -> None:
    chain = extension(43, 16) + extension(60) + extension(SCTP, 24) + sctp(5, 6, b"")
    values = parse(ethernet(ME, YOU, IPV6, ipv6(A6, B6, 0, chain))).values
    assert (values["ip_proto"], values["sctp_src"], values["sctp_dst"]) == (SCTP, 5, 6)
    cut = parse(ethernet(ME, YOU, IPV6, ipv6(A6, B6, 0, chain[:20]))).values
    assert "ip_proto" not in cut
    assert cut["ipv6_src"] == A6


def test_neighbours_are_read() -> None:
    solicited = neighbour(SOLICITATION, 0, B6, link_address(SOURCE_LINK_ADDRESS, ME), pseudo_v6(A6, B6))
    values = parse(ethernet(ME, YOU, IPV6, ipv6(A6, B6, ICMPV6, solicited))).values
    assert (values["icmpv6_type"], values["nd_target"], values["nd_sll"], values["nd_options_type"]) == (135, B6, ME, 1)
    doubled = neighbour(SOLICITATION, 0, B6, link_address(1, ME) * 2, pseudo_v6(A6, B6))
    assert "nd_target" not in parse(ethernet(ME, YOU, IPV6, ipv6(A6, B6, ICMPV6, doubled))).values
    asked = parse(ethernet(ME, YOU, 0x0806, arp(ARP_REPLY, ME, A4, YOU, B4))).values
    assert [asked[f"arp_{name}"] for name in ("op", "sha", "spa", "tha", "tpa")] == [ARP_REPLY, ME, A4, YOU, B4]


@given(packets(), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_reading_never_fails(packet: Packet, data: st.DataObject) -> None:
    made = bytearray(frame(packet, src_mac=ME, dst_mac=YOU, payload=b"payload"))
    for _ in range(data.draw(st.integers(0, 3))):
        made[data.draw(st.integers(0, len(made) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(made[: data.draw(st.integers(0, len(made)))])
    headers = parse(cut)
    assert all(0 <= place.start < place.stop <= len(cut) for place in headers.places.values())
    packet_of(headers)
