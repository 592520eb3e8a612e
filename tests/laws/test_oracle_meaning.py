"""The oracle says what the design says a policy means."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls, corner_packets_of, policies, policy_corner_packets, rules

from orchestrator.policy import oracle
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.corners import corner_packets
from orchestrator.policy.model import (
    RETURN_RULE_ID,
    Acl,
    Action,
    AddressGroup,
    Direction,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP

PERMIT, DENY = Action.PERMIT, Action.DENY
WITH_REPLIES = ReturnTraffic.ESTABLISHED, ReturnTraffic.PATH_MTU
V4, V6 = Prefix.parse("192.0.2.1"), Prefix.parse("2001:db8::1")
TOO_BIG = (
    Packet(Family.IPV4, ICMP, V4.network, V4.network, icmp_type=3, icmp_code=4),
    Packet(Family.IPV6, ICMPV6, V6.network, V6.network, icmp_type=2),
)
"""Fragmentation needed, and packet too big."""


def says_path_mtu(packet: Packet) -> bool:
    """Whether a packet is one of those two messages."""
    if packet.later_fragment:
        return False
    if packet.family is Family.IPV4:
        return (packet.protocol, packet.icmp_type, packet.icmp_code) == (ICMP, 3, 4)
    return (packet.protocol, packet.icmp_type) == (ICMPV6, 2)


def is_return_traffic(packet: Packet, direction: Direction, returns: ReturnTraffic) -> bool:
    """Whether the domain's own rules admit a packet."""
    if returns not in WITH_REPLIES:
        return False
    if packet.protocol == TCP and packet.tcp_flags & 0x14:
        return True
    return returns is ReturnTraffic.PATH_MTU and direction is Direction.INGRESS and says_path_mtu(packet)


def plainly_matches(rule: Rule, packet: Packet, groups: dict[str, AddressGroup]) -> bool:
    """The meaning of a rule once more, as sets of values and with the standard library's addresses."""

    def inside(side: Addresses, address: int) -> bool:
        blocks = [str(prefix) for name in side.groups for prefix in groups[name].prefixes]
        blocks += [str(prefix) for prefix in side.prefixes]
        if not side.prefixes and not side.groups:
            return True
        point = ipaddress.IPv4Address(address) if packet.family is Family.IPV4 else ipaddress.IPv6Address(address)
        return any(point in ipaddress.ip_network(block) for block in blocks)

    def ports(ranges: tuple[PortRange, ...]) -> set[int]:
        return {port for item in ranges for port in range(item.low, item.high + 1)}

    protocol_fits = rule.protocol is None or (
        packet.protocol == rule.protocol
        and not (rule.protocol == ICMP and packet.family is Family.IPV6)
        and not (rule.protocol == ICMPV6 and packet.family is Family.IPV4)
    )
    named = (rule.icmp_type, rule.icmp_code, rule.tcp_flags, rule.established or None)
    needs_header = any(value is not None for value in named) or any(
        (item.low, item.high) != (0, 65535) for item in (*rule.source_ports, *rule.destination_ports)
    )
    flags = packet.tcp_flags
    flags_fit = (not rule.established or flags & 0x14 != 0) and (
        rule.tcp_flags is None or flags & rule.tcp_flags.mask == rule.tcp_flags.value
    )
    return (
        protocol_fits
        and (rule.dscp is None or rule.dscp >> packet.dscp & 1 == 1)
        and inside(rule.source, packet.source)
        and inside(rule.destination, packet.destination)
        and (packet.later_fragment or not rule.fragments)
        and not (packet.later_fragment and needs_header)
        and packet.source_port in ports(rule.source_ports)
        and packet.destination_port in ports(rule.destination_ports)
        and (rule.icmp_type is None or rule.icmp_type == packet.icmp_type)
        and (rule.icmp_code is None or rule.icmp_code == packet.icmp_code)
        and flags_fit
    )


@settings(max_examples=examples(30), deadline=None)
@given(acls(3, min_rules=1))
def test_a_match_is_what_its_fields_say(acl: Acl) -> None:
    for packet in corner_packets_of(acl)[:120]:
        for rule in acl.rules:
            assert oracle.matches(rule, packet, acl.groups) == plainly_matches(rule, packet, dict(acl.groups))


@settings(max_examples=examples(30), deadline=None)
@given(acls(6), st.sampled_from(list(ReturnTraffic)))
def test_the_first_rule_that_matches_decides_then_return_traffic_then_the_default(
    acl: Acl, returns: ReturnTraffic
) -> None:
    for packet in (*corner_packets_of(acl), *TOO_BIG):
        for direction in Direction:
            step = oracle.ask(acl, packet, direction, returns)
            hits = [rule for rule in acl.rules if rule.direction is direction]
            hits = [rule for rule in hits if oracle.matches(rule, packet, acl.groups)]
            if hits:
                assert (step.rule, step.action) == (hits[0].id, hits[0].action)
            elif is_return_traffic(packet, direction, returns):
                assert (step.rule, step.action) == (RETURN_RULE_ID, PERMIT)
            else:
                assert (step.rule, step.action) == (None, acl.default(direction))


@settings(max_examples=examples(30), deadline=None)
@given(acls(4), rules("extra"))
def test_a_rule_changes_only_packets_it_matches(acl: Acl, extra: Rule) -> None:
    longer = replace(acl, rules=(extra, *acl.rules))
    for packet in corner_packets_of(acl):
        for direction in Direction:
            before = oracle.ask(acl, packet, direction, ReturnTraffic.EXPLICIT)
            after = oracle.ask(longer, packet, direction, ReturnTraffic.EXPLICIT)
            if extra.direction is direction and oracle.matches(extra, packet, {}):
                assert after.rule == "extra"
            else:
                assert after == before


@settings(max_examples=examples(30), deadline=None)
@given(policies(3, max_rules=4))
def test_a_packet_passes_by_the_operator_or_by_every_list_concerned(policy: Policy) -> None:
    for packet in policy_corner_packets(policy):
        decision = oracle.decide(policy, packet)
        operator = [rule for rule in policy.operator if oracle.matches(rule, packet, {})]
        if operator:
            assert decision.action is operator[0].action
            assert [step.rule for step in decision.steps] == [operator[0].id]
            continue
        sender = [tenant for tenant in policy.tenants if tenant.owns(packet.family, packet.source)]
        receiver = [tenant for tenant in policy.tenants if tenant.owns(packet.family, packet.destination)]
        asked = [(tenant, Direction.EGRESS) for tenant in sender]
        asked += [(tenant, Direction.INGRESS) for tenant in receiver]
        answers = [oracle.ask(one.acl, packet, way, policy.return_traffic).action for one, way in asked]
        assert decision.permitted == (bool(answers) and DENY not in answers)
        assert len(decision.steps) == (answers.index(DENY) + 1 if DENY in answers else len(answers))


def tenant(number: int, block: str, *rules_of_it: Rule) -> Tenant:
    return Tenant(TenantId(f"t{number}"), number, (Prefix.parse(block),), Acl(tuple(rules_of_it)))


def syn(source: str, destination: str, port: int = 80, **fields: object) -> Packet:
    ends = [int(ipaddress.IPv4Address(text)) for text in (source, destination)]
    return replace(Packet(Family.IPV4, *ends, TCP, 40000, port, tcp_flags=2), **fields)  # type: ignore[arg-type]


WEB = Rule(RuleId("web"), PERMIT, protocol=TCP, destination_ports=(PortRange(80, 80),))
NO_WEB_OUT = replace(WEB, id=RuleId("no-web"), action=DENY, direction=Direction.EGRESS)


def test_default_off_inwards_and_open_outwards() -> None:
    policy = Policy((tenant(1, "10.0.1.0/24"), tenant(2, "10.0.2.0/24", WEB)))
    assert oracle.decide(policy, syn("10.0.1.1", "192.0.2.1")).permitted
    assert not oracle.decide(policy, syn("192.0.2.1", "10.0.1.1")).permitted
    assert oracle.decide(policy, syn("10.0.1.1", "10.0.2.1")).permitted
    assert not oracle.decide(policy, syn("10.0.2.1", "10.0.1.1")).permitted


def test_between_tenants_the_senders_egress_counts_as_well() -> None:
    policy = Policy((tenant(1, "10.0.1.0/24", NO_WEB_OUT), tenant(2, "10.0.2.0/24", WEB)))
    decision = oracle.decide(policy, syn("10.0.1.1", "10.0.2.1"))
    assert [(step.tenant, step.rule) for step in decision.steps] == [("t1", "no-web")]


def test_a_packet_between_strangers_is_not_ours_to_carry() -> None:
    assert oracle.decide(Policy(), syn("192.0.2.1", "192.0.2.2")).steps == ()
    assert not oracle.decide(Policy(), syn("192.0.2.1", "192.0.2.2")).permitted


def test_replies_come_back_unless_the_domain_says_explicit() -> None:
    reply = syn("192.0.2.1", "10.0.1.1", 40000, tcp_flags=0x12)
    open_policy = Policy((tenant(1, "10.0.1.0/24"),))
    assert oracle.decide(open_policy, reply).permitted
    assert not oracle.decide(replace(open_policy, return_traffic=ReturnTraffic.EXPLICIT), reply).permitted


def test_an_explicit_deny_holds_against_return_traffic() -> None:
    refusing = tenant(1, "10.0.1.0/24", Rule(RuleId("none"), DENY))
    assert not oracle.decide(Policy((refusing,)), syn("192.0.2.1", "10.0.1.1", tcp_flags=0x10)).permitted


def test_a_later_fragment_meets_no_rule_with_ports() -> None:
    policy = Policy((tenant(1, "10.0.1.0/24", WEB),))
    fragment = syn("192.0.2.1", "10.0.1.1", 0, source_port=0, tcp_flags=0, later_fragment=True)
    assert not oracle.decide(policy, fragment).permitted
    admits = tenant(1, "10.0.1.0/24", Rule(RuleId("f"), PERMIT, protocol=TCP, fragments=True))
    assert oracle.decide(Policy((admits,)), fragment).permitted


def test_corner_packets_notice_two_rules_that_changed_places() -> None:
    """What the packets of every law here are for: an even draw of packets would see no difference."""
    first = Rule(RuleId("a"), PERMIT, protocol=TCP, destination_ports=(PortRange(80, 90),))
    second = Rule(RuleId("b"), DENY, protocol=TCP, destination_ports=(PortRange(90, 99),))
    packets = corner_packets((first, second))
    one, other = Acl((first, second)), Acl((second, first))
    assert any(
        oracle.ask(one, packet, Direction.INGRESS, ReturnTraffic.EXPLICIT).action
        is not oracle.ask(other, packet, Direction.INGRESS, ReturnTraffic.EXPLICIT).action
        for packet in packets
    )
