"""Real Open vSwitch takes the compiled rows, gives back the same bytes, and treats packets as the pipeline says."""

from __future__ import annotations

import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from compiled_domain import endpoint_at, forwarded, populated
from enforce.dummy_ovs import DummyOvs
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from strategies import policies

from orchestrator.compile import oxm
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.host import compile_host
from orchestrator.compile.pipeline import Table
from orchestrator.enforce.drivers.openflow.resolve import resolve
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix, format_address
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Acl, Action, Direction, Endpoint, Packet, Policy, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP, WITH_PORTS, format_protocol
from orchestrator.program.flows import Flow
from orchestrator.program.program import Program, Tier

pytestmark = pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="Open vSwitch is not installed")

UPLINK, PORT_A, PORT_B = 1, 2, 3
MAC_A, MAC_B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
GATEWAY = "0a:ac:1f:00:00:01"
FLOW_REMOVED_ALL = struct.pack(">QQBBHHHIIIHHHH4x", 0, 0, 0xFF, 3, 0, 0, 0, *(0xFFFFFFFF,) * 3, 0, 0, 1, 4)


class Held(NamedTuple):
    """A row as the switch describes it."""

    table: int
    priority: int
    match: bytes
    instructions: bytes
    cookie: int


class Bridge:
    """OpenFlow 1.5 by hand, over the bridge's management socket: sends rows and reads them back as raw bytes."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._xid = 0
        self._send(0, b"")
        self._receive()

    def close(self) -> None:
        self._socket.close()

    def hold(self, rows: list[Flow]) -> None:
        """Replace every row of the bridge."""
        self._send(14, FLOW_REMOVED_ALL)
        for row in rows:
            length = 4 + len(row.match)
            match = struct.pack(">HH", 1, length) + row.match + bytes(-length % 8)
            head = (row.cookie, 0, row.table, 0, 0, 0, row.priority, *(0xFFFFFFFF,) * 3, 0, 0)
            self._send(14, struct.pack(">QQBBHHHIIIHH", *head) + match + row.instructions)
        barrier = self._send(20, b"")
        kind, xid, body = self._receive()
        assert (kind, xid) == (21, barrier), f"the switch refused: {body[:80].hex()}"

    def rows(self) -> list[Held]:
        """Every row that the switch describes."""
        everything = struct.pack(">HHIB3xII4xQQHH4x", 1, 0, 0, 0xFF, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 1, 4)
        self._send(18, everything)
        found: list[Held] = []
        more = True
        while more:
            _, _, body = self._receive()
            more = bool(struct.unpack_from(">H", body, 2)[0] & 1)
            entries = body[8:]
            while entries:
                (length,) = struct.unpack_from(">H", entries)
                found.append(self._row(entries[:length]))
                entries = entries[length:]
        return found

    @staticmethod
    def _row(entry: bytes) -> Held:
        table, priority, cookie = struct.unpack_from(">4xBxH8xQ", entry)
        (match_length,) = struct.unpack_from(">H", entry, 26)
        statistics = 24 + (match_length + 7) // 8 * 8
        (statistics_length,) = struct.unpack_from(">H", entry, statistics + 2)
        instructions = entry[statistics + (statistics_length + 7) // 8 * 8 :]
        return Held(table, priority, entry[28 : 24 + match_length], instructions, cookie)

    def _send(self, kind: int, body: bytes) -> int:
        self._xid += 1
        self._socket.sendall(struct.pack(">BBHI", 6, kind, 8 + len(body), self._xid) + body)
        return self._xid

    def _receive(self) -> tuple[int, int, bytes]:
        _, kind, length, xid = struct.unpack(">BBHI", self._exactly(8))
        return kind, xid, self._exactly(length - 8)

    def _exactly(self, length: int) -> bytes:
        found = b""
        while len(found) < length:
            piece = self._socket.recv(length - len(found))
            assert piece, "the switch hung up"
            found += piece
        return found


@pytest.fixture(scope="module")
def ovs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DummyOvs]:
    switch = DummyOvs(tmp_path_factory.mktemp("ovs"))
    try:
        switch.add_bridge("br0", datapath_id=1, ports=("up0", "a0", "b0", "c0", "d0"))
        switch.ofctl("set-frags", "br0", "nx-match")
        yield switch
    finally:
        switch.close()


@pytest.fixture
def bridge(ovs: DummyOvs) -> Iterator[Bridge]:
    found = Bridge(ovs.directory / "br0.mgmt")
    yield found
    found.close()


def held(rows: list[Flow]) -> set[Held]:
    return {Held(row.table, row.priority, row.match, row.instructions, row.cookie) for row in rows}


def rows_of(program: Program, ports: dict[str, int]) -> list[Flow]:
    """A program as the switch must hold it, its stamp included."""
    stamp = Flow(
        table=Table.STAMP,
        priority=0,
        match=oxm.stamp_match(program.digest),
        instructions=b"",
        cookie=Cookie(Tier.HOST, Kind.STAMP, program.generation).pack(),
    )
    return [*resolve(program.flows, program.ports, {"up0": UPLINK} | ports, "up0").rows(), stamp]


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


class Tracer:
    """Asks the switch what it would do with a packet."""

    def __init__(self, ovs: DummyOvs) -> None:
        self._target = str(ovs.directory / "ovs-vswitchd.ctl")

    def actions(self, *flow: str) -> str:
        """The datapath actions, without spaces, for a flow or for a port and a frame in hexadecimal."""
        return self._line(flow, "Datapath actions").replace(" ", "")

    def megaflow(self, *flow: str) -> str:
        return self._line(flow, "Megaflow")

    def _line(self, flow: tuple[str, ...], name: str) -> str:
        words = ["ovs-appctl", f"--target={self._target}", "ofproto/trace", "br0", *flow]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        found = re.search(rf"^{name}: (.*)$", done.stdout, re.MULTILINE)
        assert found, done.stdout
        return found.group(1)


@pytest.fixture
def traced(ovs: DummyOvs, bridge: Bridge) -> Tracer:
    policy = scene((WEB, PINGS), (NEVER, ALWAYS))
    bridge.hold(rows_of(compile_host(policy, domain="d1", generation=1), {"a0": PORT_A, "b0": PORT_B}))
    return Tracer(ovs)


FROM_A = f"in_port={PORT_A},dl_src={MAC_A},dl_dst={GATEWAY}"
FROM_UPLINK = f"in_port={UPLINK},dl_src={GATEWAY},dl_dst={GATEWAY}"
A_TO_B = "nw_src=10.0.0.1,nw_dst=10.0.0.2"
A_TO_B6 = "ipv6_src=2001:db8::a,ipv6_dst=2001:db8::b"


def out_of(actions: str) -> str:
    """The port at the end of some datapath actions; "drop" if there is none."""
    return actions.rsplit(",", 1)[-1]


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
        ("an endpoint's address from outside", f"{FROM_UPLINK},tcp,nw_src=10.0.0.2,nw_dst=10.0.0.1,tp_dst=80", "2"),
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


def test_packets_that_look_alike_share_a_cache_entry(traced: Tracer) -> None:
    """From the uplink the source's tenant is not looked up: the entry has no bit of the source address."""
    megaflow = traced.megaflow(f"{FROM_UPLINK},tcp,nw_src=8.8.8.8,nw_dst=10.0.0.1,tp_src=1024,tp_dst=80")
    assert "nw_src" not in megaflow
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


def flow_of(packet: Packet, sender: Endpoint | None, numbers: dict[str, int]) -> str:
    """A packet as `ofproto/trace` reads it, from its endpoint's port or from outside."""
    mac = ":".join(f"{byte:02x}" for byte in sender.mac.to_bytes(6, "big")) if sender else GATEWAY
    six = packet.family is Family.IPV6
    kind, side = ("0x86dd", "ipv6") if six else ("0x0800", "nw")
    words = {
        "in_port": numbers[sender.port] if sender else UPLINK, "dl_src": mac, "dl_dst": GATEWAY, "dl_type": kind,
        f"{side}_src": format_address(packet.family, packet.source),
        f"{side}_dst": format_address(packet.family, packet.destination), "nw_proto": packet.protocol,
    }  # fmt: skip
    if packet.later_fragment:
        words["nw_frag"] = "later"
    elif packet.protocol in WITH_PORTS:
        name = format_protocol(packet.protocol)
        words |= {f"{name}_src": packet.source_port, f"{name}_dst": packet.destination_port}
        words |= {"tcp_flags": f"{packet.tcp_flags:#x}"} if packet.protocol == TCP else {}
    elif packet.protocol == (ICMPV6 if six else ICMP):
        name = format_protocol(packet.protocol)
        words |= {f"{name}_type": packet.icmp_type, f"{name}_code": packet.icmp_code}
    return ",".join(f"{name}={value}" for name, value in words.items())
