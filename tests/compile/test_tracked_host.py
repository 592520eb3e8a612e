"""Switches that track connections agree with the oracle, trace by trace and rule by rule."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from compiled_domain import forwarded, populated
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import policies
from tracked_domain import TrackedDomain, conversation, denying, error_about, error_from_path, marked, trackable, turned

from orchestrator.compile.cookies import LEAVES, Cookie, Kind
from orchestrator.compile.equivalence import Proof, prove
from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.compile.pipelines.tracked import REFUSED
from orchestrator.enforce.drivers.openflow.frames import EXTENSION_HEADERS
from orchestrator.enforce.reading import are_counted
from orchestrator.errors import BadPolicy
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix, parse_address
from orchestrator.policy.connections import check_rules, ends_of, opening
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import (
    Acl,
    Action,
    Direction,
    Endpoint,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import ICMP, IPV6_FRAGMENT, TCP, UDP
from orchestrator.policy.tcpflags import FlagMatch
from orchestrator.program.blocks import digest
from orchestrator.program.delta import apply
from orchestrator.program.program import Program, Tier

NO_CHECKS = list(HealthCheck)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking, which takes minutes with traces of many packets."""


def openings(policy: Policy, rng: random.Random, most: int) -> list[Packet]:
    """Packets at the corners of a policy that may open connections, each between other ends, in an order of chance."""
    packets = [replace(packet, tcp_flags=0x02 if packet.protocol == TCP else 0) for packet in policy_packets(policy)]
    found = [each for each in dict.fromkeys(packets) if opening(each) and is_sendable(each) and forwarded(policy, each)]
    rng.shuffle(found)
    by_ends = {ends_of(packet): packet for packet in found}
    return list(by_ends.values())[:most]


def is_sendable(packet: Packet) -> bool:
    """Whether there is a frame of it. Of protocol 0 a switch knows no connection."""
    six = packet.family is Family.IPV6
    return packet.protocol != 0 and (not six or packet.protocol not in (*EXTENSION_HEADERS, IPV6_FRAGMENT))


@settings(max_examples=15, deadline=None, phases=PHASES, suppress_health_check=NO_CHECKS)
@given(policies(max_tenants=3, max_rules=5), st.randoms(use_true_random=False))
def test_conversations_pass_as_the_oracle_decides(policy: Policy, rng: random.Random) -> None:
    tracked = trackable(populated(policy))
    domain = TrackedDomain(tracked)
    for first in openings(tracked, rng, 12):
        for packet in conversation(first):
            if not domain.meet(packet, fully=True):
                break


@settings(max_examples=12, deadline=None, phases=PHASES, suppress_health_check=NO_CHECKS)
@given(policies(max_tenants=3, max_rules=5), st.randoms(use_true_random=False))
def test_a_change_holds_for_connections_that_are_open(policy: Policy, rng: random.Random) -> None:
    """Half of the talk under one policy, the other half under the next: as the oracle says, packet by packet.

    Of what is not TCP, an answer may open a connection of its own for the oracle; for switches it stays an answer.
    """
    tracked = trackable(populated(policy))
    domain = TrackedDomain(tracked)
    talks = [list(conversation(first)) for first in openings(tracked, rng, 10)]
    open_ones = [talk for talk in talks if all(domain.meet(packet, fully=True) for packet in talk[:4])]
    domain.load(denying(tracked, but_first=rng.randrange(2)))
    for talk in open_ones:
        for packet in talk[3:5]:
            domain.meet(packet, fully=packet.protocol == TCP)
    domain.load(tracked)
    for talk in open_ones:
        assert domain.meet(talk[4], fully=talk[4].protocol == TCP)


@settings(max_examples=15, deadline=None, phases=PHASES, suppress_health_check=NO_CHECKS)
@given(policies(max_tenants=2, max_rules=4), st.randoms(use_true_random=False))
def test_no_trace_gets_more_through_than_the_oracle_permits(policy: Policy, rng: random.Random) -> None:
    """Packets of chance between few ends, of all flags and in both directions, with errors about what went before."""
    tracked = trackable(populated(policy))
    domain = TrackedDomain(tracked)
    firsts = openings(tracked, rng, 6)
    said = [packet for first in firsts for packet in conversation(first)]
    for _ in range(60):
        if not said:
            break
        packet = rng.choice(said)
        if packet.protocol == TCP:
            packet = replace(packet, tcp_flags=rng.choice((0x02, 0x02, 0x10, 0x12, 0x14, 0x04, 0x11, 0x18, 0x01, 0)))
        if rng.random() < 0.2:
            error = error_from_path(packet, said, rng)
            if error is not None and forwarded(tracked, error):
                domain.meet(error, quoted=packet)
        elif rng.random() < 0.03:
            domain.load(rng.choice((tracked, denying(tracked))))
        else:
            domain.meet(packet)


@settings(max_examples=examples(25), deadline=None, phases=PHASES, suppress_health_check=NO_CHECKS)
@given(policies(max_tenants=3, max_rules=5), st.randoms(use_true_random=False))
def test_conversations_meet_stateless_rules_as_the_oracle_decides(policy: Policy, rng: random.Random) -> None:
    mixed = marked(populated(policy), rng)
    domain = TrackedDomain(mixed)
    for first in openings(mixed, rng, 12):
        for packet in conversation(first):
            if not domain.meet(packet, fully=not domain.half_known(packet)):
                break


@settings(max_examples=examples(25), deadline=None, phases=PHASES, suppress_health_check=NO_CHECKS)
@given(policies(max_tenants=3, max_rules=4), st.randoms(use_true_random=False))
def test_no_trace_gets_more_past_stateless_rules_than_the_oracle_permits(policy: Policy, rng: random.Random) -> None:
    """Marks and actions change on the way: what an end did not know while its rule was stateless, it never knows."""
    whole = populated(policy)
    versions = [trackable(whole), *(marked(whole, rng) for _ in range(3))]
    versions += [denying(each) for each in versions[:2]]
    domain = TrackedDomain(versions[1])
    said = [packet for first in openings(whole, rng, 8) for packet in conversation(first)]
    for place in range(80 if said else 0):
        if place % 12 == 11:
            domain.load(rng.choice(versions))
        packet = rng.choice(said)
        if packet.protocol == TCP and rng.random() < 0.5:
            packet = replace(packet, tcp_flags=rng.choice((0x02, 0x42, 0x10, 0x12, 0x14, 0x04, 0x11, 0x18, 0x01, 0)))
        if rng.random() < 0.2:
            error = error_from_path(packet, said, rng)
            if error is not None and forwarded(whole, error):
                domain.meet(error, quoted=packet)
        else:
            domain.meet(packet)


# ------------------------------------------------------------------------------------------------ single stories


A, B, C = (parse_address(text)[1] for text in ("10.1.0.1", "10.2.0.1", "10.2.0.2"))
SYN, ACK = 0x02, 0x10
RULES_COOKIES = Cookie(Tier.HOST, Kind.RULE).pack() >> 40


def rule(name: str, direction: Direction, **asked: object) -> Rule:
    return Rule(RuleId(name), Action.PERMIT, direction, **asked)  # type: ignore[arg-type]


def policy_of(*rules: tuple[Rule, ...]) -> Policy:
    """A tenant for each list: the first has one endpoint, the second two, B on its own switch and C with A."""
    tenants = []
    for number, mine in enumerate(rules, 1):
        acl = Acl(mine, egress_default=Action.DENY)
        numbers = {each.id: 10 * number + place for place, each in enumerate(mine)}
        prefix = Prefix.parse(f"10.{number}.0.0/16")
        tenants.append(Tenant(TenantId(f"t{number}"), number, (prefix,), acl, numbers))
    ends = [("a", "t1", "10.1.0.1"), ("b", "t2", "10.2.0.1"), ("c", "t2", "10.2.0.2")]
    endpoints = tuple(
        Endpoint(name, TenantId(tenant), name, 0x020000000000 + number, (Prefix.parse(address),))
        for number, (name, tenant, address) in enumerate(ends, 1)
    )
    return Policy(tuple(tenants), return_traffic=ReturnTraffic.TRACKED, endpoints=endpoints)


POLICY = policy_of(
    (rule("out", Direction.EGRESS),),
    (rule("web", Direction.INGRESS, protocol=TCP, destination_ports=(PortRange(80, 80),)),
     rule("dns", Direction.INGRESS, protocol=UDP)),
)  # fmt: skip


def tcp(source: int, destination: int, flags: int, ports: tuple[int, int] = (5000, 80)) -> Packet:
    return Packet(Family.IPV4, source, destination, TCP, *ports, tcp_flags=flags)


OUT = parse_address("198.18.0.1")[1]
PLACES = (ANY, ANY, *(Addresses((Prefix.parse(each),)) for each in ("10.1.0.1", "10.2.0.1", "10.2.0.2")))


def some_rules(rng: random.Random, way: Direction | None = None) -> tuple[Rule, ...]:
    """Up to three rules about few ends, most of them permits, half of them stateless; `way`: of this direction."""

    def one(name: str) -> Rule:
        stateless, protocol = rng.random() < 0.5, rng.choice((None, TCP, TCP, UDP, ICMP))
        flags = rng.choice((None, FlagMatch(SYN, SYN | ACK), FlagMatch(0x40, 0x40), FlagMatch(ACK, ACK)))
        return Rule(
            RuleId(name), Action.DENY if rng.random() < 0.25 else Action.PERMIT, way or rng.choice(list(Direction)),
            protocol=protocol, source=rng.choice(PLACES), destination=rng.choice(PLACES), stateless=stateless,
            tcp_flags=flags if stateless and protocol == TCP else None,
        )  # fmt: skip

    return tuple(one(f"r{place}") for place in range(rng.randrange(4)))


def some_policy(rng: random.Random) -> Policy:
    """Two tenants whose lists permit much, and sometimes an operator's rule."""
    found = policy_of(some_rules(rng), some_rules(rng))
    open_ended = tuple(
        replace(each, acl=replace(each.acl, ingress_default=rng.choice(list(Action)), egress_default=Action.PERMIT))
        for each in found.tenants
    )
    operator = some_rules(rng)[:1]
    return replace(found, tenants=open_ended, operator=operator, operator_numbers={each.id: 90 for each in operator})


@settings(max_examples=examples(120), deadline=None, phases=PHASES, suppress_health_check=NO_CHECKS)
@given(st.integers(0, 1 << 40))
def test_an_end_that_did_not_know_a_connection_passes_nothing_of_it(seed: int) -> None:
    """Few ends that say much to each other, while rules about them come, go, and change their marks."""
    rng = random.Random(seed)
    versions = [some_policy(rng) for _ in range(3)]
    versions.append(without_marks(versions[0]))
    domain = TrackedDomain(versions[0])
    for place in range(70):
        if place % 10 == 9:
            domain.load(rng.choice(versions))
        ends = rng.sample((A, C, B, OUT), 2) if rng.random() < 0.3 else rng.sample((A, C), 2)
        if not forwarded(domain.policy, tcp(*ends, SYN)):
            continue
        ports = rng.choice(((5000, 80), (80, 5000)))
        said = rng.choice((
            tcp(*ends, rng.choice((SYN, SYN | 0x40, SYN | ACK, ACK, ACK | 0x40)), ports),
            tcp(*ends, rng.choice((SYN, ACK)), ports),
            Packet(Family.IPV4, *ends, UDP, *ports),
            Packet(Family.IPV4, *ends, ICMP, icmp_type=rng.choice((8, 0))),
        ))  # fmt: skip
        if rng.random() < 0.2:
            error = error_about(said, rng.choice((said.destination, A, C)))
            if error.source != error.destination:
                domain.meet(error, quoted=said)
        else:
            domain.meet(said)


def without_marks(policy: Policy) -> Policy:
    """The policy of the rules that a connection can be asked for, none of them stateless."""
    tenants = tuple(
        replace(each, acl=replace(each.acl, rules=tuple(replace(one, stateless=False, tcp_flags=None)
                                                       for one in each.acl.rules)))
        for each in policy.tenants
    )  # fmt: skip
    return replace(policy, tenants=tenants, operator=())


@pytest.mark.parametrize("server", [B, C], ids=["two-switches", "one-switch"])
def test_every_packet_of_a_connection_counts_for_the_rules_that_permit_it(server: int) -> None:
    domain = TrackedDomain(POLICY)
    talk = list(conversation(tcp(A, server, SYN)))
    assert all(domain.meet(packet, fully=True) for packet in talk)
    counted: dict[int, int] = {}
    for switch in domain.switches:
        for entry in switch.entries():
            counted[entry.cookie & 0xFFFFFFFFFF] = counted.get(entry.cookie & 0xFFFFFFFFFF, 0) + entry.packets
    assert (counted[10], counted[20]) == (len(talk), len(talk))


@pytest.mark.parametrize("server", [B, C], ids=["two-switches", "one-switch"])
def test_where_there_is_no_room_a_connection_opens_in_no_direction(server: int) -> None:
    domain = TrackedDomain(POLICY)
    for switch in domain.switches:
        switch.most_connections = 1
    asks = [Packet(Family.IPV4, A, server, UDP, port, 53) for port in (1, 2, 3)]
    assert [domain.send(each).arrived for each in asks] == [True, False, False]
    answers = [replace(each, source=server, destination=A, source_port=53, destination_port=each.source_port)
               for each in asks]  # fmt: skip
    assert [domain.send(each).arrived for each in answers] == [True, False, False]
    assert domain.send(asks[0]).arrived
    told = [entry.packets for switch in domain.switches for entry in switch.entries() if entry.cookie == REFUSED]
    assert sum(told) == 2


@pytest.mark.parametrize("server", [B, C], ids=["two-switches", "one-switch"])
def test_a_syn_of_the_other_end_is_asked_about_itself(server: int) -> None:
    """While a SYN is not answered, one of the other end is a connection of its own, which no list permits here.

    Both ends' lists permit the first one in either direction, so whoever asks them about that lets the other pass.
    """
    to_web = {"protocol": TCP, "destination_ports": (PortRange(80, 80),)}
    both = tuple(rule(way.value, way, **to_web) for way in Direction)
    domain = TrackedDomain(policy_of(both, both))
    assert domain.meet(tcp(A, server, SYN))
    assert domain.meet(tcp(A, server, SYN))
    assert not domain.meet(tcp(server, A, SYN, (80, 5000)))
    assert domain.meet(tcp(server, A, SYN | ACK, (80, 5000)), fully=True)


@pytest.mark.parametrize("server", [B, C], ids=["two-switches", "one-switch"])
def test_a_stateless_server_counts_its_packets_and_remembers_nothing(server: int) -> None:
    """The client's end tracks what the server's rules decide alone. Where no end tracks, nothing is looked up."""
    dns = (PortRange(53, 53),)
    served = (
        rule("asked", Direction.INGRESS, protocol=UDP, destination_ports=dns, stateless=True),
        rule("answers", Direction.EGRESS, protocol=UDP, source_ports=dns, stateless=True),
    )
    domain = TrackedDomain(policy_of((rule("out", Direction.EGRESS),), served))
    asks = Packet(Family.IPV4, A, server, UDP, 9, 53)
    talk = [asks, asks, turned(asks), turned(asks), asks]
    assert all(domain.meet(packet, fully=True) for packet in talk)
    counted: dict[int, int] = {}
    for switch in domain.switches:
        hits = [(each.cookie, each.packets) for each in switch.entries()]
        assert all(are_counted(np.array([cookie], np.uint64))[0] for cookie, _ in hits if cookie >> 40 == RULES_COOKIES)
        for cookie, packets in hits:
            if cookie >> 40 == RULES_COOKIES:
                counted[cookie & 0xFF] = counted.get(cookie & 0xFF, 0) + packets
    assert counted == {10: 5, 20: 3, 21: 2}
    outside = Packet(Family.IPV4, OUT, server, UDP, 9, 53)
    before = [dict(switch.connections) for switch in domain.switches]
    assert domain.meet(outside, fully=True)
    assert domain.meet(turned(outside), fully=True)
    assert [dict(switch.connections) for switch in domain.switches] == before


def test_what_leaves_a_packet_to_its_connection_counts_nothing() -> None:
    rule_cookie = Cookie(Tier.HOST, Kind.RULE, 7).pack()
    assert are_counted(np.array([rule_cookie, rule_cookie | LEAVES], np.uint64)).tolist() == [True, False]


@pytest.mark.parametrize("action", list(Action))
def test_an_operators_rule_goes_before_stateless_ones_of_tenants(action: Action) -> None:
    """It is asked about the connection: a segment in the middle of none is dropped, whatever tenants permit alone."""
    alone = policy_of(
        (rule("out", Direction.EGRESS, stateless=True),), (rule("in", Direction.INGRESS, stateless=True),)
    )
    operator = replace(rule("o", Direction.INGRESS, protocol=TCP), action=action)
    domain = TrackedDomain(replace(alone, operator=(operator,), operator_numbers={"o": 90}))
    for server in (B, C):
        assert domain.meet(Packet(Family.IPV4, A, server, UDP, 5, 6), fully=True)
        assert not domain.meet(tcp(A, server, ACK), fully=True)
        assert domain.meet(tcp(A, server, SYN), fully=True) is (action is Action.PERMIT)


def test_protocol_0_passes_by_stateless_rules_alone() -> None:
    """A switch shows nothing of a connection of it, so that a deny by addresses would not meet it."""
    both = (rule("out", Direction.EGRESS), rule("in", Direction.INGRESS))
    odd = Packet(Family.IPV4, A, C, 0)
    assert not TrackedDomain(policy_of(both, both)).meet(odd)
    alone = tuple(replace(each, protocol=0, stateless=True) for each in both)
    assert TrackedDomain(policy_of(alone, alone)).meet(odd, fully=True)
    assert not TrackedDomain(policy_of(alone, both)).meet(odd)


def test_nothing_is_lifted_where_rules_are_stateless() -> None:
    cache = CompileCache()
    policy = policy_of((rule("out", Direction.EGRESS, stateless=True),), (rule("web", Direction.INGRESS),))
    cache.compile_program(policy, domain="d1", generation=1, lifted=[LiftedRule(TenantId("t2"), RuleId("web"))])
    (lift,) = cache.lifts
    assert not lift.parts
    assert "stateless" in lift.because


def test_a_later_fragment_of_no_connection_is_dropped() -> None:
    domain = TrackedDomain(policy_of((rule("out", Direction.EGRESS),), (rule("all", Direction.INGRESS),)))
    assert not domain.send(Packet(Family.IPV4, A, B, UDP, later_fragment=True)).arrived


def test_unfit_rules_are_refused_with_their_place() -> None:
    odd = rule("odd", Direction.INGRESS, protocol=TCP, established=True)
    with pytest.raises(BadPolicy) as refused:
        compile_host(policy_of((), (POLICY.tenants[1].acl.rules[0], odd)), domain="d1", generation=1)
    assert refused.value.place == "tenants[t2].acl.rules[1]"


def with_one_other_list(policy: Policy, rng: random.Random) -> Policy:
    """The policy with the rules of one tenant in another order, some without their marks; the others are the same."""
    place = rng.randrange(len(policy.tenants))
    tenant = policy.tenants[place]
    rules = [replace(each, stateless=False) if fits(each) and rng.random() < 0.3 else each for each in tenant.acl.rules]
    rng.shuffle(rules)
    tenants = list(policy.tenants)
    tenants[place] = replace(tenant, acl=replace(tenant.acl, rules=tuple(rules)))
    return replace(policy, tenants=tuple(tenants))


def fits(rule: Rule) -> bool:
    """Whether a connection can be asked for a rule without its mark."""
    try:
        check_rules([replace(rule, stateless=False)], "rules")
    except BadPolicy:
        return False
    return True


@settings(max_examples=examples(25), deadline=None, phases=PHASES, suppress_health_check=NO_CHECKS)
@given(
    policies(max_tenants=2, max_rules=5), st.lists(st.sampled_from(list(ReturnTraffic)), min_size=2, max_size=6),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_a_cache_gives_what_compiling_from_scratch_gives_and_it_is_proven(
    policy: Policy, settings_: list[ReturnTraffic], rng: random.Random
) -> None:
    """Also where the setting changes to and fro, and lists with it, and some of their rules are stateless."""
    cache = CompileCache()
    turned = trackable(policy)
    held: Program | None = None
    proof: Proof | None = None
    for number, setting in enumerate(settings_, 1):
        if number > 1 and rng.random() < 0.3:
            turned = with_one_other_list(turned, rng)
        else:
            base = marked(policy, rng) if rng.random() < 0.5 else trackable(policy)
            turned = denying(base) if number % 2 else base
        now = replace(turned, return_traffic=setting)
        program = cache.compile_program(now, domain="d1", generation=number)
        scratch = compile_host(now, domain="d1", generation=number).digest
        assert program.digest == scratch == digest(program.flows, program.ports)
        if held is not None:
            assert cache.change is not None
            assert apply(held, cache.change).blocks.digest(program.ports) == scratch
            assert proof is not None
            if proof.must_begin_anew(now, cache.change.removed, cache.change.added):
                proof = prove(now, program.flows)
            else:
                proof = proof.after(now, cache.change.removed, cache.change.added, program.blocks.of_tenant)
        else:
            proof = prove(now, program.flows)
        held = program
