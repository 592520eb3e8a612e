"""What is read from a frame: links, tags, extension headers, fragments, and what is not decided. C and Python agree."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import plain_frames
import pytest
from classify.recorded import (
    V4,
    V6,
    authentication,
    ethernet,
    extension,
    fragment,
    icmp,
    ipv4,
    ipv6,
    sctp,
    tcp,
    udp,
)
from hypothesis import given
from hypothesis import strategies as st
from plain_frames import read_frame
from strategies import packets as drawn_packets

from orchestrator.classify.frames import Frames, Link, read_frames
from orchestrator.classify.packets import PACKET, Unread, packet_of, record
from orchestrator.policy.addresses import Family, parse_address
from orchestrator.policy.model import Packet

ONE, OTHER = parse_address("192.0.2.1")[1], parse_address("198.51.100.7")[1]
SIX, OTHER_SIX = parse_address("2001:db8::1")[1], parse_address("2001:db8:1::7")[1]
WEB = Packet(Family.IPV4, ONE, OTHER, 6, 40000, 80, tcp_flags=0x02)
WEB_6 = Packet(Family.IPV6, SIX, OTHER_SIX, 6, 40000, 80, tcp_flags=0x02)
NAMES_6 = Packet(Family.IPV6, SIX, OTHER_SIX, 17, 40000, 53)
LATER_6 = Packet(Family.IPV6, SIX, OTHER_SIX, 44, later_fragment=True)
TCP_4, TCP_6 = ipv4(6, tcp()), ipv6(6, tcp())

FOUND = {
    "tcp": (ethernet(V4, TCP_4), 1, WEB),
    "every flag": (ethernet(V4, ipv4(6, tcp(flags=0xFF))), 1, replace(WEB, tcp_flags=0xFF)),
    "udp": (ethernet(V4, ipv4(17, udp())), 1, Packet(Family.IPV4, ONE, OTHER, 17, 40000, 53)),
    "sctp": (ethernet(V4, ipv4(132, sctp())), 1, Packet(Family.IPV4, ONE, OTHER, 132, 40000, 2905)),
    "icmp": (ethernet(V4, ipv4(1, icmp(3, 4))), 1, Packet(Family.IPV4, ONE, OTHER, 1, icmp_type=3, icmp_code=4)),
    "icmpv6": (ethernet(V6, ipv6(58, icmp(128))), 1, Packet(Family.IPV6, SIX, OTHER_SIX, 58, icmp_type=128)),
    "the other version's icmp": (ethernet(V4, ipv4(58, icmp(128))), 1, Packet(Family.IPV4, ONE, OTHER, 58)),
    "without ports": (ethernet(V4, ipv4(47, b"abcd")), 1, Packet(Family.IPV4, ONE, OTHER, 47)),
    "nothing behind": (ethernet(V6, ipv6(59, b"")), 1, Packet(Family.IPV6, SIX, OTHER_SIX, 59)),
    "ipv4 options": (ethernet(V4, ipv4(6, tcp(), options=bytes(40))), 1, WEB),
    "padding": (ethernet(V4, ipv4(17, udp())) + bytes(18), 1, Packet(Family.IPV4, ONE, OTHER, 17, 40000, 53)),
    "a length of zero": (ethernet(V4, ipv4(6, tcp(), total=0)), 1, WEB),
    "a length of zero, ipv6": (ethernet(V6, ipv6(6, tcp(), length=0)), 1, WEB_6),
    "first fragment": (ethernet(V4, ipv4(6, tcp(), fragment=0x2000)), 1, WEB),
    "later fragment": (
        ethernet(V4, ipv4(6, b"x", fragment=1)), 1, Packet(Family.IPV4, ONE, OTHER, 6, later_fragment=True)
    ),
    "do not fragment": (ethernet(V4, ipv4(6, tcp(), fragment=0x4000)), 1, WEB),
    "tagged": (ethernet(V4, TCP_4, 0x8100), 1, WEB),
    "tagged twice": (ethernet(V6, TCP_6, 0x88A8, 0x8100), 1, WEB_6),
    "tagged three times": (ethernet(V4, TCP_4, 0x9100, 0x9200, 0x8100), 1, WEB),
    "options of ipv6": (ethernet(V6, ipv6(0, extension(60, 16) + extension(17, 8) + udp())), 1, NAMES_6),
    "routing": (ethernet(V6, ipv6(43, extension(6, 24) + tcp())), 1, WEB_6),
    "authentication": (ethernet(V6, ipv6(51, authentication(6) + tcp())), 1, WEB_6),
    "authentication of ipv4": (ethernet(V4, ipv4(51, authentication(6))), 1, Packet(Family.IPV4, ONE, OTHER, 51)),
    "first fragment of ipv6": (ethernet(V6, ipv6(44, fragment(6, more=True) + tcp())), 1, WEB_6),
    "atomic fragment": (ethernet(V6, ipv6(44, fragment(17) + udp())), 1, NAMES_6),
    "options behind a fragment header": (ethernet(V6, ipv6(44, fragment(60) + extension(6) + tcp())), 1, WEB_6),
    "later fragment of ipv6": (ethernet(V6, ipv6(44, fragment(6, 3) + b"x" * 8)), 1, LATER_6),
    "later fragment behind options": (ethernet(V6, ipv6(0, extension(44) + fragment(58, 1) + b"x")), 1, LATER_6),
    "cooked": (bytes(14) + struct.pack(">H", V4) + TCP_4, 113, WEB),
    "cooked, tagged": (bytes(14) + struct.pack(">HHH", 0x8100, 7, V4) + TCP_4, 113, WEB),
    "cooked, version 2": (struct.pack(">H", V6) + bytes(18) + TCP_6, 276, WEB_6),
    "raw": (TCP_4, 101, WEB),
    "raw, ipv6": (TCP_6, 101, WEB_6),
    "raw as BSD says it": (TCP_4, 12, WEB),
    "raw as OpenBSD says it": (TCP_6, 14, WEB_6),
    "ipv4 only": (TCP_4, 228, WEB),
    "ipv6 only": (TCP_6, 229, WEB_6),
    "loopback": (struct.pack("<I", 2) + TCP_4, 0, WEB),
    "loopback of a big machine": (struct.pack(">I", 2) + TCP_4, 0, WEB),
    "loopback of FreeBSD": (struct.pack("<I", 28) + TCP_6, 0, WEB_6),
    "loopback of OpenBSD": (struct.pack(">I", 24) + TCP_6, 108, WEB_6),
}  # fmt: skip

NOT_FOUND = {
    "arp": (ethernet(0x0806, bytes(28)), 1, Unread.NOT_IP),
    "802.3": (ethernet(60, bytes(60)), 1, Unread.NOT_IP),
    "mpls": (ethernet(0x8847, b"\0\0\1\xff" + TCP_4), 1, Unread.NOT_IP),
    "raw of no version": (b"\x50" + bytes(40), 101, Unread.NOT_IP),
    "loopback of something else": (struct.pack("<I", 7) + bytes(20), 0, Unread.NOT_IP),
    "no frame": (b"", 1, Unread.BROKEN),
    "half a frame": (bytes(13), 1, Unread.BROKEN),
    "a tag and nothing": (ethernet(0x8100, b""), 1, Unread.BROKEN),
    "the other version": (ethernet(V4, TCP_6), 1, Unread.BROKEN),
    "the other version, ipv6": (ethernet(V6, TCP_4 + bytes(20)), 1, Unread.BROKEN),
    "a header of 16": (ethernet(V4, b"\x44" + TCP_4[1:]), 1, Unread.BROKEN),
    "shorter than it says": (ethernet(V4, ipv4(6, tcp(), total=41)), 1, Unread.BROKEN),
    "shorter than it says, ipv6": (ethernet(V6, ipv6(6, tcp(), length=21)), 1, Unread.BROKEN),
    "shorter than its header": (ethernet(V4, ipv4(6, tcp(), total=19)), 1, Unread.BROKEN),
    "half a tcp header": (ethernet(V4, ipv4(6, tcp()[:19])), 1, Unread.BROKEN),
    "half a udp header": (ethernet(V4, ipv4(17, udp()[:7])), 1, Unread.BROKEN),
    "half an sctp header": (ethernet(V4, ipv4(132, sctp()[:11])), 1, Unread.BROKEN),
    "half an icmp header": (ethernet(V4, ipv4(1, icmp()[:7])), 1, Unread.BROKEN),
    "half an icmpv6 header": (ethernet(V6, ipv6(58, icmp()[:3])), 1, Unread.BROKEN),
    "ports in the padding": (ethernet(V4, ipv4(17, udp(), total=24)), 1, Unread.BROKEN),
    "a tiny first fragment": (ethernet(V4, ipv4(6, tcp()[:8], fragment=0x2000)), 1, Unread.BROKEN),
    "options without end": (ethernet(V6, ipv6(0, b"\x06\xff" + bytes(6))), 1, Unread.BROKEN),
    "half a fragment header": (ethernet(V6, ipv6(44, fragment(6)[:7])), 1, Unread.BROKEN),
    "of another link": (TCP_4, 105, Unread.OTHER_LINK),
}


@pytest.mark.parametrize("name", FOUND)
def test_is_read(name: str) -> None:
    data, link, packet = FOUND[name]
    assert read_frame(data, len(data), link) == packet
    assert packet_of(read_frames(_frames((data, len(data), link)))[0]) == packet


@pytest.mark.parametrize("name", NOT_FOUND)
def test_is_not_decided(name: str) -> None:
    data, link, why = NOT_FOUND[name]
    assert read_frame(data, len(data), link) is why
    assert read_frames(_frames((data, len(data), link)))["unread"] == why


@pytest.mark.parametrize("name", FOUND)
def test_what_the_capture_cut_off_is_never_guessed(name: str) -> None:
    data, link, packet = FOUND[name]
    whole = [read_frame(data[:kept], len(data), link) for kept in range(len(data) + 1)]
    assert set(whole) <= {Unread.CUT_OFF, packet}
    assert whole[0] is Unread.CUT_OFF


def test_ports_are_enough_of_a_header_that_was_whole() -> None:
    data = ethernet(V4, ipv4(17, udp()))
    assert isinstance(read_frame(data[:38], len(data), 1), Packet)
    assert read_frame(data[:37], len(data), 1) is Unread.CUT_OFF


def test_the_length_is_the_one_on_the_wire() -> None:
    data = ethernet(V4, TCP_4)
    assert read_frames(_frames((data, 1514, 1)))["length"].tolist() == [1514]


def _frames(*given: tuple[bytes, int, int]) -> Frames:
    ends = np.cumsum([0, *(len(data) for data, _, _ in given)])
    return Frames(
        b"".join(data for data, _, _ in given), ends[:-1].astype(np.int64),
        np.array([len(data) for data, _, _ in given], np.uint32), np.array([wire for _, wire, _ in given], np.uint32),
        np.array([link for _, _, link in given], np.uint32),
    )  # fmt: skip


@st.composite
def _damaged(draw: st.DrawFn) -> tuple[bytes, int, int]:
    """A frame with some bytes changed, cut somewhere, of which the capture has some."""
    data, link, _ = draw(st.sampled_from([*FOUND.values(), *NOT_FOUND.values()]))
    frame = bytearray(data)
    for _ in range(draw(st.integers(0, 3))):
        if frame:
            frame[draw(st.integers(0, len(frame) - 1))] = draw(st.sampled_from((0, 1, 4, 6, 17, 44, 51, 58, 60, 255)))
    wire = draw(st.integers(0, len(frame) + 3)) if draw(st.booleans()) else len(frame)
    kept = draw(st.integers(0, len(frame))) if draw(st.booleans()) else len(frame)
    kind = draw(st.sampled_from((*map(int, Link), 105))) if draw(st.integers(0, 3)) == 0 else link
    return bytes(frame[:kept]), wire, kind


@given(st.lists(_damaged(), max_size=8))
def test_in_c_as_in_python(given_frames: list[tuple[bytes, int, int]]) -> None:
    frames = _frames(*given_frames)
    assert read_frames(frames).tobytes() == plain_frames.read_frames(frames).tobytes()


def test_frames_outside_of_the_data_are_refused() -> None:
    frames = _frames((ethernet(V4, TCP_4), 54, 1))
    for start, captured in ((-1, 10), (40, 15), (55, 0)):
        places = np.array([start], np.int64), np.array([captured], np.uint32)
        with pytest.raises(ValueError, match="do not lie in the data"):
            read_frames(Frames(frames.data, *places, frames.wire, frames.links))


@given(st.lists(drawn_packets(), max_size=4))
def test_a_record_is_its_packet(found: list[Packet]) -> None:
    assert [packet_of(each) for each in np.array([record(packet) for packet in found], PACKET)] == found
