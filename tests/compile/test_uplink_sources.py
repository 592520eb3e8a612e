"""What comes in by the uplink in the name of an endpoint that is here is dropped; what others send comes in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from compiled_domain import UPLINK_PORT, populated
from flow_interpreter import Switch, fields_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from law_examples import examples
from lifted_shop import named, policy, rule
from strategies import policies

from orchestrator.compile.hostprogram import compile_host
from orchestrator.compile.pipelines.host import GATEWAY_MAC
from orchestrator.enforce.drivers.openflow.resolve import resolve
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Direction, Endpoint, Packet, Policy, TenantId
from orchestrator.policy.protocols import ICMPV6, TCP

NET = "10.29.0.0/16"
ALL = rule("all", "permit", protocol=None)


def endpoint(name: str, mac: int, *prefixes: str) -> Endpoint:
    return Endpoint(name, TenantId("shop"), name, mac, tuple(map(Prefix.parse, prefixes)))


ROUTER = endpoint("router", 2, "10.29.4.0/24", "2001:db8::/64")
WEB = endpoint("web", 3, "10.29.4.2/32", "2001:db8::2/128")
DB = endpoint("db", 4, "10.29.5.3/32", "2001:db8:0:1::3/128")
BASE = policy(ALL, rule("out", "permit", protocol=None, direction=Direction.EGRESS), operator=())
WORLD = replace(
    BASE,
    endpoints=(ROUTER, WEB, DB),
    tenants=tuple(
        replace(each, prefixes=(Prefix.parse(NET), Prefix.parse("2001:db8::/48"))) if each.id == "shop" else each
        for each in BASE.tenants
    ),
)


def switch(world: Policy, here: Sequence[Endpoint], *lifted: str) -> Switch:
    """A switch with the ports of some endpoints: the n-th of the policy's is port 10 + n."""
    program = compile_host(world, domain="d1", generation=1, lifted=named(*lifted))
    numbers = {each.port: 10 + index for index, each in enumerate(world.endpoints)}
    ports = {"up0": UPLINK_PORT} | {each.port: numbers[each.port] for each in here}
    return Switch(resolve(program.flows, program.ports, ports, "up0"))


def arrives(held: Switch, source: str, destination: str, mac: int = GATEWAY_MAC) -> bool:
    """Whether a packet from the uplink gets to an endpoint."""
    one, other = Prefix.parse(source), Prefix.parse(destination)
    sent = Packet(one.family, one.network, other.network, TCP, 40000, 80, tcp_flags=2)
    return bool(held.send(fields_of(sent, UPLINK_PORT, GATEWAY_MAC, mac)).out)


@pytest.mark.parametrize("lifted", [(), ("all",)])
def test_nobody_outside_speaks_for_an_endpoint_that_is_here(lifted: tuple[str, ...]) -> None:
    held = switch(WORLD, (WEB, DB), *lifted)
    assert arrives(held, "192.0.2.7", "10.29.5.3"), "a stranger in its own name"
    assert arrives(held, "2001:db8:f::7", "2001:db8:0:1::3")
    for source, destination in (("10.29.4.2", "10.29.5.3"), ("10.29.5.3", "10.29.5.3"), ("10.29.5.3", "10.29.4.2")):
        assert not arrives(held, source, destination), source
    assert not arrives(held, "2001:db8::2", "2001:db8:0:1::3")


def test_endpoints_of_other_hosts_come_in() -> None:
    held = switch(WORLD, (DB,))
    for source in ("10.29.4.2", "10.29.4.9"):
        assert arrives(held, source, "10.29.5.3")
    assert arrives(held, "2001:db8::2", "2001:db8:0:1::3")


def test_an_endpoint_that_moved_is_known_by_its_port() -> None:
    """The program is the same on every host; the port that comes or goes decides. While both hosts have it, each takes
    the endpoint for its own."""
    for here, heard in (((DB,), True), ((WEB, DB), False), ((DB,), True)):
        assert arrives(switch(WORLD, here), "10.29.4.2", "10.29.5.3") is heard


def test_the_longest_prefix_says_whose_an_address_is() -> None:
    inner_away = switch(WORLD, (ROUTER, DB))
    assert arrives(inner_away, "10.29.4.2", "10.29.5.3"), "the inner endpoint is on another host"
    assert not arrives(inner_away, "10.29.4.3", "10.29.5.3")
    assert arrives(inner_away, "2001:db8::2", "2001:db8:0:1::3")
    assert not arrives(inner_away, "2001:db8::3", "2001:db8:0:1::3")
    outer_away = switch(WORLD, (WEB, DB))
    assert not arrives(outer_away, "10.29.4.2", "10.29.5.3")
    assert arrives(outer_away, "10.29.4.3", "10.29.5.3")


@pytest.mark.parametrize("mac", [3, 4, 0x0A0000000001, GATEWAY_MAC | 1 << 40, (1 << 48) - 1])
def test_frames_for_others_do_not_come_in(mac: int) -> None:
    held = switch(WORLD, (DB,))
    assert arrives(held, "192.0.2.7", "10.29.5.3")
    assert not arrives(held, "192.0.2.7", "10.29.5.3", mac)


def test_questions_from_the_uplink_are_not_answered() -> None:
    """ARP and neighbour discovery, in anybody's name: the uplink's neighbours need nobody's address."""
    held = switch(WORLD, (WEB, DB))
    asked = {"arp_op": 1, "arp_spa": DB.prefixes[0].network, "arp_tpa": WEB.prefixes[0].network, "arp_sha": DB.mac}
    ethernet = {"in_port": UPLINK_PORT, "eth_src": DB.mac, "vlan_vid": 0}
    for to in (GATEWAY_MAC, WEB.mac, (1 << 48) - 1):
        for operation in (1, 2):
            arp = {**ethernet, "eth_dst": to, "eth_type": 0x0806, **asked, "arp_op": operation}
            assert held.send(arp).out == []
        for kind in range(133, 138):
            six = Packet(Family.IPV6, DB.prefixes[1].network, WEB.prefixes[1].network, ICMPV6, icmp_type=kind)
            told = fields_of(six, UPLINK_PORT, DB.mac, to) | {"nd_target": WEB.prefixes[1].network, "nd_sll": DB.mac}
            assert held.send(told).out == []


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=2, max_rules=6), st.randoms(use_true_random=False))
def test_no_corner_of_a_policy_arrives_in_the_name_of_one_who_is_here(world: Policy, rng: object) -> None:
    everywhere = populated(world)
    here = tuple(each for each in everywhere.endpoints if rng.random() < 0.6)  # type: ignore[attr-defined]
    held = switch(everywhere, here)
    names = {each.name for each in here}
    for packet in policy_packets(everywhere):
        holding = [
            (prefix.length, each.name)
            for each in everywhere.endpoints
            for prefix in each.prefixes
            if prefix.family is packet.family and prefix.holds(packet.source)
        ]
        if holding and max(holding)[1] in names:
            assert held.send(fields_of(packet, UPLINK_PORT, GATEWAY_MAC, GATEWAY_MAC)).out == [], packet
