"""Expectations are decided for every packet as the oracle decides it, and a counterexample is one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from law_examples import examples
from strategies import FAR_POOL, OWN_POOL, OWNED, PORT_POOL, acls, packet_kinds, rules

from orchestrator.errors import BadInput, ChangeTheRequest
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.expectations import ANYTHING, Expectation, Place, Service, Setting, Target, judge, newly_broken
from orchestrator.policy.model import Acl, Action, Packet, Policy, ReturnTraffic, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP, WITH_PORTS
from orchestrator.policy.tcpflags import FlagMatch

SYN, RST, ACK = 0x02, 0x04, 0x10
CUTS = tuple(FlagMatch(value, mask) for value, mask in ((SYN, 0x16), (SYN, 0x3F), (0x40, 0x40), (0x80, 0x80)))
SERVICES = (
    ANYTHING,
    Service(ping=True),
    Service(ICMP),
    Service(47),
    Service(UDP),
    *(Service(protocol, (ports,)) for protocol in (TCP, UDP) for ports in PORT_POOL),
)


@st.composite
def places(draw: DrawFn) -> Place:
    """One end: everybody, outside, or prefixes of either side."""
    if draw(st.integers(0, 3)) == 0:
        return Place((), outside=draw(st.booleans()))
    chosen = draw(st.lists(st.sampled_from(FAR_POOL + OWN_POOL), min_size=1, max_size=2, unique=True))
    return Place(tuple(map(str, chosen)))


@st.composite
def expectations(draw: DrawFn) -> Expectation:
    besides = draw(st.none() | places().filter(lambda place: bool(place.names)))
    target = Target(draw(places()), draw(st.sampled_from(SERVICES)))
    return Expectation("drawn", "line 1", draw(st.booleans()), draw(places()), (target,), besides)


def is_of(place: Place, family: Family, address: int) -> bool:
    """Whether an end names an address."""
    prefixes = [Prefix.parse(name) for name in place.names]
    named = not prefixes or any(prefix.family is family and prefix.holds(address) for prefix in prefixes)
    return named and not (place.outside and is_own(family, address))


def is_own(family: Family, address: int) -> bool:
    return any(prefix.family is family and prefix.holds(address) for prefix in OWNED)


def is_meant(expectation: Expectation, packet: Packet) -> bool:
    """Whether an expectation speaks of a packet, written down from the documentation and not from boxes."""
    (target,) = expectation.targets
    service, family = target.service, packet.family
    if not (is_of(expectation.source, family, packet.source) and is_of(target.place, family, packet.destination)):
        return False
    if expectation.besides is not None and is_of(expectation.besides, family, packet.source):
        return False
    own = is_own(family, packet.source) or is_own(family, packet.destination)
    if not own or (expectation.reaches and packet.dscp):
        return False
    if packet.later_fragment:
        return service == ANYTHING or service.protocol == packet.protocol == 47
    if service.ping:
        return (packet.protocol, packet.icmp_type) in (((ICMP, 8),) if family is Family.IPV4 else ((ICMPV6, 128),))
    if service.protocol not in (None, packet.protocol):
        return False
    if service.protocol in WITH_PORTS:
        if not any(ports.low <= packet.destination_port <= ports.high for ports in service.ports):
            return False
        if expectation.reaches and packet.source_port < 1024:
            return False
    if packet.protocol != TCP:
        return True
    if expectation.reaches and service.protocol is None:
        return packet.source_port >= 1024 and packet.tcp_flags & 0x3F == SYN
    return packet.tcp_flags & (0x3F if expectation.reaches else SYN | ACK | RST) == SYN


def cuts_of(expectation: Expectation) -> Acl:
    """Rules that cut packet space where an expectation does."""
    (target,) = expectation.targets
    found = [
        Rule(RuleId(f"flags{number}"), Action.DENY, protocol=TCP, tcp_flags=match) for number, match in enumerate(CUTS)
    ]
    found.append(Rule(RuleId("dscp"), Action.DENY, dscp=1))
    for protocol, kind in ((ICMP, 8), (ICMPV6, 128)):
        found.append(Rule(RuleId(f"ping{protocol}"), Action.DENY, protocol=protocol, icmp_type=kind))
    service = target.service
    for protocol in {TCP, UDP, service.protocol} - {None, 47, ICMP}:
        clients = (PORT_POOL[6],)
        found.append(Rule(RuleId(f"clients{protocol}"), Action.DENY, protocol=protocol, source_ports=clients))
        if service.protocol == protocol:
            found.append(
                Rule(RuleId(f"ports{protocol}"), Action.DENY, protocol=protocol, destination_ports=service.ports)
            )
    found.append(Rule(RuleId("gre"), Action.DENY, protocol=47))
    return Acl(tuple(found))


@settings(max_examples=examples(150), deadline=None)
@given(
    acls(3),
    expectations(),
    st.lists(rules("op", None, OWN_POOL + FAR_POOL), max_size=1),
    st.sampled_from(ReturnTraffic),
)
def test_every_packet_counts(acl: Acl, expectation: Expectation, operator: list[Rule], returns: ReturnTraffic) -> None:
    assume(all(ANY in (rule.source, rule.destination) or not rule.source.groups for rule in operator))
    setting = Setting(OWNED, {}, tuple(operator), returns)
    policy = Policy(
        (Tenant(TenantId("t"), 1, OWNED, acl),), tuple(operator), {rule.id: 9 for rule in operator}, returns
    )
    (target,) = expectation.targets
    named = [*expectation.source.names, *target.place.names, *(expectation.besides or Place()).names]
    kinds = packet_kinds(
        acl, Acl(tuple(operator)), cuts_of(expectation), prefixes_too=(*OWNED, *map(Prefix.parse, named))
    )
    assume(len(kinds) < 100_000)
    meant = [packet for packet in kinds if is_meant(expectation, packet)]
    against = [packet for packet in meant if decide(policy, packet).permitted is not expectation.reaches]
    try:
        (outcome,) = judge((expectation,), acl, setting)
    except BadInput:
        assert not meant
        return
    assert outcome.kept is not bool(against)
    if outcome.witness is not None:
        assert is_meant(expectation, outcome.witness)
        assert outcome.decision is not None
        assert outcome.decision.permitted is decide(policy, outcome.witness).permitted is not expectation.reaches


def ssh(name: str, action: Action, source: str) -> Rule:
    ports = (PortRange(22, 22),)
    addresses = Addresses((Prefix.parse(source),))
    return Rule(RuleId(name), action, protocol=TCP, source=addresses, destination_ports=ports)


def test_a_permit_behind_denies_that_hold_it_breaks_nothing() -> None:
    """Neither a deny that holds it alone nor two that hold it together; a packet shows what a third leaves open."""
    targets = (Target(Place(("172.16.0.0/16",)), Service(TCP, (PortRange(22, 22),))),)
    nobody = Expectation("nobody", "p", reaches=False, source=Place(), targets=targets)
    low, high = ssh("low", Action.DENY, "0.0.0.0/1"), ssh("high", Action.DENY, "128.0.0.0/1")
    open_to_all = ssh("open", Action.PERMIT, "0.0.0.0/0")
    setting = Setting(OWNED)
    assert judge((nobody,), Acl((ssh("all", Action.DENY, "0.0.0.0/0"), open_to_all)), setting)[0].kept
    assert judge((nobody,), Acl((low, high, open_to_all)), setting)[0].kept
    (broken,) = judge((nobody,), Acl((low, ssh("part", Action.DENY, "128.0.0.0/2"), open_to_all)), setting)
    assert broken.witness is not None
    assert broken.witness.source >> 30 == 3


@settings(max_examples=examples(60), deadline=None)
@given(acls(5, 1), st.lists(expectations(), min_size=1, max_size=3), st.data())
def test_what_a_change_breaks_is_what_was_kept_before_and_is_not_now(
    before: Acl, asked: list[Expectation], data: st.DataObject
) -> None:
    """Asked about the packets of changed rules only, as about all packets of both lists."""
    rules_ = [*before.rules]
    place = data.draw(st.integers(0, len(rules_) - 1))
    if data.draw(st.booleans()):
        rules_.insert(data.draw(st.integers(0, len(rules_) - 1)), rules_.pop(place))
    else:
        drawn = data.draw(acls(1, 1)).rules[0]
        rules_[place : place + data.draw(st.integers(0, 1))] = [replace(drawn, id=RuleId("fresh"))]
    try:
        after = replace(before, rules=tuple(rules_), groups=before.groups)
    except ChangeTheRequest:
        assume(False)
    setting = Setting(OWNED)
    try:
        was, now = judge(asked, before, setting), judge(asked, after, setting)
    except BadInput:
        assume(False)
    broken = [two.expectation for one, two in zip(was, now, strict=True) if one.kept and not two.kept]
    assert [each.expectation for each in newly_broken(asked, before, after, setting)] == broken


NOBODY = Expectation(
    "nobody",
    "p",
    reaches=False,
    source=Place(),
    targets=(Target(Place(("172.16.0.0/16",)), Service(TCP, (PortRange(22, 22),))),),
)
SHUT, OPEN = ssh("shut", Action.DENY, "10.0.0.0/8"), ssh("open", Action.PERMIT, "10.1.0.0/16")
FAR = ssh("far", Action.PERMIT, "192.0.2.0/24")


@pytest.mark.parametrize(
    ("before", "after", "breaks"),
    [
        ((SHUT,), (OPEN, SHUT), True),
        ((SHUT,), (SHUT, OPEN), False),
        ((SHUT, OPEN), (OPEN, SHUT), True),
        ((SHUT, OPEN), (OPEN,), True),
        ((SHUT,), (replace(SHUT, action=Action.PERMIT),), True),
        ((FAR, SHUT), (FAR, OPEN, SHUT), False),
        ((FAR, SHUT, OPEN), (SHUT, OPEN), False),
        ((SHUT, replace(FAR, action=Action.DENY)), (SHUT, OPEN), False),
        ((replace(FAR, action=Action.DENY), SHUT), (OPEN, SHUT), True),
    ],
)
def test_examples_of_what_a_change_breaks(before: tuple[Rule, ...], after: tuple[Rule, ...], breaks: bool) -> None:
    found = newly_broken((NOBODY,), Acl(before), Acl(after), Setting(OWNED))
    assert bool(found) is breaks
