"""The floor of "default off" against headers: fragments, scans, protocols, tags, extension headers, broken ones."""

from __future__ import annotations

import itertools

import pytest
from system.shooting import (
    ACK,
    ADDRESS,
    BRIDGES_MAC,
    EVERYBODY_MAC,
    F4,
    F6,
    MAC,
    RST,
    SYN,
    Range,
    arp,
    layer3,
    packet,
    tcp_head,
    told_as,
    udp_head,
)

from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab.wire import Shot
from orchestrator.policy.addresses import Family
from orchestrator.policy.protocols import ICMP, ICMPV6, IPV6_FRAGMENT, SCTP, TCP, UDP

# ---------------------------------------------------------------- fragments


def fragment(
    sender: str, receiver: str, family: Family, protocol: int, offset: int, *, more: bool, body: bytes
) -> Shot:
    """A fragment that starts `offset` bytes into the packet; its payload is `body` and the marker."""
    source, destination = ADDRESS[sender, family], ADDRESS[receiver, family]
    if family is F4:
        word = offset >> 3 | (frames.MORE_FRAGMENTS if more else 0)
        return layer3(
            sender, frames.IPV4, lambda m: frames.ipv4(source, destination, protocol, body + m, fragment=word)
        )
    header = frames.fragment_header(protocol, offset | more)
    return layer3(sender, frames.IPV6, lambda m: frames.ipv6(source, destination, IPV6_FRAGMENT, header + body + m))


@pytest.mark.parametrize("family", Family)
def test_first_fragments_are_judged_by_their_ports(aim: Range, family: Family) -> None:
    def first(sender: str, receiver: str, protocol: int, body: bytes) -> Shot:
        return fragment(sender, receiver, family, protocol, 0, more=True, body=body)

    assert aim.fire(
        [
            first("mallory", "web1", TCP, tcp_head(family, "mallory", "web1", 80)),
            first("mallory", "web1", UDP, udp_head(family, "mallory", "web1", 53)),
            first("mallory", "web1", TCP, tcp_head(family, "mallory", "web1", 22)),
            first("mallory", "web1", UDP, udp_head(family, "mallory", "web1", 123)),
            first("mallory", "db1", TCP, tcp_head(family, "mallory", "db1", 80)),
            first("mallory", "bank1", TCP, tcp_head(family, "mallory", "bank1", 80)),
        ]
    ) == [("web1",), ("web1",), (), (), (), ()]


@pytest.mark.parametrize("family", Family)
def test_first_fragments_too_short_for_their_header_are_dropped_even_where_all_is_permitted(
    aim: Range, family: Family
) -> None:
    """The attack: ports in the first fragment, flags in the second."""
    shots = []
    for sender, receiver in (("mallory", "web1"), ("alice", "db1"), ("mallory", "bank1")):
        for length in (0, 4, 8, 12):
            head = tcp_head(family, sender, receiver, 80)[:length]
            source, destination = ADDRESS[sender, family], ADDRESS[receiver, family]
            # The marker would lengthen the header, so it goes into the Ethernet trailer.
            if family is F4:
                whole = frames.ipv4(source, destination, TCP, head, fragment=frames.MORE_FRAGMENTS)
            else:
                header = frames.fragment_header(TCP, 1)
                whole = frames.ipv6(source, destination, IPV6_FRAGMENT, header + head)
            kind = frames.IPV4 if family is F4 else frames.IPV6
            shots.append(layer3(sender, kind, lambda marker, w=whole: w + marker))
    assert aim.fire(shots) == [()] * len(shots)


@pytest.mark.parametrize("family", Family)
def test_later_fragments_pass_only_rules_that_look_at_no_ports(aim: Range, family: Family) -> None:
    def later(sender: str, receiver: str, offset: int, *, more: bool = False) -> Shot:
        """What would be a permitted SYN, a permitted ACK, if it were read as a header."""
        body = tcp_head(family, sender, receiver, 80, ACK)
        return fragment(sender, receiver, family, TCP, offset, more=more, body=body)

    assert aim.fire(
        [
            later("alice", "db1", 1480),  # rule `all`
            later("mallory", "db1", 1480),  # rule `late`
            later("mallory", "db1", 8, more=True),
            later("mallory", "web1", 1480),
            later("mallory", "web1", 8),
            later("mallory", "web1", 65528),
            later("alice", "web1", 1480, more=True),
            later("mallory", "bank1", 1480),
            later("web1", "bank1", 1480),
        ]
    ) == [("db1",), ("db1",), ("db1",), (), (), (), (), (), ()]


@pytest.mark.parametrize("family", Family)
def test_a_later_fragment_has_no_port_zero(aim: Range, family: Family) -> None:
    """Rule `low` permits ports from 0 on: what has no ports is not among them."""

    def datagram(offset: int) -> Shot:
        body = udp_head(family, "bank1", "web1", 0)
        return fragment("bank1", "web1", family, UDP, offset, more=False, body=body)

    whole = [("bank1", packet("bank1", "web1", family, UDP, 40000, number)) for number in (0, 514, 515)]
    assert aim.send(*whole) == [("web1",), ("web1",), ()]
    assert aim.fire([datagram(1480), datagram(8)]) == [(), ()]


# ---------------------------------------------------------------- scans


@pytest.mark.parametrize("family", Family)
def test_syn_scans_find_the_permitted_port_alone(aim: Range, family: Family) -> None:
    ports = (1, 21, 22, 23, 25, 53, 79, 80, 81, 111, 443, 445, 3389, 5432, 8080, 65535)
    scans = {
        target: aim.send(*(("mallory", packet("mallory", target, family, TCP, 40000, n, tcp_flags=SYN)) for n in ports))
        for target in ("web1", "db1", "bank1", "bank2")
    }
    assert [number for number, seen in zip(ports, scans.pop("web1"), strict=True) if seen] == [80]
    assert all(seen == () for scan in scans.values() for seen in scan)


@pytest.mark.parametrize("family", Family)
def test_segments_that_look_like_replies_arrive_and_no_others(aim: Range, family: Family) -> None:
    """What `established` admits, as docs/return-traffic.md says: ACK, or RST, set."""
    scan = [packet("mallory", "bank1", family, TCP, 443, 1024 + flags, tcp_flags=flags) for flags in range(256)]
    arrived = [flags for flags, seen in enumerate(aim.send(*(("mallory", each) for each in scan))) if seen]
    assert arrived == [flags for flags in range(256) if flags & (ACK | RST)]


def test_replies_to_udp_and_icmp_need_a_rule(aim: Range) -> None:
    for family in Family:
        icmp, reply = (ICMP, 0) if family is F4 else (ICMPV6, 129)
        assert aim.send(
            ("mallory", packet("mallory", "bank1", family, UDP, 53, 40000)),
            ("mallory", packet("mallory", "bank1", family, icmp, icmp_type=reply)),
        ) == [(), ()]


# ---------------------------------------------------------------- protocols and headers


def test_a_protocol_that_nobody_named_arrives_nowhere(aim: Range) -> None:
    for family in Family:
        numbers = [n for n in range(256) if n not in (TCP, *IPV6_ONLY[family])]
        assert aim.send(*(("mallory", packet("mallory", "bank1", family, n)) for n in numbers)) == [()] * len(numbers)
        assert aim.send(*(("mallory", packet("mallory", "web1", family, n)) for n in numbers)) == [()] * len(numbers)
        assert aim.send(*(("alice", packet("alice", "db1", family, n)) for n in numbers)) == [("db1",)] * len(numbers)


IPV6_ONLY = {F4: (ICMPV6,), F6: (ICMP, ICMPV6, *frames.EXTENSION_HEADERS, 59, 135, 139, 140)}
"""Protocols left out of the sweep: those of the other IP version, and what in IPv6 is a header on the way."""


PROVIDER_TAG = b"\x88\xa8\x00\x07"


def test_tagged_frames_are_dropped_whatever_they_carry(aim: Range) -> None:
    """Also priority tags, two tags, and tags around what would be permitted or answered."""
    shots = []
    for sender, receiver in (
        ("alice", "web1"),
        ("alice", "db1"),
        ("web1", "alice"),
        ("web1", "db1"),
        ("web1", "bank1"),
    ):
        for family in Family:
            inner = told_as(packet(sender, receiver, family, TCP, 40000, 80, tcp_flags=ACK), MAC[sender])
            shots += [
                Shot(sender, lambda marker, n=number, i=inner: frames.vlan(n, i(marker)))
                for number in (0, 1, 100, 4095, 0x2000 | 5)
            ]
            shots.append(Shot(sender, lambda marker, i=inner: frames.vlan(7, frames.vlan(8, i(marker)))))
            shots.append(Shot(sender, lambda marker, i=inner: i(marker)[:12] + PROVIDER_TAG + i(marker)[12:]))
    question = arp("web1", frames.ARP_REQUEST, MAC["web1"], ADDRESS["web1", F4], ADDRESS["bank1", F4])
    shots.append(Shot("web1", lambda marker: frames.vlan(0, question.craft(marker))))
    assert aim.fire(shots) == [()] * len(shots)


def test_what_is_not_ip_arrives_nowhere(aim: Range) -> None:
    kinds = (0x0000, 0x0026, 0x05DC, 0x0842, 0x22F0, 0x8035, 0x809B, 0x8137, 0x8847, 0x8848, 0x8863, 0x8864, 0x888E)
    kinds += (0x88CC, 0x88B5, 0x88F7, 0x894F, 0x9000, 0xFFFF)
    shots = []
    for sender, kind in itertools.product(("alice", "web1"), kinds):
        shots += [
            Shot(sender, lambda m, s=sender, t=to, k=kind: frames.ethernet(MAC[s], t, k, bytes(46) + m))
            for to in (GATEWAY_MAC, EVERYBODY_MAC, BRIDGES_MAC, MAC["bank1"], MAC["db1"])
        ]
    assert aim.fire(shots) == [()] * len(shots)


def chain(*headers: int, last: int) -> tuple[int, bytes]:
    """The first header's number, and the headers, each pointing to the next."""
    made = b""
    for header, following in reversed(list(zip(headers, (*headers[1:], last), strict=True))):
        if header == IPV6_FRAGMENT:
            made = frames.fragment_header(following, 0) + made  # an atomic fragment: the whole packet
        elif header == frames.AUTHENTICATION:
            made = bytes((following, 4)) + bytes(22) + made
        else:
            made = frames.extension(following) + made
    return headers[0], made


CHAINS = (
    (frames.HOP_BY_HOP,),
    (frames.ROUTING,),
    (frames.DESTINATION_OPTIONS,),
    (frames.AUTHENTICATION,),
    (IPV6_FRAGMENT,),
    (frames.HOP_BY_HOP, frames.ROUTING, frames.DESTINATION_OPTIONS),
    (frames.HOP_BY_HOP, frames.ROUTING, IPV6_FRAGMENT, frames.AUTHENTICATION, frames.DESTINATION_OPTIONS),
    (frames.DESTINATION_OPTIONS,) * 8,
)


@pytest.mark.parametrize("headers", CHAINS, ids=lambda headers: "-".join(map(str, headers)))
def test_extension_headers_hide_nothing(aim: Range, headers: tuple[int, ...]) -> None:
    """Rules look behind them: a permitted port is permitted, and nothing else gets in by wearing a header."""

    def worn(sender: str, receiver: str, protocol: int, upper: bytes) -> Shot:
        first, made = chain(*headers, last=protocol)
        ends = ADDRESS[sender, F6], ADDRESS[receiver, F6]
        return layer3(sender, frames.IPV6, lambda marker: frames.ipv6(*ends, first, made + upper + marker))

    assert aim.fire(
        [
            worn("mallory", "web1", TCP, tcp_head(F6, "mallory", "web1", 80)),
            worn("mallory", "web1", UDP, udp_head(F6, "mallory", "web1", 53)),
            worn("mallory", "web1", TCP, tcp_head(F6, "mallory", "web1", 22)),
            worn("mallory", "web1", UDP, udp_head(F6, "mallory", "web1", 54)),
            worn("mallory", "web1", SCTP, frames.sctp(40000, 80, b"")),
            worn("mallory", "web1", 47, bytes(8)),
            worn("mallory", "web1", 59, b""),
            worn("mallory", "bank1", TCP, tcp_head(F6, "mallory", "bank1", 80)),
            worn("mallory", "bank1", UDP, udp_head(F6, "mallory", "bank1", 53)),
            worn("web1", "bank2", TCP, tcp_head(F6, "web1", "bank2", 80)),
        ]
    ) == [("web1",), ("web1",), *[()] * 8]


def test_broken_ip_headers_arrive_nowhere(aim: Range) -> None:
    """Lengths that lie, versions that are none, headers that end too soon: to where nothing is permitted."""
    good = frames.ipv4(ADDRESS["mallory", F4], ADDRESS["bank1", F4], TCP, tcp_head(F4, "mallory", "bank1", 80))
    good6 = frames.ipv6(ADDRESS["mallory", F6], ADDRESS["bank1", F6], TCP, tcp_head(F6, "mallory", "bank1", 80))
    broken = [good[:n] for n in (0, 1, 8, 16, 19)] + [
        bytes([byte]) + good[1:] for byte in (0x41, 0x44, 0x4F, 0x55, 0x05)
    ]
    broken += [good[:2] + length.to_bytes(2, "big") + good[4:] for length in (0, 10, 19, 0xFFFF)]
    broken6 = [good6[:n] for n in (0, 8, 39)] + [bytes([byte]) + good6[1:] for byte in (0x40, 0x50, 0x00)]
    broken6 += [good6[:4] + b"\xff\xff" + good6[6:], good6[:4] + b"\x00\x01" + good6[6:]]
    shots = [layer3("mallory", frames.IPV4, lambda marker, b=each: b + marker) for each in broken]
    shots += [layer3("mallory", frames.IPV6, lambda marker, b=each: b + marker) for each in broken6]
    assert aim.fire(shots) == [()] * len(shots)


def test_ip_options_change_nothing(aim: Range) -> None:
    ends = ADDRESS["mallory", F4], ADDRESS["web1", F4]
    source_route = b"\x83\x07\x04" + ADDRESS["bank1", F4].to_bytes(4, "big") + b"\x00"

    def with_options(number: int) -> Shot:
        head = tcp_head(F4, "mallory", "web1", number)
        return layer3("mallory", frames.IPV4, lambda m: frames.ipv4(*ends, TCP, head + m, options=source_route))

    assert aim.fire([with_options(80), with_options(22)]) == [("web1",), ()]
