"""Where stateless rules decide beside connections, no mix of policies lets through what neither permits, either.

What an end may let through is said here from the oracle's rules: by the first rule of the packet, if that is stateless;
else by any packet that may have opened its connection, whoever has seen it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from mixed_policies import HIGHEST, PHASES, alike, packets_of, passes_point, step
from strategies import policies
from tracked_domain import ACK, SYN, trackable

from orchestrator.control.policychanges import compare_policies, could_leak
from orchestrator.policy.addresses import Family, Prefix
from orchestrator.policy.connections import opening
from orchestrator.policy.intersection import withheld
from orchestrator.policy.model import (
    Acl,
    Action,
    Direction,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.narrowing import narrow
from orchestrator.policy.oracle import first_match, matches, owner
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, SCTP, TCP, UDP

EG, IN = Direction.EGRESS, Direction.INGRESS
BOTH = (Action.PERMIT, Action.DENY)


def first_rule(policy: Policy, packet: Packet, direction: Direction) -> tuple[Action, bool]:
    """What the first rule of a packet does at an end, and whether it is stateless."""
    rule = next((each for each in policy.operator if matches(each, packet, {})), None)
    tenant = owner(policy, packet.family, packet.source if direction is EG else packet.destination)
    assert tenant is not None
    rule = rule or first_match(tenant.acl.rules, packet, direction, tenant.acl.groups)
    return (rule.action, rule.stateless) if rule is not None else (tenant.acl.default(direction), False)


def openers(policy: Policy, packet: Packet, direction: Direction) -> Iterator[tuple[Packet, Direction]]:
    """Packets that may have opened a packet's connection, with their direction at the end."""
    other = IN if direction is EG else EG
    turned = replace(
        packet, source=packet.destination, destination=packet.source,
        source_port=packet.destination_port, destination_port=packet.source_port,
    )  # fmt: skip
    ways = ((packet, direction),) if policy.holds_replies else ((packet, direction), (turned, other))
    for each, way in ways:
        asks = {0: 8, 129: 128}.get(each.icmp_type, each.icmp_type) if way is other else each.icmp_type
        first = opening(replace(each, tcp_flags=SYN if each.protocol == TCP else 0, icmp_type=asks))
        if first is not None:
            yield first, way


def lets(policy: Policy, packet: Packet, direction: Direction) -> bool:
    if policy.return_traffic is not ReturnTraffic.TRACKED:
        return passes_point(policy, packet, direction)
    action, alone = first_rule(policy, packet, direction)
    if alone:
        return action is Action.PERMIT
    asked = openers(policy, packet, direction)
    return any(first_rule(policy, *each) == (Action.PERMIT, False) for each in asked)


def passes(sender: Policy, receiver: Policy, packet: Packet) -> bool:
    return lets(sender, packet, EG) and lets(receiver, packet, IN)


def leaks(held: tuple[Policy, ...], allowed: tuple[Policy, ...], packets: tuple[Packet, ...]) -> list[Packet]:
    return [
        packet
        for packet in packets
        if any(passes(one, other, packet) for one in held for other in held)
        and not any(passes(each, each, packet) for each in allowed)
    ]


def marked(policy: Policy, rng: random.Random, share: float) -> Policy:
    """The policy with connections tracked, and some of its rules stateless, which may look at anything."""
    tracked = trackable(policy)

    def chosen(rules: tuple[Rule, ...], plain: tuple[Rule, ...]) -> tuple[Rule, ...]:
        pairs = zip(rules, plain, strict=True)
        return tuple(
            replace(rule, stateless=True, dscp=None) if rng.random() < share else other for rule, other in pairs
        )

    tenants = tuple(
        replace(each, acl=replace(each.acl, rules=chosen(before.acl.rules, each.acl.rules)))
        for before, each in zip(policy.tenants, tracked.tenants, strict=True)
    )
    return replace(tracked, tenants=tenants, operator=chosen(policy.operator, tracked.operator))


def turned(packet: Packet) -> Packet:
    ends = {"source": packet.destination, "destination": packet.source}
    return replace(packet, **ends, source_port=packet.destination_port, destination_port=packet.source_port)


def sample(rng: random.Random, *several: Policy) -> tuple[Packet, ...]:
    """Packets at the corners of rules, and answers to them, with SYN and with ACK."""
    packets = packets_of(*several)
    packets = tuple(rng.sample(packets, min(len(packets), 150)))
    both = dict.fromkeys((*packets, *map(turned, packets)))
    tcp = [replace(each, tcp_flags=flags) for each in both if each.protocol == TCP for flags in (SYN, ACK)]
    return tuple(dict.fromkeys((*both, *tcp)))


def check_step(before: Policy, after: Policy, rng: random.Random) -> None:
    middle, back = step(before, after)
    packets = sample(rng, before, after, middle)
    assert not leaks((before, middle), (before, after), packets)
    assert not leaks((middle, after), (before, after), packets)
    if not back:
        assert not leaks((before, after), (before, after), packets)
    assert not withheld([middle], after), "once the intersection is everywhere, the target may follow"
    if back:
        assert could_leak([compare_policies(before, after)])


DRAWN = policies(max_tenants=2, max_rules=4)


@given(DRAWN, DRAWN, st.randoms(use_true_random=False))
@settings(max_examples=examples(60), deadline=None, phases=PHASES)
def test_lists_that_change_leak_nothing(before: Policy, other: Policy, rng: random.Random) -> None:
    after = alike(before, other)
    before, after = marked(before, rng, 0.4), marked(after, rng, 0.4)
    check_step(before, replace(after, operator=before.operator), rng)


@given(DRAWN, DRAWN, st.sampled_from(ReturnTraffic), st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=examples(40), deadline=None, phases=PHASES)
def test_nor_do_the_operators_rules_or_the_setting(
    before: Policy, other: Policy, setting: ReturnTraffic, begins: bool, rng: random.Random
) -> None:
    after = alike(before, other)
    one, two = marked(before, rng, 0.4), marked(after, rng, 0.4)
    if setting is not ReturnTraffic.TRACKED:
        plain = replace(before if begins else after, return_traffic=setting)
        one, two = (plain, two) if begins else (one, plain)
    check_step(one, two, rng)


@given(DRAWN, DRAWN, DRAWN, st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None, phases=PHASES)
def test_nor_do_hosts_that_lag_by_more_than_one_policy(
    first: Policy, second: Policy, third: Policy, rng: random.Random
) -> None:
    held = [marked(first, rng, 0.4), marked(alike(first, second), rng, 0.4)]
    target = marked(alike(first, third), rng, 0.4)
    middle = narrow(target, withheld(held, target), highest_number=HIGHEST)
    packets = sample(rng, *held, target, middle)
    for lagging in held:
        assert not leaks((lagging, middle), (lagging, target), packets)
    assert not leaks((middle, target), (target,), packets)


@given(DRAWN, st.integers(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=examples(30), deadline=None, phases=PHASES)
def test_nor_does_a_rule_that_gets_or_loses_its_mark(base: Policy, place: int, rng: random.Random) -> None:
    """One rule of each list changes alone: what it decides by connections before, it decides alone after."""
    before = marked(base, rng, 0.3)
    tenants = []
    for tenant in before.tenants:
        rules = list(tenant.acl.rules)
        if rules:
            rule = rules[place % len(rules)]
            plain = replace(
                rule, established=False, tcp_flags=None, dscp=None, fragments=False, stateless=not rule.stateless
            )
            rules[place % len(rules)] = plain if rule.protocol != SCTP else rule
        tenants.append(replace(tenant, acl=replace(tenant.acl, rules=tuple(rules))))
    check_step(before, replace(before, tenants=tuple(tenants)), rng)


# ---------------------------------------------------------------------------------------------------- by example

WEB = (PortRange(80, 80),)
A, B = Prefix.parse("10.1.0.0/16"), Prefix.parse("10.2.0.0/16")


def tenant(number: int, *rules: Rule, prefix: Prefix) -> Tenant:
    numbers: dict[str, int] = {rule.id: place for place, rule in enumerate(rules, 1)}
    return Tenant(TenantId(f"t{number}"), number, (prefix,), Acl(rules), numbers)


def rule(name: str, direction: Direction, action: Action = Action.PERMIT, **asked: object) -> Rule:
    return Rule(RuleId(name), action, direction, **asked)  # type: ignore[arg-type]


def policy(sender: tuple[Rule, ...], receiver: tuple[Rule, ...], operator: tuple[Rule, ...] = ()) -> Policy:
    return Policy(
        (tenant(1, *sender, prefix=A), tenant(2, *receiver, prefix=B)),
        operator,
        {each.id: 1 + place for place, each in enumerate(operator)},
        return_traffic=ReturnTraffic.TRACKED,
    )


def packet(**asked: int) -> Packet:
    return Packet(Family.IPV4, A.network + 1, B.network + 1, asked.pop("protocol", TCP), 9, 80, **asked)


SHUT = rule("shut", EG, Action.DENY)
NO_ACK = rule("no", IN, Action.DENY, protocol=TCP, established=True, stateless=True)
FROM_WEB = rule("op", IN, source_ports=WEB, protocol=TCP)
CASES = {
    "a deny that moves from the sender's end to the receiver's": (
        policy((rule("no", EG, Action.DENY, protocol=UDP, stateless=True),), (rule("in", IN, stateless=True),)),
        policy((), (rule("no", IN, Action.DENY, protocol=UDP, stateless=True), rule("in", IN, stateless=True))),
        packet(protocol=UDP),
    ),
    "a deny of segments that open no connection": (
        policy((replace(NO_ACK, direction=EG),), (rule("in", IN),)),
        policy((), (NO_ACK, rule("in", IN))),
        packet(tcp_flags=ACK),
    ),
    "an end that decides an answer alone, and one that knew the question": (
        policy((SHUT, rule("in", IN)), (rule("no", IN, Action.DENY, stateless=True),)),
        policy((SHUT,), (rule("web", IN, protocol=TCP, stateless=True),)),
        packet(tcp_flags=ACK),
    ),
    "an answer to echo": (
        policy((SHUT, rule("in", IN)), (rule("no", IN, Action.DENY, stateless=True),)),
        policy((SHUT,), (rule("pong", IN, protocol=ICMP, icmp_type=0, stateless=True),)),
        packet(protocol=ICMP, icmp_type=0),
    ),
    "an operator's rule that goes, and a list that opens": (
        policy((SHUT,), (rule("no", IN, Action.DENY, stateless=True),), (FROM_WEB,)),
        policy((SHUT,), (rule("web", IN, protocol=TCP, stateless=True),)),
        packet(tcp_flags=ACK),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_would_leak_is_held_back(case: str) -> None:
    before, after, sent = CASES[case]
    assert leaks((before, after), (before, after), (sent,)), "the example does not leak"
    assert could_leak([compare_policies(before, after)])
    middle, _ = step(before, after)
    for one, other in ((before, middle), (middle, before), (middle, after), (after, middle)):
        assert not passes(one, other, sent)


def test_what_passes_before_and_after_passes_meanwhile() -> None:
    """Only what opens is held back, whatever else of the list is stateless."""
    stays = rule("stays", IN, protocol=UDP, stateless=True)
    opens, closes = (
        rule(name, IN, protocol=TCP, destination_ports=WEB, stateless=True) for name in ("opens", "closes")
    )
    closes = replace(closes, destination_ports=(PortRange(81, 81),))
    before, after = policy((), (stays, closes)), policy((), (stays, opens))
    middle, back = step(before, after)
    assert [(each.stateless, each.destination_ports) for each in back.rules[TenantId("t2")]] == [(True, WEB)]
    assert passes(middle, middle, packet(protocol=UDP))
    assert not withheld([before], policy((), (stays, closes, opens))), "what only opens needs no second step"


def test_a_list_follows_its_own_intersection_however_long_it_is() -> None:
    """A deny of one ICMP code leaves hundreds of boxes to hold back: more than are compared one by one."""
    no_code = rule("no-code", EG, Action.DENY, protocol=ICMP, icmp_type=3, icmp_code=4, stateless=True)
    later = rule("later", EG, fragments=True, stateless=True)
    before = policy((no_code, later, SHUT), ())
    after = policy((no_code, replace(later, fragments=False, stateless=False), SHUT), ())
    middle, back = step(before, after)
    assert len(back.rules[TenantId("t1")]) > 500
    assert not withheld([middle], after)
    assert not leaks((middle, after), (before, after), sample(random.Random(1), before, after))
