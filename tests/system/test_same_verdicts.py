"""The same list, the same verdicts and counters on every plane: Open vSwitch, both iptables, nftables, real packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from public_data import DATA
from strategies import policies
from system.planes import FILTERS, PLANES, Filter, Plane, plane

from orchestrator.compile.conjunctions.conjunctive import is_conjunctive
from orchestrator.compile.conjunctions.sides import Sides
from orchestrator.enforce.drivers.openflow import frames
from orchestrator.lab import specfile
from orchestrator.lab.aims import OUTSIDE, TENANT, aims
from orchestrator.lab.expect import policy_of
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import ethernet
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.dscp import of_precedence
from orchestrator.policy.formats.classbench import read_trace
from orchestrator.policy.formats.express import NO_PACKETS
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import (
    Acl,
    Action,
    AddressGroup,
    Direction,
    GroupName,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
)
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, SCTP, TCP, UDP
from orchestrator.policy.tcpflags import FlagMatch, TcpFlag

CLASSBENCH = DATA / "classbench"
SAMPLE = 500
MIXED_POP = specfile.parse(
    f"""
    hosts: [{{name: host1}}]
    clients: [{{name: {OUTSIDE}, addresses: [0.0.0.0/0, "::/0"], silent: true}}]
    tenants: [{{id: {TENANT}, prefixes: [198.51.100.0/24, "2001:db8:100::/48"]}}]
    endpoints: [{{name: sink, tenant: {TENANT}, host: host1, addresses: [198.51.100.0/24, "2001:db8:100::/48"],
                  silent: true}}]
    """
)
CLASSBENCH_POP = specfile.parse(
    f"""
    hosts: [{{name: host1}}]
    clients: [{{name: {OUTSIDE}, addresses: [192.0.2.1, "2001:db8:ffff::1"], silent: true}}]
    tenants: [{{id: {TENANT}, prefixes: [0.0.0.0/0, "::/0"]}}]
    endpoints: [{{name: sink, tenant: {TENANT}, host: host1, addresses: [0.0.0.0/0, "::/0"], silent: true}}]
    """
)
PERMIT, DENY = Action.PERMIT, Action.DENY
EGRESS = Direction.EGRESS


def of(*texts: str) -> Addresses:
    return Addresses(tuple(map(Prefix.parse, texts)))


def ports(*ranges: tuple[int, int]) -> tuple[PortRange, ...]:
    return tuple(PortRange(low, high) for low, high in ranges)


WEB, DB = of("198.51.100.10", "2001:db8:100::10"), of("198.51.100.32/28", "2001:db8:100:1::/64")
MIXED = Acl(
    rules=(
        Rule(RuleId("bad"), DENY, source=Addresses((), ("bad",))),
        Rule(RuleId("web"), PERMIT, protocol=TCP, destination=WEB, destination_ports=ports((80, 80), (443, 443))),
        Rule(RuleId("high"), DENY, protocol=TCP, destination=DB, destination_ports=ports((1000, 1999))),
        Rule(RuleId("db"), PERMIT, protocol=TCP, source=of("192.0.2.0/24"), destination=DB),
        Rule(RuleId("dns"), PERMIT, protocol=UDP, source_ports=ports((1024, 65535)), destination_ports=ports((53, 53))),
        Rule(RuleId("echo"), PERMIT, protocol=ICMP, icmp_type=8),
        Rule(RuleId("frag"), PERMIT, protocol=ICMP, icmp_type=3, icmp_code=4),
        Rule(RuleId("echo6"), PERMIT, protocol=ICMPV6, icmp_type=128, icmp_code=0),
        Rule(RuleId("signals"), PERMIT, protocol=SCTP, destination_ports=ports((2905, 2906))),
        Rule(RuleId("tunnel"), PERMIT, protocol=47, source=of("192.0.2.66")),
        Rule(RuleId("esp"), PERMIT, protocol=50),
        Rule(RuleId("zero"), PERMIT, protocol=0, destination=WEB),
        Rule(RuleId("synfin"), DENY, protocol=TCP, tcp_flags=FlagMatch(TcpFlag.SYN | TcpFlag.FIN, 0x03)),
        Rule(RuleId("ftp"), PERMIT, protocol=TCP, source_ports=ports((20, 20)), established=True),
        Rule(RuleId("late"), PERMIT, source=of("192.0.2.0/25", "2001:db8:ffff::/48"), fragments=True),
        Rule(RuleId("any"), PERMIT, source=of("203.0.113.7", "2001:db8:fffe::7"), destination=DB),
        Rule(RuleId("mail"), DENY, EGRESS, protocol=TCP, destination_ports=ports((25, 25))),
        Rule(RuleId("quiet"), DENY, EGRESS, source=WEB, destination=of("192.0.2.0/24", "2001:db8:ffff::/48")),
    ),
    groups={"bad": AddressGroup(GroupName("bad"), of("192.0.2.128/26", "2001:db8:ffff:bad::/64").prefixes)},
)


def check(running: Plane, policy: Policy, packets: list[Packet]) -> list[bool]:
    """Verdicts and counters against the oracle."""
    running.enforce(policy)
    seen = running.fire(packets)
    decisions = [decide(policy, packet) for packet in packets]
    wrong = [
        (packet, decision)
        for packet, decision, arrived in zip(packets, decisions, seen, strict=True)
        if decision.permitted != arrived
    ]
    assert wrong == []
    assert running.packets_by_rule() == counts(policy, packets)
    return seen


def counts(policy: Policy, packets: list[Packet]) -> dict[int, int]:
    """What each tenant's rule has to count, by its number."""
    numbers = {tenant.id: tenant.rule_numbers for tenant in policy.tenants}
    steps = [step for packet in packets for step in decide(policy, packet).steps if step.tenant is not None]
    return dict(Counter(numbers[s.tenant][s.rule] for s in steps if s.tenant and s.rule in numbers[s.tenant]))


@pytest.mark.parametrize("name", PLANES)
def test_a_mixed_list(layout: Layout, name: str) -> None:
    policy = policy_of(MIXED_POP, {TENANT: MIXED})
    packets = [packet for packet in routable(policy) if between(policy, packet)]
    with plane(name, layout, MIXED_POP) as running:
        seen = check(running, policy, packets)
    assert len(packets) > 500
    assert 0.1 < sum(seen) / len(seen) < 0.9
    decided = {step.rule for packet in packets for step in decide(policy, packet).steps}
    assert {rule.id for rule in MIXED.rules} <= decided


def every_second(network: str, how_many: int) -> tuple[Prefix, ...]:
    """Addresses that do not aggregate."""
    first = Prefix.parse(network)
    return tuple(Prefix(first.family, first.network + 2 * step, first.family.bits) for step in range(how_many))


GROUPED = Acl(
    rules=(
        Rule(RuleId("banned"), DENY, source=Addresses((), ("banned",)), destination=Addresses((), ("servers",))),
        Rule(RuleId("ssh"), PERMIT, protocol=TCP, source=of("192.0.2.0/28"), destination_ports=ports((22, 22))),
        Rule(RuleId("web"), PERMIT, protocol=TCP, source=Addresses((), ("clients",)),
             destination=Addresses((), ("servers",)), destination_ports=ports((80, 80), (443, 443), (8000, 8999))),
        Rule(RuleId("dns"), PERMIT, protocol=UDP, source=Addresses((), ("clients",)),
             destination_ports=ports((53, 53), (1024, 65535))),
        Rule(RuleId("quiet"), DENY, EGRESS, source=Addresses((), ("servers",)),
             destination=Addresses((), ("clients",))),
    ),
    groups={
        name: AddressGroup(GroupName(name), tuple(each for network in networks for each in every_second(network, size)))
        for name, size, networks in (
            ("clients", 20, ("192.0.2.0/24", "2001:db8:ffff::/48")),
            ("servers", 8, ("198.51.100.8/29", "2001:db8:100::8/125")),
            ("banned", 5, ("192.0.2.4/30", "2001:db8:ffff::4/126")),
        )
    },
)  # fmt: skip


@pytest.mark.parametrize("name", PLANES)
def test_rules_over_groups(layout: Layout, name: str) -> None:
    """On Open vSwitch they are conjunctions."""
    policy = policy_of(MIXED_POP, {TENANT: GROUPED})
    packets = [packet for packet in routable(policy) if between(policy, packet)]
    with plane(name, layout, MIXED_POP) as running:
        seen = check(running, policy, packets)
    assert 0.05 < sum(seen) / len(seen) < 0.95
    decided = {step.rule for packet in packets for step in decide(policy, packet).steps}
    assert {rule.id for rule in GROUPED.rules} <= decided
    (tenant,) = policy.tenants
    sides = Sides(GROUPED.groups)
    assert [is_conjunctive(rule, sides) for rule in tenant.acl.rules] == [True, False, True, True, True]


SERVED = Acl(
    rules=(
        Rule(RuleId("scavenger"), DENY, dscp=1 << 8),
        Rule(RuleId("voice"), PERMIT, protocol=UDP, destination=DB, dscp=1 << 46),
        Rule(RuleId("critical"), PERMIT, protocol=TCP, destination=WEB, dscp=of_precedence(5)),
        Rule(RuleId("late"), PERMIT, destination=WEB, fragments=True, dscp=1 << 46),
        Rule(RuleId("some"), PERMIT, destination=DB, dscp=1 << 10 | 1 << 12 | 0xF << 60),
        Rule(RuleId("syn"), DENY, protocol=TCP, tcp_flags=FlagMatch(0x02, 0x12), dscp=of_precedence(0)),
        Rule(RuleId("best-effort"), PERMIT, destination=DB, dscp=1),
        Rule(RuleId("leave"), DENY, EGRESS, dscp=1 << 46 | of_precedence(7)),
    )
)  # fmt: skip


@pytest.mark.parametrize("name", PLANES)
def test_rules_that_look_at_dscp(layout: Layout, name: str) -> None:
    policy = policy_of(MIXED_POP, {TENANT: SERVED})
    packets = [packet for packet in routable(policy) if between(policy, packet)]
    with plane(name, layout, MIXED_POP) as running:
        seen = check(running, policy, packets)
    assert 0.1 < sum(seen) / len(seen) < 0.9
    decided = {step.rule for packet in packets for step in decide(policy, packet).steps}
    assert {rule.id for rule in SERVED.rules} <= decided


@pytest.mark.parametrize("rules", ["acl1_1k", "fw1_1k", "ipc1_1k"])
@pytest.mark.parametrize("name", PLANES)
def test_classbench(layout: Layout, name: str, rules: str) -> None:
    """The sets have no actions: rules permit and deny in turn, which makes every wrong order visible."""
    acl, packets = load(rules)
    with plane(name, layout, CLASSBENCH_POP) as running:
        seen = check(running, policy_of(CLASSBENCH_POP, {TENANT: acl}), packets)
    assert 0.1 < sum(seen) / len(seen) < 0.9


@pytest.mark.parametrize("name", FILTERS)
def test_drawn_policies_of_several_tenants(layout: Layout, name: str) -> None:
    """Operator rules, both lists of two tenants, either kind of return traffic."""

    @settings(
        max_examples=15, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(policies(max_tenants=3, max_rules=12))
    def compare(policy: Policy) -> None:
        check(running, policy, routable(policy))

    with plane(name, layout, MIXED_POP) as running:
        compare()


def routable(policy: Policy) -> list[Packet]:
    """A policy's corner packets, with an address of somebody outside where a corner is nobody's (0.0.0.0)."""
    moved = {
        replace(
            packet,
            source=packet.source if _UNICAST[packet.family](packet.source) else _OUTSIDE[packet.family],
            destination=packet.destination if _UNICAST[packet.family](packet.destination) else _OUTSIDE[packet.family],
        ): None
        for packet in policy_packets(policy)
    }
    return [packet for packet in moved if travels(packet)]


def travels(packet: Packet) -> bool:
    """Whether routers forward a packet, and a switch does not keep it as neighbour discovery."""
    if packet.protocol in NO_PACKETS[packet.family]:
        return False
    if packet.protocol == ICMPV6 and not packet.later_fragment and 130 <= packet.icmp_type <= 137:
        return False
    return all(map(_UNICAST[packet.family], (packet.source, packet.destination))) and (
        packet.source != packet.destination
    )


_OUTSIDE = {family: of("192.0.2.1", "2001:db8:ffff::1").prefixes[family is Family.IPV6].network for family in Family}
_UNICAST = {
    Family.IPV4: lambda address: 1 <= address >> 24 <= 223 and address >> 24 != 127 and address >> 16 != 0xA9FE,
    Family.IPV6: lambda address: 0x2000 <= address >> 112 < 0xFE00,
}


def between(policy: Policy, packet: Packet) -> bool:
    """Whether exactly one side is the tenant's: the other is outside."""
    (tenant,) = policy.tenants
    return tenant.owns(packet.family, packet.source) != tenant.owns(packet.family, packet.destination)


def load(name: str) -> tuple[Acl, list[Packet]]:
    """A filter set with actions in turn, and an even sample of its trace; without a trace, packets for its rules."""
    rules, trace = CLASSBENCH / f"{name}.rules", CLASSBENCH / f"{name}.trace"
    if not rules.exists():
        pytest.skip(f"{rules} is not there: set ACLFLOW_DATA to the folder that holds classbench/")
    acl = read(rules.read_bytes(), "classbench", name=rules.name, options=Options(classbench_action=None)).acl
    if not trace.exists():
        chosen = aims(acl, ReturnTraffic.ESTABLISHED, SAMPLE)
        return acl, [aim.packet for aim in chosen if aim.direction is Direction.INGRESS]
    headers = [header.packet for header in read_trace(trace.read_text()) if travels(header.packet)]
    return acl, [headers[index * len(headers) // SAMPLE] for index in range(SAMPLE)]


@pytest.mark.parametrize("name", FILTERS)
def test_first_fragments_and_headers_cut_short(layout: Layout, name: str) -> None:
    """First fragments are judged as whole packets; what does not show its ports goes nowhere, whoever may send it."""
    policy = policy_of(MIXED_POP, {TENANT: MIXED})
    with plane(name, layout, MIXED_POP) as running:
        assert isinstance(running, Filter)
        running.enforce(policy)
        for version in Family:
            outside, trusted = (of(*each).prefixes[version is Family.IPV6].network for each in _SENDERS)
            web, db = WEB.prefixes[version is Family.IPV6].network, DB.prefixes[version is Family.IPV6].network
            head = frames.tcp(40000, 80, TcpFlag.SYN, b"", lambda _protocol, _length: b"")
            other = frames.tcp(40000, 81, TcpFlag.SYN, b"", lambda _protocol, _length: b"")
            assert running.router.fire_frames(
                [
                    first_fragment(version, outside, web, TCP, head),
                    first_fragment(version, outside, web, TCP, other),
                    first_fragment(version, trusted, db, TCP, other),
                    *(first_fragment(version, trusted, db, TCP, head[:size]) for size in (0, 8, 16)),
                    first_fragment(version, trusted, db, UDP, bytes(4)),
                    first_fragment(version, trusted, db, SCTP, bytes(8)),
                    first_fragment(version, trusted, db, 47, bytes(4)),
                ]
            ) == [True, False, True, False, False, False, False, False, True]


def first_fragment(
    version: Family, source: int, destination: int, protocol: int, body: bytes
) -> Callable[[bytes], bytes]:
    """A first fragment that holds `body` and nothing behind it; the marker is in an option before."""

    def craft(marker: bytes) -> bytes:
        if version is Family.IPV4:
            option = bytes((0x9E, 2 + len(marker))) + marker  # an option for experiments, RFC 4727
            more = frames.MORE_FRAGMENTS
            return ethernet(
                frames.IPV4, frames.ipv4(source, destination, protocol, body, fragment=more, options=option)
            )
        padding = bytes((44, 2, 1, 20)) + marker.ljust(20, b"\0")
        behind = padding + frames.fragment_header(protocol, 1) + body
        return ethernet(frames.IPV6, frames.ipv6(source, destination, frames.DESTINATION_OPTIONS, behind))

    return craft


_SENDERS = (("8.8.8.8", "2001:4860::8"), ("203.0.113.7", "2001:db8:fffe::7"))
