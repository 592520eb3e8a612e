"""Real Open vSwitch takes the compiled rows, gives back the same bytes, and treats packets as the pipeline says."""

from __future__ import annotations

import shutil
import struct
from dataclasses import replace
from random import Random

import pytest
from compiled_domain import endpoint_at, forwarded, populated
from enforce.dummy_ovs import DummyOvs
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from strategies import policies
from traced_switch import (
    GATEWAY,
    MAC_A,
    MAC_B,
    PORT_A,
    PORT_B,
    UPLINK,
    Bridge,
    Held,
    Tracer,
    flow_of,
    out_of,
    rows_of,
)

from orchestrator.compile.hostprogram import compile_host
from orchestrator.compile.openflow import oxm
from orchestrator.compile.pipelines.host import Table
from orchestrator.hosts.ovs import join_commands
from orchestrator.hosts.switch import prefix_tracking
from orchestrator.policy.addresses import ANY, Addresses, Prefix
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Acl, Action, Direction, Endpoint, Policy, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.program.flows import Flow

pytestmark = pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")


def held(rows: list[Flow]) -> set[Held]:
    return {Held(row.table, row.priority, row.match, row.instructions, row.cookie) for row in rows}


@settings(
    max_examples=25, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(policies(max_tenants=3, max_rules=8))
def test_bytes_come_back_as_they_went(bridge: Bridge, policy: Policy) -> None:
    rows = rows_of(compile_host(policy, domain="d1", generation=1), {"t0p0": PORT_A, "t1p0": PORT_B})
    bridge.hold(rows)
    assert set(bridge.rows()) == held(rows)


def test_every_layout_comes_back(bridge: Bridge) -> None:
    """One rule for every way of looking at every field, in both directions."""
    rows = rows_of(compile_host(scene(every_layout()), domain="d1", generation=1), {"a0": PORT_A, "b0": PORT_B})
    layouts = {tuple((term.field.name, term.mask is None) for term in oxm.unpack(row.match)) for row in rows}
    assert len(layouts) > 300
    bridge.hold(rows)
    assert set(bridge.rows()) == held(rows)


def every_layout() -> tuple[Rule, ...]:
    sides = {
        4: (ANY, Addresses((Prefix.parse("10.0.0.0/8"),)), Addresses((Prefix.parse("10.1.2.3"),))),
        6: (ANY, Addresses((Prefix.parse("2001:db8::/32"),)), Addresses((Prefix.parse("2001:db8::1"),))),
    }
    ports = ((PortRange(0, 65535),), (PortRange(80, 80),), (PortRange(1024, 2047),))
    base = Rule(RuleId("r"), Action.PERMIT)
    kinds = [
        base,
        replace(base, fragments=True),
        replace(base, protocol=47),
        replace(base, protocol=TCP, established=True),
    ]
    for protocol in (TCP, UDP, 132):
        kinds += [
            replace(base, protocol=protocol, source_ports=one, destination_ports=two) for one in ports for two in ports
        ]
    for icmp in (1, 58):
        kinds += [replace(base, protocol=icmp, icmp_type=8), replace(base, protocol=icmp, icmp_type=3, icmp_code=4)]
    found = []
    for family, choices in sides.items():
        for kind in kinds:
            if kind.protocol == (58 if family == 4 else 1):
                continue
            for source in choices:
                for destination in choices:
                    for direction in Direction:
                        name = RuleId(f"r{len(found)}")
                        rule = replace(kind, id=name, direction=direction, source=source, destination=destination)
                        found.append(rule)
    return tuple(found)


def scene(rules: tuple[Rule, ...], operator: tuple[Rule, ...] = ()) -> Policy:
    """Tenant 1 with two endpoints, A and B, with addresses of both versions."""
    tenant = Tenant(
        TenantId("t1"),
        1,
        (Prefix.parse("0.0.0.0/0"), Prefix.parse("::/0")),
        Acl(rules),
        {rule.id: number for number, rule in enumerate(rules, 1)},
    )
    ends = [
        Endpoint("a", tenant.id, "a0", 0x02000000000A, (Prefix.parse("10.0.0.1"), Prefix.parse("2001:db8::a"))),
        Endpoint("b", tenant.id, "b0", 0x02000000000B, (Prefix.parse("10.0.0.2"), Prefix.parse("2001:db8::b"))),
    ]
    numbers = {rule.id: number for number, rule in enumerate(operator, 900)}
    return Policy((tenant,), operator, numbers, endpoints=tuple(ends))


WEB = Rule(RuleId("web"), Action.PERMIT, protocol=TCP, destination_ports=(PortRange(80, 80),))
PINGS = Rule(RuleId("pings"), Action.PERMIT, protocol=1)
NEVER = Rule(RuleId("never"), Action.DENY, protocol=UDP, destination_ports=(PortRange(53, 53),))
ALWAYS = Rule(RuleId("always"), Action.PERMIT, protocol=UDP, destination_ports=(PortRange(67, 67),))


@pytest.fixture
def traced(ovs: DummyOvs, bridge: Bridge) -> Tracer:
    policy = scene((WEB, PINGS), (NEVER, ALWAYS))
    bridge.hold(rows_of(compile_host(policy, domain="d1", generation=1), {"a0": PORT_A, "b0": PORT_B}))
    return Tracer(ovs)


FROM_A = f"in_port={PORT_A},dl_src={MAC_A},dl_dst={GATEWAY}"
FROM_UPLINK = f"in_port={UPLINK},dl_src={GATEWAY},dl_dst={GATEWAY}"
A_TO_B = "nw_src=10.0.0.1,nw_dst=10.0.0.2"
A_TO_B6 = "ipv6_src=2001:db8::a,ipv6_dst=2001:db8::b"


def test_a_permitted_packet_arrives_from_the_gateway(traced: Tracer) -> None:
    actions = traced.actions(f"{FROM_A},tcp,{A_TO_B},tp_src=1024,tp_dst=80")
    assert f"set(eth(src={GATEWAY},dst={MAC_B}))" in actions
    assert out_of(actions) == "3"


@pytest.mark.parametrize(
    ("what", "flow"),
    [
        ("no rule permits it", f"{FROM_A},tcp,{A_TO_B},tp_src=1024,tp_dst=81"),
        ("another's address", f"{FROM_A},tcp,nw_src=10.0.0.9,nw_dst=10.0.0.2,tp_dst=80"),
        ("another's MAC address", f"in_port={PORT_A},dl_src={MAC_B},dl_dst={GATEWAY},tcp,{A_TO_B},tp_dst=80"),
        ("a neighbour's address", f"{FROM_A},tcp,nw_src=10.0.0.2,nw_dst=10.0.0.2,tp_dst=80"),
        ("tagged", f"{FROM_A},dl_vlan=5,tcp,{A_TO_B},tp_dst=80"),
        ("to several", f"in_port={PORT_A},dl_src={MAC_A},dl_dst=ff:ff:ff:ff:ff:ff,tcp,{A_TO_B},tp_dst=80"),
        ("a first fragment without ports", f"{FROM_A},tcp,{A_TO_B},nw_frag=first,tp_src=0,tp_dst=0"),
        ("a later fragment", f"{FROM_A},tcp,{A_TO_B},nw_frag=later"),
        ("a later fragment, IPv6", f"{FROM_A},ipv6,nw_proto=44,{A_TO_B6},nw_frag=later"),
        ("the operator denies it", f"{FROM_A},udp,{A_TO_B},udp_dst=53"),
        ("not IP", f"{FROM_A},dl_type=0x88cc"),
        ("to nobody here, from the uplink", f"{FROM_UPLINK},tcp,nw_src=8.8.8.8,nw_dst=10.0.0.9,tp_dst=80"),
        ("in an endpoint's name, from the uplink", f"{FROM_UPLINK},tcp,nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_dst=80"),
        (
            "in an endpoint's name, from the uplink, IPv6",
            f"{FROM_UPLINK},tcp6,ipv6_src=2001:db8::b,ipv6_dst=2001:db8::a,tp_dst=80",
        ),
        (
            "for another MAC address, from the uplink",
            f"in_port={UPLINK},dl_src={GATEWAY},dl_dst={MAC_A},tcp,nw_src=8.8.8.8,nw_dst=10.0.0.1,tp_dst=80",
        ),
        ("ARP from the uplink", f"in_port={UPLINK},arp,arp_op=1,arp_tpa=10.0.0.1"),
        ("an ARP announcement", f"{FROM_A},arp,arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.1,arp_sha={MAC_A}"),
        ("an ARP probe", f"{FROM_A},arp,arp_op=1,arp_spa=0.0.0.0,arp_tpa=10.0.0.1,arp_sha={MAC_A}"),
        (
            "an ARP request in another's name",
            f"{FROM_A},arp,arp_op=1,arp_spa=10.0.0.2,arp_tpa=10.0.0.7,arp_sha={MAC_A}",
        ),
        ("an ARP reply", f"{FROM_A},arp,arp_op=2,arp_spa=10.0.0.1,arp_tpa=10.0.0.7,arp_sha={MAC_A}"),
        (
            "an advertisement",
            f"{FROM_A},icmp6,ipv6_src=2001:db8::a,icmpv6_type=136,icmpv6_code=0,nd_target=2001:db8::a",
        ),
        (
            "duplicate address detection",
            f"in_port={PORT_A},dl_src={MAC_A},dl_dst=33:33:ff:00:00:0a,icmp6,ipv6_src=::,ipv6_dst=ff02::1:ff00:a,"
            "icmpv6_type=135,icmpv6_code=0,nd_target=2001:db8::a",
        ),
    ],
)
def test_is_dropped(traced: Tracer, what: str, flow: str) -> None:
    assert traced.actions(flow) == "drop", what


@pytest.mark.parametrize(
    ("what", "flow", "port"),
    [
        ("a first fragment with ports", f"{FROM_A},tcp,{A_TO_B},nw_frag=first,tp_src=1024,tp_dst=80", "3"),
        ("a later fragment of what needs no ports", f"{FROM_A},icmp,{A_TO_B},nw_frag=later", "3"),
        ("the operator permits it, from here", f"{FROM_A},udp,{A_TO_B},udp_dst=67", "3"),
        ("the operator permits it, from outside", f"{FROM_UPLINK},udp,nw_src=8.8.8.8,nw_dst=10.0.0.1,udp_dst=67", "2"),
        (
            "return traffic",
            f"{FROM_UPLINK},tcp,nw_src=8.8.8.8,nw_dst=10.0.0.1,tp_src=80,tp_dst=999,tcp_flags=0x10",
            "2",
        ),
        ("from outside", f"{FROM_UPLINK},tcp,nw_src=8.8.8.8,nw_dst=10.0.0.1,tp_dst=80", "2"),
        ("to outside", f"{FROM_A},tcp,nw_src=10.0.0.1,nw_dst=8.8.8.8,tp_dst=25", "1"),
        ("IPv6 from here", f"{FROM_A},tcp6,{A_TO_B6},tp_dst=80", "3"),
    ],
)
def test_is_let_through(traced: Tracer, what: str, flow: str, port: str) -> None:
    assert out_of(traced.actions(flow)) == port, what


def frame(*parts: bytes) -> str:
    ether = bytes.fromhex((GATEWAY + MAC_A).replace(":", ""))
    return (ether + b"".join(parts)).hex()


def ipv4(payload: bytes, fragment: int) -> bytes:
    """An IPv4 packet from A to B that carries TCP; `fragment` is the flags and offset word."""
    addresses = bytes((10, 0, 0, 1, 10, 0, 0, 2))
    return (
        b"\x08\0" + struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 1, fragment, 64, TCP, 0) + addresses + payload
    )


def ipv6(payload: bytes, fragment: int, *between: int) -> bytes:
    """An IPv6 packet from A to B with a fragment header; `between` are destination options headers before it."""
    ends = bytes.fromhex("20010db800000000000000000000000a20010db800000000000000000000000b")
    headers = b"".join(struct.pack(">BBBB4x", following, 0, 1, 4) for following in between)
    body = headers + struct.pack(">BBHI", TCP, 0, fragment, 1) + payload
    return b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, len(body), 60 if between else 44, 64) + ends + body


WHOLE_TCP = struct.pack(">HHIIHHHH", 1024, 80, 0, 0, 0x5002, 0, 0, 0)
MORE, SECOND = 0x2000, 0x2001
MORE6, SECOND6 = 0x0001, 0x0009


@pytest.mark.parametrize(
    ("what", "packet", "port"),
    [
        ("a first fragment with its header", ipv4(WHOLE_TCP + bytes(4), MORE), "3"),
        ("a first fragment with eight bytes of its header", ipv4(WHOLE_TCP[:8], MORE), "drop"),
        ("a second fragment at offset 8, which could overwrite flags", ipv4(WHOLE_TCP[8:16], SECOND), "drop"),
        ("a whole packet with eight bytes of its header", ipv4(WHOLE_TCP[:8], 0), "drop"),
        ("an IPv6 first fragment with its header", ipv6(WHOLE_TCP + bytes(4), MORE6), "3"),
        ("an IPv6 first fragment behind options", ipv6(WHOLE_TCP + bytes(4), MORE6, 44), "3"),
        ("an IPv6 first fragment with eight bytes of its header", ipv6(WHOLE_TCP[:8], MORE6), "drop"),
        ("an IPv6 second fragment", ipv6(WHOLE_TCP[8:16], SECOND6), "drop"),
        ("an IPv6 second fragment behind options", ipv6(WHOLE_TCP[8:16], SECOND6, 44), "drop"),
    ],
)
def test_what_the_switch_sees_of_fragments(traced: Tracer, what: str, packet: bytes, port: str) -> None:
    assert out_of(traced.actions(f"in_port={PORT_A}", frame(packet))) == port, what


@pytest.mark.parametrize(
    ("ports", "port"),
    [
        ((1, 1), "3"), ((1, 79), "3"), ((79, 1), "3"), ((79, 79), "3"),
        ((2, 1), "drop"), ((1, 2), "drop"), ((81, 1), "drop"), ((1, 81), "drop"),
    ],
)  # fmt: skip
def test_of_two_port_sets_both_are_asked(ovs: DummyOvs, bridge: Bridge, ports: tuple[int, int], port: str) -> None:
    odd = tuple(PortRange(each, each) for each in range(1, 80, 2))
    policy = scene((replace(WEB, source_ports=odd, destination_ports=odd),))
    rows = rows_of(compile_host(policy, domain="d1", generation=1), {"a0": PORT_A, "b0": PORT_B})
    assert sum(row.table == Table.INGRESS for row in rows) < 250
    bridge.hold(rows)
    for flow in (f"{FROM_A},tcp,{A_TO_B}", f"{FROM_A},tcp6,{A_TO_B6}"):
        actions = Tracer(ovs).actions(f"{flow},tp_src={ports[0]},tp_dst={ports[1]}")
        assert (actions if port == "drop" else out_of(actions)) == port


def test_arp_is_answered_with_the_gateway(traced: Tracer) -> None:
    asked = f"in_port={PORT_A},dl_src={MAC_A},dl_dst=ff:ff:ff:ff:ff:ff,arp,arp_op=1,arp_sha={MAC_A}"
    actions = traced.actions(f"{asked},arp_spa=10.0.0.1,arp_tpa=10.0.0.2,arp_tha=00:00:00:00:00:00")
    assert f"set(arp(sip=10.0.0.2,tip=10.0.0.1,op=2,sha={GATEWAY},tha={MAC_A}))" in actions
    assert f"set(eth(src={GATEWAY},dst={MAC_A}))" in actions
    assert out_of(actions) == str(PORT_A)


@pytest.mark.parametrize("source", ["2001:db8::a", "fe80::a"])
def test_neighbours_are_answered_with_the_gateway(traced: Tracer, source: str) -> None:
    asked = f"in_port={PORT_A},dl_src={MAC_A},dl_dst=33:33:ff:00:00:0b,icmp6,icmpv6_type=135,icmpv6_code=0"
    actions = traced.actions(
        f"{asked},ipv6_src={source},ipv6_dst=ff02::1:ff00:b,nw_ttl=255,nd_target=2001:db8::b,nd_sll={MAC_A}"
    )
    assert f"set(eth(src={GATEWAY},dst={MAC_A}))" in actions
    assert f"set(ipv6(src=2001:db8::b,dst={source}" in actions
    assert "set(icmpv6(type=136" in actions
    assert f"tll={GATEWAY}" in actions
    assert "set(nd_ext(nd_reserved=0xe0000000,nd_options_type=2))" in actions
    assert out_of(actions) == str(PORT_A)


def test_packets_that_look_alike_share_a_cache_entry(ovs: DummyOvs, traced: Tracer) -> None:
    """From the uplink an entry has those bits of the source that tell it from the endpoints that are here."""
    megaflow = traced.megaflow(f"{FROM_UPLINK},tcp,nw_src=8.8.8.8,nw_dst=10.0.0.1,tp_src=1024,tp_dst=80")
    assert "nw_src=8.0.0.0/7," in megaflow
    assert "tp_src" not in megaflow
    ovs.vsctl(*join_commands(prefix_tracking("br0", {})))
    megaflow = traced.megaflow(f"{FROM_UPLINK},tcp6,ipv6_src=2600::1,ipv6_dst=2001:db8::a,tp_src=1024,tp_dst=80")
    assert "ipv6_src=2400::/6," in megaflow
    assert "tp_src" not in megaflow


# ---------------------------------------------------------------------------------------------- corners, by the oracle


@settings(
    max_examples=6, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(policies(max_tenants=2, max_rules=6), st.randoms(use_true_random=False))
def test_traced_corners_go_where_the_oracle_says(ovs: DummyOvs, bridge: Bridge, policy: Policy, rng: Random) -> None:
    """A sample of the corner packets of whole policies, all endpoints on one switch."""
    everywhere = populated(policy)
    numbers = {endpoint.port: 2 + index for index, endpoint in enumerate(everywhere.endpoints)}
    bridge.hold(rows_of(compile_host(everywhere, domain="d1", generation=1), numbers))
    tracer = Tracer(ovs)
    packets = [packet for packet in policy_packets(everywhere) if forwarded(everywhere, packet)]
    for packet in rng.sample(packets, min(len(packets), 60)):
        receiver = endpoint_at(everywhere, packet.family, packet.destination)
        out = str(numbers[receiver.port] if receiver else UPLINK)
        decision = decide(everywhere, packet)
        flow = flow_of(packet, endpoint_at(everywhere, packet.family, packet.source), numbers)
        assert out_of(tracer.actions(flow)) == (out if decision.permitted else "drop"), f"{flow}: {decision}"
