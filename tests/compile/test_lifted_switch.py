"""Lifted rules on a real Open vSwitch: packets go where they went, and are remembered by no bit too many."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from random import Random

import pytest
from compiled_domain import endpoint_at, forwarded, populated
from enforce.dummy_ovs import DummyOvs
from hypothesis import HealthCheck, Phase, given, settings
from lifted_shop import WEB, named, policy, rule
from strategies import policies
from traced_switch import GATEWAY, PORT_A, PORT_B, UPLINK, Bridge, Tracer, flow_of, out_of, rows_of

from orchestrator.compile.hostprogram import compile_host
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Direction, Policy
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import UDP

pytestmark = pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")

PORTS = {"web0": PORT_A, "inn0": PORT_B}
NEAR = tuple(
    replace(
        rule(f"near{at}", "permit" if at % 3 else "deny", f"{at * 3 + 1}.{at * 7}.{at * 4}.0/24", WEB, 1000 + at),
        source_ports=(PortRange(1 << at % 15, 60_000),) if at % 2 else EVERY_PORT,
    )
    for at in range(36)
)
"""Rules for the web server's block that look at sources and source ports, none for port 80."""
LEAVING = tuple(
    rule(f"leaving{at}", "deny", WEB, f"{at * 5 % 223 + 1}.{at}.0.0/16", 25, direction=Direction.EGRESS)
    for at in range(40)
)
WORLD = policy(
    *NEAR,
    *LEAVING,
    rule("partners", "permit", "198.51.100.0/24", WEB, 443),
    rule("web", "permit", "", WEB, 80),
    rule("dns", "permit", "", WEB, 53, protocol=UDP),
    operator=(),
)
FROM_OUTSIDE = f"in_port={UPLINK},dl_src={GATEWAY},dl_dst={GATEWAY}"
FROM_WEB = f"in_port={PORT_A},dl_src=02:00:00:00:00:02,dl_dst={GATEWAY}"
NEXT_DOOR = "10.30.0.77"
"""Beside an endpoint that is here: this alone takes most of the bits."""
CLIENTS = ("203.0.113.9", NEXT_DOOR, "1.2.3.4", "198.51.100.7")
"""Of the Internet, of another tenant's block, near a rule's source, of a network that another lifted rule is for."""


def syn(client: str, port: int = 80) -> str:
    return f"{FROM_OUTSIDE},tcp,nw_src={client},nw_dst=10.29.4.2,tp_src=40961,tp_dst={port},tcp_flags=0x2"


def reply(client: str) -> str:
    return f"{FROM_WEB},tcp,nw_src=10.29.4.2,nw_dst={client},tp_src=80,tp_dst=40961,tcp_flags=0x12"


def traced(ovs: DummyOvs, bridge: Bridge, *lifted: str) -> Tracer:
    bridge.hold(rows_of(compile_host(WORLD, domain="d1", generation=1, lifted=named(*lifted)), PORTS))
    return Tracer(ovs)


def bits_of(megaflow: str, field: str) -> int:
    """How many bits of an address or a port a cache entry holds."""
    found = re.search(rf"\b{field}=([^,]*)", megaflow)
    if found is None:
        return 0
    whole = 32 if field.startswith("nw") else 16
    _, _, mask = found.group(1).partition("/")
    if not mask:
        return whole
    return int(mask) if whole == 32 and "." not in mask else bin(int(mask, 0)).count("1")


def bits_apart(client: str) -> int:
    """How many bits of an address tell it from all endpoints that are here, in whose names nobody comes in."""
    own = Prefix.parse(client).network
    return max(33 - (own ^ prefix.network).bit_length() for each in WORLD.endpoints for prefix in each.prefixes)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_lifted_rules_packets_are_remembered_by_its_own_side(ovs: DummyOvs, bridge: Bridge, client: str) -> None:
    before = traced(ovs, bridge).megaflow(syn(client))
    apart = bits_apart(client)
    if client != NEXT_DOOR:
        assert bits_of(before, "nw_src") > apart, "else there is nothing to gain"
    lifted = traced(ovs, bridge, "web", "partners", "dns")
    after = lifted.megaflow(syn(client))
    assert (bits_of(after, "nw_src"), bits_of(after, "tp_src")) == (apart, 0), after
    assert (bits_of(after, "nw_dst"), bits_of(after, "tp_dst")) == (32, 16), after
    assert out_of(lifted.actions(syn(client))) == str(PORT_A)


@pytest.mark.parametrize("client", CLIENTS)
def test_its_replies_are_remembered_by_little_of_the_other_side(ovs: DummyOvs, bridge: Bridge, client: str) -> None:
    """Of a port whether it is a client's, of an address what tells it from the endpoints that are here."""
    before = traced(ovs, bridge).megaflow(reply(client))
    assert bits_of(before, "tp_dst") == 16 or bits_of(before, "nw_dst") > 4, before
    lifted = traced(ovs, bridge, "web", "partners", "dns")
    after = lifted.megaflow(reply(client))
    assert bits_of(after, "tp_dst") <= 6, after
    local = traced(ovs, bridge, "web").megaflow(reply(client))
    assert bits_of(after, "nw_dst") == bits_of(local, "nw_dst")
    assert out_of(lifted.actions(reply(client))) == str(UPLINK)


@pytest.mark.parametrize(
    ("what", "flow", "out"),
    [
        ("a later fragment", f"{FROM_OUTSIDE},tcp,nw_src=1.2.3.4,nw_dst=10.29.4.2,nw_frag=later", "drop"),
        ("another port", syn("1.2.3.4", 81), "drop"),
        ("a partner", syn("198.51.100.7", 443), str(PORT_A)),
        ("a partner's neighbour", syn("198.51.101.7", 443), "drop"),
        ("another address", f"{FROM_OUTSIDE},tcp,nw_src=1.2.3.4,nw_dst=10.29.4.3,tp_src=40961,tp_dst=80", "drop"),
        ("from a neighbour here", f"in_port={PORT_B},dl_src=02:00:00:00:00:03,dl_dst={GATEWAY},tcp,nw_src=10.30.0.5,"
         "nw_dst=10.29.4.2,tp_src=40961,tp_dst=80", str(PORT_A)),
        ("a reply to a neighbour here, whose list is asked", f"{FROM_WEB},udp,nw_src=10.29.4.2,nw_dst=10.30.0.5,"
         "udp_src=53,udp_dst=4096", str(PORT_B)),
        ("a reply in another's name", f"{FROM_WEB},tcp,nw_src=10.29.4.3,nw_dst=1.2.3.4,tp_src=80,tp_dst=40961,"
         "tcp_flags=0x12", "drop"),
    ],
)  # fmt: skip
def test_all_else_goes_as_before(ovs: DummyOvs, bridge: Bridge, what: str, flow: str, out: str) -> None:
    assert out_of(traced(ovs, bridge).actions(flow)) == out, what
    assert out_of(traced(ovs, bridge, "web", "partners", "dns").actions(flow)) == out, what


@settings(
    max_examples=5, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(policies(max_tenants=2, max_rules=6))
def test_traced_corners_go_where_the_oracle_says(ovs: DummyOvs, bridge: Bridge, world: Policy) -> None:
    """Every rule is lifted, all endpoints are on one switch."""
    everywhere, rng = populated(world), Random(1)
    numbers = {endpoint.port: 2 + index for index, endpoint in enumerate(everywhere.endpoints)}
    lifted = [LiftedRule(tenant.id, each.id) for tenant in world.tenants for each in tenant.acl.rules]
    bridge.hold(rows_of(compile_host(everywhere, domain="d1", generation=1, lifted=lifted), numbers))
    tracer = Tracer(ovs)
    packets = [packet for packet in policy_packets(everywhere) if forwarded(everywhere, packet)]
    for packet in rng.sample(packets, min(len(packets), 50)):
        receiver = endpoint_at(everywhere, packet.family, packet.destination)
        out = str(numbers[receiver.port] if receiver else UPLINK)
        decision = decide(everywhere, packet)
        flow = flow_of(packet, endpoint_at(everywhere, packet.family, packet.source), numbers)
        assert out_of(tracer.actions(flow)) == (out if decision.permitted else "drop"), f"{flow}: {decision}"
