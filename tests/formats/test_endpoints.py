"""The list of an endpoint decides its packets as the whole list does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import OWN_POOL, acls, corner_packets_of

from orchestrator.policy import oracle
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.endpoints import list_of_endpoint, write_at_endpoints
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.formats.registry import write
from orchestrator.policy.formats.results import account
from orchestrator.policy.model import Acl, Action, Direction, Packet, ReturnTraffic

WEB = (Prefix.parse("198.51.100.10/32"), Prefix.parse("2001:db8:100::10/128"))
DB = (Prefix.parse("198.51.100.20/32"),)
WEB_TEXTS = ["198.51.100.10", "2001:db8:100::10"]
SHOP = acl_from_json(
    {
        "rules": [
            {"id": "web", "action": "permit", "protocol": "tcp", "destination": WEB_TEXTS, "destination_ports": 443},
            {"id": "ssh", "action": "permit", "protocol": "tcp", "source": "192.0.2.0/24", "destination_ports": 22},
            {"id": "web4", "action": "permit", "protocol": "udp", "destination": "198.51.100.10"},
            {"id": "db", "action": "permit", "protocol": "tcp", "destination": "198.51.100.20", "source": "10.0.0.0/8"},
        ]
    }
)


def is_of(prefixes: Sequence[Prefix], packet: Packet, direction: Direction) -> bool:
    address = packet.destination if direction is Direction.INGRESS else packet.source
    return any(prefix.family is packet.family and prefix.holds(address) for prefix in prefixes)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(acls(6), st.lists(st.sampled_from(OWN_POOL), min_size=1, max_size=3, unique=True))
def test_packets_of_an_endpoint_fare_as_in_the_whole_list(acl: Acl, prefixes: list[Prefix]) -> None:
    found = list_of_endpoint(acl, tuple(prefixes))
    for packet in corner_packets_of(acl):
        for direction in Direction:
            if is_of(prefixes, packet, direction):
                steps = [oracle.ask(each, packet, direction, ReturnTraffic.EXPLICIT) for each in (acl, found)]
                assert steps[0] == steps[1], packet


@pytest.mark.parametrize("name", ["aws-sg", "openstack-sg", "azure-nsg"])
def test_what_names_an_endpoint_can_be_said_at_the_endpoint(name: str) -> None:
    whole = write(SHOP, name)
    web, db = (write(list_of_endpoint(SHOP, prefixes), name) for prefixes in (WEB, DB))
    assert bool(whole.losses) is (name != "azure-nsg")
    assert web.losses == db.losses == ()
    assert "10.0.0.0/8" in db.text
    assert "10.0.0.0/8" not in web.text


def test_a_rule_for_one_ip_version_of_an_endpoint_stays_one() -> None:
    found = list_of_endpoint(SHOP, WEB)
    assert [rule.id for rule in found.rules] == ["web", "ssh", "web4"]
    assert [str(rule.source) for rule in found.rules] == ["any", "192.0.2.0/24", "0.0.0.0/0"]
    assert all(rule.destination.is_any for rule in found.rules)


def test_a_rule_for_a_part_of_an_endpoint_keeps_its_addresses() -> None:
    found = list_of_endpoint(SHOP, (Prefix.parse("198.51.100.0/27"),))
    assert [str(rule.destination) for rule in found.rules][2] == "198.51.100.10/32"


def test_an_export_at_an_endpoint_numbers_rules_as_the_whole_list_does() -> None:
    rules = [replace(rule, tcp_flags=None, log=True, established=rule.id == "db") for rule in SHOP.rules]
    listed = replace(SHOP, rules=tuple(rules), egress_default=Action.PERMIT)
    found = write_at_endpoints(listed, "openstack-sg", {"db": DB})["db"]
    assert [(loss.line, loss.text) for loss in found.losses] == [(4, "db")]
    assert "rules 2, 4: there is no log of single rules" in [*map(str, found.notes)]
    assert "rule 4, 'db': permit left out" in account("db", found)


def test_what_an_export_loses_of_a_default_is_of_no_rule() -> None:
    denied = replace(SHOP.rules[3], action=Action.DENY)
    listed = replace(SHOP, rules=(*SHOP.rules[:3], denied), ingress_default=Action.PERMIT)
    found = write_at_endpoints(listed, "kubernetes", {"db": DB})["db"]
    assert {(loss.line, loss.text) for loss in found.losses} == {(0, "ingress.default")}
    assert "\ningress.default: permit left out" in account("db", found)
