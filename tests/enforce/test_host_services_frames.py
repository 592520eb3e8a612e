"""Questions as frames, and their answers: who is answered, with what, and that no bytes are too strange."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.compile.pipelines.host import CALLER_MAC, SERVICES_IPV4
from orchestrator.enforce.services import dhcp, dhcpv6
from orchestrator.enforce.services.answerer import answer
from orchestrator.enforce.services.hostservices import HostServices, Subnet
from orchestrator.enforce.services.requestframes import Caller, Question, icmpv6_frame, read_question, udp_frame
from orchestrator.enforce.services.routers import advertisement, made_of_mac
from orchestrator.enforce.services.servicekeeper import offers
from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family, format_address, parse_address

MAC = 0x02AABBCCDDEE
SERVICES = HostServices((Subnet.parse("10.1.0.0/16"), Subnet.parse("10.1.2.0/24=10.1.2.254")), mtu=1400)
FOUR = Caller(7, MAC, Family.IPV4, parse_address("10.1.2.9")[1])
SIX = Caller(7, MAC, Family.IPV6, parse_address("2001:db8::9")[1])
LINK_LOCAL = parse_address("fe80::7")[1]


def asked(kind: int, *options: bytes, chaddr: int = MAC, held: int = 0, flags: int = 0, relay: int = 0) -> Question:
    """A DHCP message from the endpoint."""
    head = struct.pack("!BBBBIHHIIII16s192x", 1, 1, 6, 0, 5, 0, flags, held, 0, 0, relay, chaddr.to_bytes(6, "big"))
    payload = head + b"\x63\x82\x53\x63" + bytes([53, 1, kind]) + b"".join(options) + b"\xff"
    return Question(FOUR, 17, 0, 67, 64, payload)


def told(frame: bytes | None) -> tuple[int, str, dict[int, bytes]]:
    """Message type, the address given, and options of an answer."""
    assert frame is not None
    payload = frame[42:]
    options, at = {}, 240
    while payload[at] != 255:
        options[payload[at]] = payload[at + 2 : at + 2 + payload[at + 1]]
        at += 2 + payload[at + 1]
    return options[53][0], format_address(Family.IPV4, int.from_bytes(payload[16:20], "big")), options


def requested(text: str) -> bytes:
    return b"\x32\x04" + parse_address(text)[1].to_bytes(4, "big")


def test_an_offer_has_address_mask_router_resolver_and_mtu() -> None:
    kind, address, options = told(answer(asked(dhcp.DISCOVER), SERVICES))
    assert (kind, address) == (dhcp.OFFER, "10.1.2.9")
    assert options[1] == bytes([255, 255, 255, 0]), "of the longest subnet"
    assert options[3] == bytes([10, 1, 2, 254])
    assert options[6] == options[54] == SERVICES_IPV4.to_bytes(4, "big")
    assert options[26] == (1400).to_bytes(2, "big")


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        (asked(dhcp.REQUEST, requested("10.1.2.9")), dhcp.ACK),
        (asked(dhcp.REQUEST, held=FOUR.address), dhcp.ACK),
        (asked(dhcp.REQUEST, requested("10.1.2.8")), dhcp.NAK),
        (asked(dhcp.REQUEST), dhcp.NAK),
        (asked(dhcp.INFORM, held=FOUR.address), dhcp.ACK),
    ],
)
def test_a_request_is_acknowledged_for_the_own_address_alone(question: Question, kind: int) -> None:
    assert told(answer(question, SERVICES))[0] == kind


@pytest.mark.parametrize(
    "question",
    [
        asked(dhcp.DISCOVER, chaddr=MAC + 1),
        asked(dhcp.DISCOVER, relay=1),
        asked(dhcp.DECLINE, requested("10.1.2.9")),
        asked(dhcp.RELEASE, held=FOUR.address),
        asked(dhcp.OFFER),
        asked(dhcp.REQUEST, requested("10.1.2.9"), b"\x36\x04\x0a\x01\x02\x07"),
    ],
    ids=["chaddr", "relay", "decline", "release", "offer", "another server"],
)
def test_what_is_not_answered(question: Question) -> None:
    assert answer(question, SERVICES) is None


def test_a_client_that_cannot_hear_yet_is_told_by_broadcast_at_its_own_port() -> None:
    frame = answer(asked(dhcp.DISCOVER, flags=0x8000), SERVICES)
    assert frame is not None
    assert frame[:6] == MAC.to_bytes(6, "big")
    assert frame[6:12] == (CALLER_MAC | 7).to_bytes(6, "big")
    assert frame[30:34] == b"\xff" * 4


def six(kind: int, *options: tuple[int, bytes]) -> Question:
    """A DHCPv6 message from the endpoint."""
    body = b"".join(struct.pack("!HH", number, len(value)) + value for number, value in options)
    return Question(SIX, 17, LINK_LOCAL, 547, 64, bytes([kind]) + b"abc" + body)


CLIENT, SERVER = (1, b"\0\3\0\1client"), (2, dhcpv6.SERVER_ID)
WANTS = (3, bytes(12))


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        (six(dhcpv6.SOLICIT, CLIENT, WANTS), dhcpv6.ADVERTISE),
        (six(dhcpv6.SOLICIT, CLIENT, WANTS, (14, b"")), dhcpv6.REPLY),
        (six(dhcpv6.REQUEST, CLIENT, SERVER, WANTS), dhcpv6.REPLY),
        (six(dhcpv6.RENEW, CLIENT, SERVER, WANTS), dhcpv6.REPLY),
        (six(dhcpv6.REBIND, CLIENT, WANTS), dhcpv6.REPLY),
    ],
)
def test_dhcpv6_gives_the_address(question: Question, kind: int) -> None:
    frame = answer(question, SERVICES)
    assert frame is not None
    assert frame[62] == kind
    assert SIX.address.to_bytes(16, "big") in frame[62:]


@pytest.mark.parametrize(
    "question",
    [
        six(dhcpv6.SOLICIT, WANTS), six(dhcpv6.REQUEST, CLIENT, WANTS), six(dhcpv6.REQUEST, CLIENT, (2, b"x"), WANTS),
        six(dhcpv6.SOLICIT, CLIENT, SERVER, WANTS), six(dhcpv6.ADVERTISE, CLIENT, SERVER), six(99, CLIENT),
    ],
)  # fmt: skip
def test_messages_for_others_and_without_a_client_are_not_answered(question: Question) -> None:
    assert answer(question, SERVICES) is None


def test_what_an_endpoint_must_not_have_is_over_at_once() -> None:
    stale = parse_address("2001:db8::8")[1].to_bytes(16, "big")
    had = (3, bytes(12) + struct.pack("!HH", 5, 24) + stale + struct.pack("!II", 99, 99))
    frame = answer(six(dhcpv6.RENEW, CLIENT, SERVER, had), SERVICES)
    assert frame is not None
    assert stale + bytes(8) in frame


def test_a_prefix_is_announced_where_the_mac_address_makes_the_right_address() -> None:
    made = made_of_mac(MAC, SIX.address)
    assert format_address(Family.IPV6, made) == "2001:db8::aa:bbff:fecc:ddee"
    prefix = SIX.address >> 64 << 64
    assert prefix.to_bytes(16, "big") in advertisement(Caller(7, MAC, Family.IPV6, made), SERVICES)
    assert prefix.to_bytes(16, "big") not in advertisement(SIX, SERVICES)


def test_frames_are_read_as_they_were_written() -> None:
    frame = udp_frame(FOUR, (0, FOUR.address), (68, 67), b"hello")
    mine = (CALLER_MAC | 7).to_bytes(6, "big") + MAC.to_bytes(6, "big") + frame[12:]
    assert read_question(mine) == Question(FOUR, 17, 0, 67, 64, b"hello")
    assert read_question(frame) is None, "without a mark"
    solicitation = icmpv6_frame(SIX, (LINK_LOCAL, SIX.address), bytes([133, 0, 0, 0, 0, 0, 0, 0]))
    question = read_question((CALLER_MAC | 7).to_bytes(6, "big") + MAC.to_bytes(6, "big") + solicitation[12:])
    assert question is not None
    assert (question.caller, question.destination, question.hops) == (SIX, 133, 255)
    assert answer(question, SERVICES) is not None


@given(st.sampled_from([0x0800, 0x86DD, 0x0806]), st.binary(max_size=700), st.booleans())
def test_no_bytes_are_too_strange(kind: int, packet: bytes, well_begun: bool) -> None:
    if well_begun:
        packet = (b"\x45" if kind == 0x0800 else b"\x60") + packet[1:]
    question = read_question((CALLER_MAC | 7).to_bytes(6, "big") + bytes(6) + kind.to_bytes(2, "big") + packet)
    if question is not None:
        answer(question, SERVICES)


@given(st.sampled_from([FOUR, SIX]), st.sampled_from([67, 547]), st.binary(max_size=500), st.booleans())
def test_no_message_is_too_strange(caller: Caller, port: int, payload: bytes, well_begun: bool) -> None:
    if well_begun and caller is FOUR:
        payload = asked(dhcp.DISCOVER).payload[:240] + payload
    frame = answer(Question(caller, 17, LINK_LOCAL, port, 64, payload), SERVICES)
    assert frame is None or frame[:6] == caller.mac_bytes


@pytest.mark.parametrize(("text", "router"), [("10.1.2.0/24", "10.1.2.1"), ("10.1.2.0/24=10.1.2.9", "10.1.2.9")])
def test_a_subnet_has_a_router_that_is_nobodys_own(text: str, router: str) -> None:
    subnet = Subnet.parse(text)
    assert format_address(Family.IPV4, subnet.router_of(FOUR.address + 100)) == router
    assert subnet.router_of(subnet.router) != subnet.router


def test_a_router_elsewhere_is_refused() -> None:
    with pytest.raises(BadInput, match="is not in"):
        Subnet.parse("10.1.2.0/24=10.1.3.1")


def test_offers_are_read_from_rows_of_ours() -> None:
    row = (
        " cookie=0xac10000000000000, duration=8.8s, table=0, priority=50,{},in_port=4,dl_src=02:00:00:00:00:0c,{} "
        "actions=set_field:0x4->reg4,set_field:0a:ad:00:00:00:00->eth_dst,set_field:{}->{},output:9"
    )
    lines = [
        row.format("udp", "dl_dst=ff:ff:ff:ff:ff:ff,tp_src=68,tp_dst=67", "10.0.0.1", "ip_dst"),
        row.format("icmp6", "icmp_type=133", "fd10::1", "ipv6_dst"),
        row.format("udp6", "tp_src=546", "fd10::1", "ipv6_dst"),
        row.format("udp", "tp_src=68", "10.0.0.2", "ip_dst").replace("0xac1", "0xbc1"),
    ]
    assert [(each.port, each.mac, format_address(each.family, each.address)) for each in offers(lines)] == [
        (4, 0x02000000000C, "10.0.0.1"), (4, 0x02000000000C, "fd10::1")
    ]  # fmt: skip
