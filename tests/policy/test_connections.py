"""Tracked connections: stories of one connection each, and what holds for every trace."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix, parse_address
from orchestrator.policy.connections import NONE, check_trackable, decide_tracked, ends_of, surviving
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
from orchestrator.policy.oracle import ask, decide, owner
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, SCTP, TCP, UDP

SYN, ACK, RST, FIN = 0x02, 0x10, 0x04, 0x01
A, B, OUT = (parse_address(text)[1] for text in ("10.1.0.1", "10.2.0.1", "198.51.100.7"))
WEB = (PortRange(80, 80),)


def rule(name: str, direction: Direction, **asked: object) -> Rule:
    return Rule(RuleId(name), Action.PERMIT, direction, **asked)  # type: ignore[arg-type]


def tenant(number: int, *rules: Rule) -> Tenant:
    acl = Acl(rules, egress_default=Action.DENY)
    numbers = {each.id: 10 * number + place for place, each in enumerate(rules)}
    return Tenant(TenantId(f"t{number}"), number, (Prefix.parse(f"10.{number}.0.0/16"),), acl, numbers)


def tracked(*tenants: Tenant) -> Policy:
    return Policy(tenants, return_traffic=ReturnTraffic.TRACKED)


OUTGOING = rule("out", Direction.EGRESS)
POLICY = tracked(
    tenant(1, OUTGOING),
    tenant(2, rule("web", Direction.INGRESS, protocol=TCP, destination_ports=WEB),
           rule("dns", Direction.INGRESS, protocol=UDP), rule("ping", Direction.INGRESS, protocol=ICMP)),
)  # fmt: skip


def tcp(source: int, destination: int, flags: int, *, ports: tuple[int, int] = (5000, 80)) -> Packet:
    return Packet(Family.IPV4, source, destination, TCP, *ports, tcp_flags=flags)


def back(packet: Packet, **changed: int) -> Packet:
    """A packet of the other direction."""
    turned = replace(packet, source=packet.destination, destination=packet.source,
                     source_port=packet.destination_port, destination_port=packet.source_port)  # fmt: skip
    return replace(turned, **changed)  # type: ignore[arg-type]


def verdicts(policy: Policy, packets: Iterable[Packet]) -> list[bool]:
    known, found = NONE, []
    for packet in packets:
        verdict = decide_tracked(policy, packet, known)
        known = verdict.connections
        found.append(verdict.decision.permitted)
    return found


def test_a_connection_and_its_answers_pass() -> None:
    syn = tcp(A, B, SYN)
    ways = [syn, back(syn, tcp_flags=SYN | ACK), replace(syn, tcp_flags=ACK), back(syn, tcp_flags=FIN | ACK)]
    assert verdicts(POLICY, ways) == [True] * 4


@pytest.mark.parametrize("flags", [ACK, SYN | ACK, RST, FIN | ACK, 0, SYN | RST, SYN | FIN])
def test_nothing_begins_in_the_middle(flags: int) -> None:
    assert verdicts(POLICY, [tcp(A, B, flags), tcp(A, B, ACK), tcp(B, A, ACK, ports=(80, 5000))]) == [False] * 3


def test_what_a_list_denies_opens_nothing() -> None:
    syn = tcp(B, A, SYN)
    assert verdicts(POLICY, [syn, back(syn, tcp_flags=SYN | ACK), replace(syn, tcp_flags=ACK)]) == [False] * 3


def test_each_end_knows_the_connections_that_its_own_list_permits() -> None:
    """A's datagram is refused at B. What B sends between the same ends is an answer for A, as B's list lets it go."""
    refused = Packet(Family.IPV4, A, B, UDP, 9, 54)
    talking = replace(POLICY, tenants=(POLICY.tenants[0], tenant(2, rule("talk", Direction.EGRESS))))
    assert verdicts(talking, [back(refused)]) == [False]
    assert verdicts(talking, [refused, back(refused)]) == [False, True]


def test_an_answer_that_may_open_a_connection_opens_it_too() -> None:
    """B's datagram is refused at A, and A's own passes: its connection lives on where B may send none any more."""
    there = Packet(Family.IPV4, A, B, UDP, 9, 53)
    both = (rule("dns", Direction.INGRESS, protocol=UDP), rule("talk", Direction.EGRESS))
    talking = replace(POLICY, tenants=(POLICY.tenants[0], tenant(2, *both)))
    assert not decide_tracked(talking, back(there), NONE).decision.permitted
    known = decide_tracked(talking, there, decide_tracked(talking, back(there), NONE).connections).connections
    silent = replace(POLICY, tenants=(POLICY.tenants[0], tenant(2, both[0])))
    assert decide_tracked(silent, back(there), known).decision.permitted


def test_datagrams_and_pings_are_answered_and_only_then() -> None:
    asks = Packet(Family.IPV4, A, B, UDP, 9, 53)
    ping = Packet(Family.IPV4, A, B, ICMP, icmp_type=8)
    pong = back(ping, icmp_type=0)
    assert verdicts(POLICY, [back(asks), asks, back(asks), pong, ping, pong]) == [False, True, True, False, True, True]


def test_an_error_comes_back_about_a_known_connection_only() -> None:
    asks = Packet(Family.IPV4, A, B, UDP, 9, 53)
    known = decide_tracked(POLICY, asks, NONE).connections
    for sender in (B, OUT):
        error = Packet(Family.IPV4, sender, A, ICMP, icmp_type=3, icmp_code=3)
        assert decide_tracked(POLICY, error, known, quoted=asks).decision.permitted
        assert not decide_tracked(POLICY, error, NONE, quoted=asks).decision.permitted
        assert not decide_tracked(POLICY, error, known).decision.permitted
        astray = replace(error, destination=B)
        assert not decide_tracked(POLICY, astray, known, quoted=asks).decision.permitted


def test_a_change_cuts_what_it_forbids_and_keeps_what_another_rule_permits() -> None:
    syn = tcp(A, B, SYN)
    known = decide_tracked(POLICY, syn, NONE).connections
    answer = back(syn, tcp_flags=ACK)
    closed = replace(POLICY, tenants=(POLICY.tenants[0], tenant(2)))
    assert not decide_tracked(closed, answer, known).decision.permitted
    assert surviving(closed, known) == {(ends_of(syn), A): (syn,)}
    otherwise = replace(POLICY, tenants=(POLICY.tenants[0], tenant(2, rule("all", Direction.INGRESS))))
    decision = decide_tracked(otherwise, answer, known).decision
    assert {step.rule for step in decision.steps} == {"out", "all"}
    assert surviving(otherwise, known) == known


@pytest.mark.parametrize(
    "asked",
    [
        {"protocol": TCP, "established": True},
        {"fragments": True},
        {"protocol": SCTP, "destination_ports": WEB},
        {"protocol": 0},
    ],
)
def test_rules_that_no_connection_can_be_asked_for_are_refused(asked: dict[str, object]) -> None:
    check_trackable(POLICY)
    with pytest.raises(BadPolicy) as refused:
        check_trackable(tracked(tenant(1, OUTGOING, rule("odd", Direction.INGRESS, **asked))))
    assert refused.value.place == "tenants[t1].acl.rules[1]"
    with pytest.raises(BadPolicy) as refused:
        check_trackable(replace(POLICY, operator=(rule("odd", Direction.INGRESS, **asked),)))
    assert refused.value.place == "operator[0]"


_SIDES = st.sampled_from(
    [ANY, *(Addresses((Prefix.parse(text),)) for text in ("10.1.0.0/16", "10.2.0.1", "0.0.0.0/1"))]
)
_RULES = st.builds(
    Rule, st.just(RuleId("r")), st.sampled_from(list(Action)), st.sampled_from(list(Direction)),
    protocol=st.sampled_from((None, TCP, UDP, ICMP)), source=_SIDES, destination=_SIDES,
)  # fmt: skip
_PACKETS = st.builds(
    Packet, st.just(Family.IPV4), st.sampled_from((A, B, OUT)), st.sampled_from((A, B)),
    st.sampled_from((TCP, UDP, ICMP, 47)), st.sampled_from((80, 81)), st.sampled_from((80, 81)),
    icmp_type=st.sampled_from((0, 3, 8)), tcp_flags=st.sampled_from((SYN, ACK, SYN | ACK, RST, FIN | ACK)),
).filter(lambda packet: packet.source != packet.destination)  # fmt: skip


def _named(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    return tuple(replace(each, id=RuleId(f"r{place}")) for place, each in enumerate(rules))


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.lists(_RULES, max_size=4), st.lists(_RULES, max_size=4)), min_size=1, max_size=3),
    st.lists(_PACKETS, max_size=30),
)
def test_whatever_passes_is_of_a_connection_that_was_and_is_permitted(
    lists: list[tuple[list[Rule], list[Rule]]], packets: list[Packet]
) -> None:
    """The lists change along the trace. Looked up in the history of the trace, not in what the oracle keeps."""
    policies = [tracked(*(tenant(place, *_named(rules)) for place, rules in enumerate(each, 1))) for each in lists]
    history: list[tuple[Packet, bool]] = []
    known = NONE
    for packet, policy in zip(packets, itertools.cycle(policies), strict=False):
        verdict = decide_tracked(policy, packet, known)
        begins = packet.tcp_flags == SYN if packet.protocol == TCP else packet.icmp_type == 8 or packet.protocol != ICMP
        openings = [old for old, _ in history if ends_of(old) == ends_of(packet)]
        if verdict.decision.permitted and not (begins and decide(policy, packet).permitted):
            assert any(_half_permitted(policy, old) for old in openings), packet
        if begins and not openings:
            assert verdict.decision.permitted == decide(policy, packet).permitted
        known = verdict.connections
        history.append((packet, verdict.decision.permitted))


def _half_permitted(policy: Policy, packet: Packet) -> bool:
    """Whether the list of one end permits a packet."""
    ends = ((packet.source, Direction.EGRESS), (packet.destination, Direction.INGRESS))
    owners = [(owner(policy, packet.family, address), direction) for address, direction in ends]
    return any(
        ask(tenant.acl, packet, direction, policy.return_traffic).action is Action.PERMIT
        for tenant, direction in owners
        if tenant is not None
    )
