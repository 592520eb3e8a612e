"""Questions of endpoints go to their host alone, marked with their port; answers go to the port that is marked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from compiled_domain import UPLINK_PORT
from flow_interpreter import Switch, fields_of
from lifted_shop import policy, rule

from orchestrator.compile.hostprogram import compile_host
from orchestrator.compile.pipelines.host import (
    CALLER_MAC,
    GATEWAY_MAC,
    SERVICES_IPV4,
    SERVICES_IPV6,
    SERVICES_MAC,
    SERVICES_PORT,
)
from orchestrator.enforce.drivers.openflow.resolve import resolve
from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.model import Endpoint, Packet, Policy, ReturnTraffic, TenantId
from orchestrator.policy.protocols import ICMPV6, TCP, UDP

SERVICES, WEB_PORT, DB_PORT = 9, 10, 11
WEB = Endpoint("web", TenantId("shop"), "web", 3, (Prefix.parse("10.29.4.2/32"), Prefix.parse("2001:db8::2/128")))
DB = Endpoint("db", TenantId("shop"), "db", 3, (Prefix.parse("10.29.5.3/32"), Prefix.parse("10.29.5.4/32")))
"""It has the other's MAC address, and two addresses."""


def world(action: str) -> Policy:
    """A policy whose lists permit or deny all."""
    base = policy(rule("all", action, protocol=None), operator=())
    own = (Prefix.parse("10.29.0.0/16"), Prefix.parse("2001:db8::/48"))
    tenants = tuple(replace(each, prefixes=own) if each.id == "shop" else each for each in base.tenants)
    return replace(base, endpoints=(WEB, DB), tenants=tenants)


WORLD, OPEN = world("deny"), world("permit")
BROADCAST, ALL_SERVERS, ALL_ROUTERS = (1 << 48) - 1, 0x333300010002, 0x333300000002
EVERYWHERE = (1 << 32) - 1


def switch(*, serves: bool = True, world: Policy = WORLD) -> Switch:
    program = compile_host(world, domain="d1", generation=1)
    ports = {"up0": UPLINK_PORT, "web": WEB_PORT, "db": DB_PORT} | ({SERVICES_PORT: SERVICES} if serves else {})
    return Switch(resolve(program.flows, program.ports, ports, "up0"))


def discovery(source: int = 0, destination: int = EVERYWHERE) -> Packet:
    return Packet(Family.IPV4, source, destination, UDP, 68, 67)


def leaves(held: Switch, fields: dict[str, int]) -> list[tuple[int, dict[str, Any]]]:
    return held.send(fields).out


def test_a_question_for_an_address_bears_port_and_address() -> None:
    [(port, seen)] = leaves(switch(), fields_of(discovery(), WEB_PORT, WEB.mac, BROADCAST))
    assert port == SERVICES
    assert seen["eth_dst"] == CALLER_MAC | WEB_PORT
    assert (seen["eth_src"], seen["ipv4_dst"]) == (WEB.mac, WEB.prefixes[0].network)


@pytest.mark.parametrize(
    ("packet", "mac"),
    [
        (Packet(Family.IPV6, 0xFE80 << 112 | 7, 0xFF02 << 112 | 0x10002, UDP, 546, 547), ALL_SERVERS),
        (Packet(Family.IPV6, 0xFE80 << 112 | 7, 0xFF02 << 112 | 2, ICMPV6, icmp_type=133, icmp_code=0), ALL_ROUTERS),
    ],
)
def test_so_do_those_of_ipv6(packet: Packet, mac: int) -> None:
    [(port, seen)] = leaves(switch(), fields_of(packet, WEB_PORT, WEB.mac, mac))
    assert (port, seen["eth_dst"], seen["ipv6_dst"]) == (SERVICES, CALLER_MAC | WEB_PORT, WEB.prefixes[1].network)
    assert leaves(switch(serves=False), fields_of(packet, WEB_PORT, WEB.mac, mac)) == []


def test_nobody_asks_in_the_name_of_another() -> None:
    for port, mac in ((WEB_PORT, 4), (UPLINK_PORT, WEB.mac), (UPLINK_PORT, GATEWAY_MAC)):
        assert leaves(switch(), fields_of(discovery(), port, mac, BROADCAST)) == []


def test_of_several_addresses_none_is_offered() -> None:
    assert leaves(switch(), fields_of(discovery(), DB_PORT, DB.mac, BROADCAST)) == []


def test_an_answer_leaves_by_the_port_that_it_is_marked_with() -> None:
    answer = Packet(Family.IPV4, SERVICES_IPV4, EVERYWHERE, UDP, 67, 68)
    for number in (WEB_PORT, DB_PORT):
        for to in (WEB.mac, BROADCAST):
            [(port, seen)] = leaves(switch(), fields_of(answer, SERVICES, CALLER_MAC | number, to))
            assert (port, seen["eth_src"], seen["eth_dst"]) == (number, GATEWAY_MAC, to)


@pytest.mark.parametrize("family", list(Family))
def test_no_other_port_answers(family: Family) -> None:
    ends = (WEB.prefixes[0], DB.prefixes[0]) if family is Family.IPV4 else (WEB.prefixes[1], WEB.prefixes[1])
    ports = (67, 68) if family is Family.IPV4 else (547, 546)
    rogue = Packet(family, ends[0].network, ends[1].network, UDP, *ports)
    there = switch(world=OPEN)
    assert leaves(there, fields_of(rogue, WEB_PORT, WEB.mac, GATEWAY_MAC)) == []
    assert leaves(there, fields_of(rogue, UPLINK_PORT, GATEWAY_MAC, GATEWAY_MAC)) == []
    other = replace(rogue, destination_port=69)
    assert leaves(there, fields_of(other, WEB_PORT, WEB.mac, GATEWAY_MAC)) or family is Family.IPV6


@pytest.mark.parametrize("returns", [ReturnTraffic.ESTABLISHED, ReturnTraffic.EXPLICIT])
def test_names_are_asked_and_answered_past_all_lists(returns: ReturnTraffic) -> None:
    held = switch(world=replace(WORLD, return_traffic=returns))
    for family, address, own in (
        (Family.IPV4, SERVICES_IPV4, WEB.prefixes[0]), (Family.IPV6, SERVICES_IPV6, WEB.prefixes[1])
    ):  # fmt: skip
        for protocol in (UDP, TCP):
            asks = Packet(family, own.network, address, protocol, 40000, 53)
            [(port, seen)] = leaves(held, fields_of(asks, WEB_PORT, WEB.mac, GATEWAY_MAC))
            assert (port, seen["eth_dst"]) == (SERVICES, SERVICES_MAC)
            told = Packet(family, address, own.network, protocol, 53, 40000)
            [(port, seen)] = leaves(held, fields_of(told, SERVICES, SERVICES_MAC, GATEWAY_MAC))
            assert (port, seen["eth_dst"]) == (WEB_PORT, WEB.mac)
        other = Packet(family, own.network, address, TCP, 40000, 22)
        assert leaves(held, fields_of(other, WEB_PORT, WEB.mac, GATEWAY_MAC)) == [], "and nothing else"
        spoofed = Packet(family, own.network + 5, address, UDP, 40000, 53)
        assert leaves(held, fields_of(spoofed, WEB_PORT, WEB.mac, GATEWAY_MAC)) == []


def test_what_the_host_says_to_a_stranger_does_not_leave_by_the_uplink() -> None:
    told = Packet(Family.IPV4, SERVICES_IPV4, 0xC0000207, UDP, 53, 40000)
    assert leaves(switch(), fields_of(told, SERVICES, SERVICES_MAC, GATEWAY_MAC)) == []


def test_an_answer_of_the_host_by_its_port_bears_its_address_alone() -> None:
    for source in (DB.prefixes[0].network, 0xC0000207):
        told = Packet(Family.IPV4, source, WEB.prefixes[0].network, UDP, 53, 40000)
        assert leaves(switch(), fields_of(told, SERVICES, SERVICES_MAC, GATEWAY_MAC)) == []


def test_no_endpoint_is_plugged_where_services_are() -> None:
    with pytest.raises(BadPolicy, match="the services of hosts"):
        compile_host(replace(WORLD, endpoints=(replace(WEB, port=SERVICES_PORT),)), domain="d1", generation=1)
