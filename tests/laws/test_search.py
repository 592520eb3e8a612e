"""The search finds what decides a connection, and otherwise the rules that can match what is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from strategies import acls, corner_packets_of, packets

from orchestrator.errors import BadInput
from orchestrator.policy.addresses import Family, Prefix, format_address
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl, Direction, Packet, ReturnTraffic
from orchestrator.policy.oracle import ask
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import TCP, WITH_PORTS, format_protocol
from orchestrator.policy.search import find, names_endpoints
from orchestrator.policy.space import ALL_ADDRESSES, WHOLE, Box, boxes_of, remaining
from orchestrator.policy.spans import Span
from orchestrator.policy.tcpflags import TcpFlag

LIST = acl_from_json(
    {
        "groups": {"office": {"prefixes": ["192.0.2.0/25", "2001:db8:1::/48"]}, "nobody": {"prefixes": []}},
        "rules": [
            {"id": "ssh", "action": "permit", "protocol": "tcp", "source": "@office", "destination_ports": 22},
            {
                "id": "web",
                "action": "permit",
                "protocol": "tcp",
                "destination_ports": "80-443",
                "description": "Front Ends",
            },
            {"id": "ping", "action": "permit", "protocol": "icmp", "source": "198.51.100.0/24"},
            {"id": "out", "direction": "egress", "action": "deny", "owner": "backup-team"},
            {"id": "late", "action": "deny", "protocol": "udp", "fragments": True, "destination": "203.0.113.9/32"},
            {"id": "none", "action": "permit", "source": "@nobody"},
        ],
    }
)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("", "ssh web ping out late none"),
        ("22", "ssh out"),
        (":22", "ssh out"),
        ("81-90", "web out"),
        ("192.0.2.1:22", "ssh out"),
        ("192.0.2.1:ssh", "ssh out"),
        (":ssh", "ssh out"),
        ("SSH", "ssh out"),
        ("https", "web out"),
        ("ms-sql", "out"),
        ("https permit", "web"),
        ("192.0.2.1:443", "web out"),
        ("udp 192.0.2.1:443", "out"),
        ("192.0.2.1:443 deny", "out"),
        ("[2001:db8:1::7]:22", "ssh out"),
        ("2001:db8:1::7", "ssh web out"),
        ("198.51.100.0/25", "ssh web ping out late"),
        ("icmp", "ping out"),
        ("tcp permit", "ssh web"),
        ("deny egress", "out"),
        ("@office", "ssh"),
        ("front", "web"),
        ("BACKUP", "out"),
        ("#3", "ping"),
        ("nothing-of-that", ""),
        ("deny nothing-of-that", ""),
        ("300.1.2.3", ""),
        ("[::1", ""),
        ("10.0.0.1:http", "web out"),
        ("10.0.0.1:no-such-name", ""),
        ("#", ""),
    ],
)
def test_questions_and_their_answers(asked: str, found: str) -> None:
    assert [LIST.rules[index].id for index in find(LIST, asked)] == found.split()


def _asked(packet: Packet) -> str:
    address = format_address(packet.family, packet.destination)
    bracketed = f"[{address}]" if packet.family is Family.IPV6 else address
    return f"{format_protocol(packet.protocol)} {bracketed}:{packet.destination_port}"


def _opening(packet: Packet) -> Packet:
    """The packet as one that opens a connection, if it is of a protocol with ports."""
    return replace(packet, tcp_flags=TcpFlag.SYN if packet.protocol == TCP else 0, later_fragment=False)


@given(acls(), packets())
def test_what_decides_a_first_packet_is_found_by_where_it_goes(acl: Acl, packet: Packet) -> None:
    for each in (packet, *corner_packets_of(acl)[:20]):
        if each.protocol not in WITH_PORTS:
            continue
        found = {acl.rules[index].id for index in find(acl, _asked(each))}
        for direction in Direction:
            decider = ask(acl, _opening(each), direction, ReturnTraffic.EXPLICIT).rule
            assert decider is None or decider in found


@given(acls(), packets())
def test_a_rule_is_found_only_if_it_decides_something_of_it(acl: Acl, packet: Packet) -> None:
    """By cutting boxes: what a found rule takes of the question is not taken by rules before it together."""
    for each in (packet, *corner_packets_of(acl)[:5]):
        if each.protocol not in WITH_PORTS:
            continue
        flags = 1 << TcpFlag.SYN if each.protocol == TCP else 1
        asked = Box(
            each.family,
            source=ALL_ADDRESSES[each.family],
            fragments=WHOLE,
            protocols=1 << each.protocol,
            tcp_flags=flags,
            destination=(Span(each.destination, each.destination),),
            destination_ports=(Span(each.destination_port, each.destination_port),),
        )
        for index in find(acl, _asked(each)):
            rule = acl.rules[index]
            share = [box for mine in boxes_of(rule, acl.groups) if (box := mine.intersect(asked)) is not None]
            before = [other for other in acl.rules[:index] if other.direction is rule.direction]
            assert remaining(share, [box for other in before for box in boxes_of(other, acl.groups)])


def test_a_rule_for_any_is_found_only_where_it_decides() -> None:
    """The question of an operator: what decides 198.51.100.10:443, in a list that ends with a deny of everything?"""
    listed = [
        {"id": "scanner", "action": "deny", "source": "192.0.2.66"},
        {"id": "web", "action": "permit", "protocol": "tcp", "destination": "198.51.100.10", "destination_ports": 443},
        {"id": "all-web", "action": "permit", "protocol": "tcp", "destination_ports": "80-443"},
        {"id": "rest", "action": "deny"},
        {"id": "out", "direction": "egress", "action": "permit"},
    ]
    acl = acl_from_json({"rules": listed})
    own = (Prefix.parse("198.51.100.0/24"),)
    assert [acl.rules[index].id for index in find(acl, "198.51.100.10:443", own)] == ["scanner", "web"]
    assert [acl.rules[index].id for index in find(acl, "198.51.100.11:https", own)] == ["scanner", "all-web"]
    assert [acl.rules[index].id for index in find(acl, "198.51.100.11:22", own)] == ["scanner", "rest"]
    assert [acl.rules[index].id for index in find(acl, "203.0.113.9:443", own)] == ["out"]


def test_an_endpoint_with_a_port_asks_of_each_of_its_addresses() -> None:
    endpoints = {"Web1": [Prefix.parse("192.0.2.1"), Prefix.parse("2001:db8:1::7")]}

    def found(asked: str) -> list[str]:
        return [LIST.rules[index].id for index in find(LIST, asked, (), endpoints)]

    assert found("web1:22") == found("192.0.2.1:22") == ["ssh", "out"]
    assert found("udp WEB1:ssh deny") == ["out"]
    assert names_endpoints("deny web1:22")
    assert not any(map(names_endpoints, ("192.0.2.1:22", ":22", "web1", "[::1]:22", "web1:nosuch", "[x", "a:b:22")))
    with pytest.raises(BadInput, match="'web9' is no address, and no endpoint of the tenant"):
        found("web9:22")


def test_a_name_with_a_port_that_a_rule_says_is_text() -> None:
    acl = acl_from_json({"rules": [{"id": "web", "action": "permit", "description": "see ticket:443"}]})
    assert list(find(acl, "ticket:443")) == [0]


@given(acls())
def test_a_rule_that_no_packet_with_a_port_can_match_is_not_found_by_a_port(acl: Acl) -> None:
    for index in find(acl, ":7"):
        rule = acl.rules[index]
        assert not rule.fragments
        assert rule.protocol in (None, *WITH_PORTS)
        named = rule.source_ports if rule.source_ports != EVERY_PORT else ()
        ports = (*named, *rule.destination_ports)
        assert any(each.low <= 7 <= each.high for each in ports)
