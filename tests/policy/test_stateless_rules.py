"""Stateless rules in a domain that tracks connections: what one end decides alone, and what the other end knows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from policy.test_connections import ACK, OUT, SYN, A, B, back, rule, tcp, tenant, tracked, verdicts

from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.connections import NONE, check_trackable, decide_tracked, ends_of, narrow_rules, surviving
from orchestrator.policy.model import Action, Direction, Packet, Policy, Rule, RuleId
from orchestrator.policy.oracle import first_match, owner
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, TCP, UDP

IN, EG = Direction.INGRESS, Direction.EGRESS
DNS = (PortRange(53, 53),)
ASKS = Packet(Family.IPV4, A, B, UDP, 9, 53)
SERVER = rule("dns", IN, protocol=UDP, destination_ports=DNS, stateless=True)
ANSWERS = rule("answers", EG, protocol=UDP, source_ports=DNS, stateless=True)


def test_an_end_that_decides_alone_remembers_nothing() -> None:
    """A tracks what B decides by its rules alone: the connection is known at A only."""
    policy = tracked(tenant(1, rule("out", EG)), tenant(2, SERVER, ANSWERS))
    known = decide_tracked(policy, ASKS, NONE).connections
    assert list(known) == [(ends_of(ASKS), A)]
    answer = decide_tracked(policy, back(ASKS), known)
    assert answer.decision.permitted
    assert [step.rule for step in answer.decision.steps] == ["answers", "out"]
    assert not decide_tracked(policy, back(ASKS), NONE).decision.permitted


def test_an_answer_needs_a_rule_of_its_own() -> None:
    assert verdicts(tracked(tenant(1, rule("out", EG)), tenant(2, SERVER)), [ASKS, back(ASKS)]) == [True, False]


def test_an_answer_that_may_open_a_connection_opens_one_where_nothing_was_remembered() -> None:
    policy = tracked(tenant(2, SERVER, rule("talk", EG)))
    asks = replace(ASKS, source=OUT)
    assert verdicts(policy, [asks, back(asks), asks]) == [True, True, True]


def test_nothing_but_its_own_match_passes_a_stateless_permit() -> None:
    web = rule("web", IN, protocol=TCP, destination_ports=(PortRange(80, 80),), stateless=True)
    policy = tracked(tenant(2, web))
    in_the_middle = tcp(OUT, B, ACK)
    assert verdicts(policy, [in_the_middle, back(in_the_middle)]) == [True, False]


def test_a_stateless_deny_cuts_answers_of_a_known_connection() -> None:
    syn = tcp(A, B, SYN)
    shut = rule("shut", IN, protocol=TCP, source_ports=(PortRange(80, 80),), stateless=True)
    one, other = tenant(1, rule("out", EG)), tenant(2, rule("web", IN))
    policy = tracked(tenant(1, rule("out", EG), replace(shut, action=Action.DENY)), other)
    ways = [syn, back(syn, tcp_flags=SYN | ACK)]
    assert verdicts(tracked(one, other), ways) == [True, True]
    assert verdicts(policy, ways) == [True, False]


def test_a_rule_before_it_decides_by_state() -> None:
    before = rule("before", IN, protocol=UDP, source=Addresses((Prefix.parse("10.1.0.0/16"),)))
    policy = tracked(tenant(1, rule("out", EG)), tenant(2, before, replace(SERVER, action=Action.DENY)))
    assert verdicts(policy, [ASKS, back(ASKS)]) == [True, True]
    operator = replace(policy, tenants=(policy.tenants[0], tenant(2, SERVER)), operator=(rule("all", IN),))
    known = decide_tracked(operator, ASKS, NONE).connections
    assert {address for _, address in known} == {A, B}


def test_a_rule_that_becomes_stateless_cuts_its_connections() -> None:
    syn = tcp(A, B, SYN)
    out, web = rule("out", EG), rule("web", IN)
    before = tracked(tenant(1, out), tenant(2, web))
    known = decide_tracked(before, syn, NONE).connections
    after = tracked(tenant(1, out), tenant(2, replace(web, stateless=True)))
    assert surviving(after, known) == {(ends_of(syn), A): (syn,)}
    assert not decide_tracked(after, back(syn, tcp_flags=ACK), known).decision.permitted
    assert decide_tracked(after, replace(syn, tcp_flags=ACK), known).decision.permitted


def test_a_flag_that_only_later_segments_carry_may_be_stateless() -> None:
    fast = rule("fast", IN, protocol=TCP, established=True, stateless=True)
    policy = tracked(tenant(1, rule("out", EG)), tenant(2, fast, rule("web", IN)))
    syn = tcp(A, B, SYN)
    known = decide_tracked(policy, syn, NONE).connections
    later = decide_tracked(policy, replace(syn, tcp_flags=ACK), known).decision
    assert [step.rule for step in later.steps] == ["out", "fast"]


def test_a_plane_that_cannot_refuses_the_rule_by_name() -> None:
    with pytest.raises(BadPolicy, match=r"'dns' is `stateless`") as refused:
        check_trackable(tracked(tenant(2, SERVER)))
    assert refused.value.place == "tenants[t2].acl.rules[0]"
    with pytest.raises(BadPolicy, match="'dns'") as refused:
        check_trackable(replace(tracked(), operator=(SERVER,)))
    assert refused.value.place == "operator[0]"


def test_an_intersection_keeps_the_denies_alone() -> None:
    deny = replace(SERVER, action=Action.DENY)
    assert narrow_rules((SERVER, deny)) == (replace(deny, stateless=False),)


_SIDES = st.sampled_from([ANY, *(Addresses((Prefix.parse(text),)) for text in ("10.1.0.0/16", "10.2.0.1"))])
_RULES = st.builds(
    Rule, st.just(RuleId("r")), st.sampled_from(list(Action)), st.sampled_from(list(Direction)),
    protocol=st.sampled_from((None, TCP, UDP, ICMP)), source=_SIDES, destination=_SIDES, stateless=st.booleans(),
)  # fmt: skip
_PACKETS = st.builds(
    Packet, st.just(Family.IPV4), st.sampled_from((A, B, OUT)), st.sampled_from((A, B)),
    st.sampled_from((TCP, UDP, ICMP, 47)), st.sampled_from((80, 81)), st.sampled_from((80, 81)),
    icmp_type=st.sampled_from((0, 3, 8)), tcp_flags=st.sampled_from((SYN, ACK, SYN | ACK)),
).filter(lambda packet: packet.source != packet.destination)  # fmt: skip


def _policy(lists: Sequence[Sequence[Rule]]) -> Policy:
    named = [[replace(each, id=RuleId(f"r{place}")) for place, each in enumerate(rules)] for rules in lists]
    return tracked(*(tenant(place, *rules) for place, rules in enumerate(named, 1)))


def _alone(policy: Policy, packet: Packet, address: int, direction: Direction) -> Action | None:
    found = owner(policy, packet.family, address)
    first = first_match(found.acl.rules, packet, direction, found.acl.groups) if found is not None else None
    return first.action if first is not None and first.stateless else None


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(*[st.lists(_RULES, max_size=4)] * 2), min_size=1, max_size=3), st.lists(_PACKETS, max_size=30)
)
def test_each_end_decides_alone_or_by_what_it_has_seen(
    lists: list[tuple[list[Rule], list[Rule]]], packets: list[Packet]
) -> None:
    """An end whose first rule is stateless says what it says, whatever was known; the other one only knows its own."""
    policies = [_policy(each) for each in lists]
    known = NONE
    for packet, policy in zip(packets, itertools.cycle(policies), strict=False):
        ends = ((packet.source, EG), (packet.destination, IN))
        alone = [_alone(policy, packet, *end) for end in ends]
        verdict = decide_tracked(policy, packet, known)
        if Action.DENY in alone:
            assert not verdict.decision.permitted
        owned = [owner(policy, packet.family, address) is not None for address, _ in ends]
        if all(each is Action.PERMIT or not own for each, own in zip(alone, owned, strict=True)) and any(owned):
            assert verdict.decision.permitted
            assert verdict.connections == known
        for (address, _), each in zip(ends, alone, strict=True):
            name = ends_of(packet), address
            if each is not None:
                assert verdict.connections.get(name) == known.get(name)
        known = verdict.connections
