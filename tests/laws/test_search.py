"""The search finds a rule exactly when the rule can match such packets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import acls, corner_packets_of, packets

from orchestrator.policy.addresses import Family, format_address
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl, Packet
from orchestrator.policy.oracle import matches
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import TCP, WITH_PORTS
from orchestrator.policy.search import find

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
        ("192.0.2.1:22", "ssh web out"),
        ("192.0.2.200:22", "ssh web out"),
        ("[2001:db8:1::7]:22", "ssh web out"),
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
        ("10.0.0.1:http", ""),
        ("#", ""),
    ],
)
def test_questions_and_their_answers(asked: str, found: str) -> None:
    assert [LIST.rules[index].id for index in find(LIST, asked)] == found.split()


def _asked(packet: Packet, side: str) -> str:
    address = format_address(packet.family, getattr(packet, side))
    bracketed = f"[{address}]" if packet.family is Family.IPV6 else address
    return f"{bracketed}:{getattr(packet, f'{side}_port')}"


@given(acls(), packets(), st.sampled_from(["source", "destination"]))
def test_whatever_matches_a_packet_is_found_by_its_address_and_port(acl: Acl, packet: Packet, side: str) -> None:
    """Nothing is missed: a rule that matches a packet is among those that touch its ends."""
    whole = packet.protocol in WITH_PORTS and not packet.later_fragment
    for each in (packet, *corner_packets_of(acl)[:20]):
        if each.protocol not in WITH_PORTS or each.later_fragment:
            continue
        found = set(find(acl, _asked(each, side)))
        assert {index for index, rule in enumerate(acl.rules) if matches(rule, each, acl.groups)} <= found
    if not whole:
        address = format_address(packet.family, getattr(packet, side))
        hit = {index for index, rule in enumerate(acl.rules) if matches(rule, packet, acl.groups)}
        assert hit <= set(find(acl, address))


@given(acls())
def test_a_rule_that_no_packet_with_a_port_can_match_is_not_found_by_a_port(acl: Acl) -> None:
    for index in find(acl, ":7"):
        rule = acl.rules[index]
        assert not rule.fragments
        assert rule.protocol in (None, *WITH_PORTS)
        named = rule.source_ports if rule.source_ports != EVERY_PORT else ()
        ports = (*named, *rule.destination_ports)
        assert any(each.low <= 7 <= each.high for each in ports)


def test_an_address_with_a_port_wants_both_on_one_side() -> None:
    acl = acl_from_json(
        {
            "rules": [
                {
                    "id": "a", "action": "permit", "protocol": "tcp",
                    "source": "192.0.2.1/32", "source_ports": 5,
                    "destination": "198.51.100.1/32", "destination_ports": 6,
                }
            ]
        }
    )  # fmt: skip
    assert list(find(acl, "192.0.2.1:5")) == [0]
    assert list(find(acl, "198.51.100.1:6")) == [0]
    assert list(find(acl, "192.0.2.1:6")) == []
    assert acl.rules[0].protocol == TCP
