"""Switches that track connections agree with the oracle, trace by trace and rule by rule."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from compiled_domain import forwarded, populated
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from strategies import policies
from tracked_domain import TrackedDomain, conversation, denying, error_about, trackable

from orchestrator.compile.equivalence import Proof, prove
from orchestrator.compile.host import CompileCache, compile_host
from orchestrator.compile.pipelines.tracked import REFUSED
from orchestrator.enforce.drivers.openflow.frames import EXTENSION_HEADERS
from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Family, Prefix, parse_address
from orchestrator.policy.connections import ends_of, opening
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
from orchestrator.policy.protocols import IPV6_FRAGMENT, TCP, UDP
from orchestrator.program.delta import apply
from orchestrator.program.digest import digest
from orchestrator.program.program import Program

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
    six = packet.family is Family.IPV6
    return not six or packet.protocol not in (*EXTENSION_HEADERS, IPV6_FRAGMENT)


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
            routers = [each.destination for each in said if each.family is packet.family]
            error = error_about(packet, rng.choice((packet.destination, rng.choice(routers))))
            if error.source != error.destination and forwarded(tracked, error):
                domain.meet(error, quoted=packet)
        elif rng.random() < 0.03:
            domain.load(rng.choice((tracked, denying(tracked))))
        else:
            domain.meet(packet)


# ------------------------------------------------------------------------------------------------ single stories


A, B, C = (parse_address(text)[1] for text in ("10.1.0.1", "10.2.0.1", "10.2.0.2"))
SYN, ACK = 0x02, 0x10


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


def test_a_later_fragment_of_no_connection_is_dropped() -> None:
    domain = TrackedDomain(policy_of((rule("out", Direction.EGRESS),), (rule("all", Direction.INGRESS),)))
    assert not domain.send(Packet(Family.IPV4, A, B, UDP, later_fragment=True)).arrived


def test_unfit_rules_are_refused_with_their_place() -> None:
    odd = rule("odd", Direction.INGRESS, protocol=TCP, established=True)
    with pytest.raises(BadPolicy) as refused:
        compile_host(policy_of((), (POLICY.tenants[1].acl.rules[0], odd)), domain="d1", generation=1)
    assert refused.value.place == "tenants[t2].acl.rules[1]"


@settings(max_examples=25, deadline=None, phases=PHASES, suppress_health_check=NO_CHECKS)
@given(policies(max_tenants=2, max_rules=5), st.lists(st.sampled_from(list(ReturnTraffic)), min_size=2, max_size=5))
def test_a_cache_gives_what_compiling_from_scratch_gives_and_it_is_proven(
    policy: Policy, settings_: list[ReturnTraffic]
) -> None:
    """Also where the setting changes to and fro, and lists with it."""
    cache = CompileCache()
    held: Program | None = None
    proof: Proof | None = None
    for number, setting in enumerate(settings_, 1):
        turned = denying(trackable(policy)) if number % 2 else trackable(policy)
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
