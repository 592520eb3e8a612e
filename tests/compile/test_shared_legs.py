"""Several endpoints behind one port: each is known by MAC address and address, and what is not known is dropped.

The laws: across a leg's port the switches do what the oracle says, hit by hit; between two endpoints of a leg, and for
whoever lies about MAC address or address, nothing passes and no rule counts it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from compiled_domain import UPLINK_PORT, Domain, check, endpoint_at, forwarded
from flow_interpreter import Fields, Journey, Switch, fields_of
from flow_tables import check_change
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from law_examples import examples
from lifted_shop import policy, rule
from strategies import policies

from orchestrator.compile.hostprogram import CompileCache, compile_host
from orchestrator.compile.openflow import oxm
from orchestrator.compile.pipelines import structure
from orchestrator.compile.pipelines.host import GATEWAY_MAC, SERVICES_PORT
from orchestrator.enforce.drivers.openflow.resolve import resolve
from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Family, Prefix, aggregate
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.model import Direction, Endpoint, Packet, Policy, TenantId
from orchestrator.policy.protocols import ICMPV6, TCP
from orchestrator.program.flows import Flow
from orchestrator.program.wire import encode_program

FEW = settings(
    max_examples=20, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
STRANGER = 0x02FF00000001
EVERYBODY = (1 << 48) - 1


def legged(world: Policy, packets: Iterable[Packet]) -> Policy:
    """The policy with four endpoints a tenant, three of them behind one leg, that have all addresses that packets name.

    Of every second tenant the leg is on the other switch.
    """
    named = {(packet.family, address) for packet in packets for address in (packet.source, packet.destination)}
    endpoints: list[Endpoint] = []
    for index, tenant in enumerate(world.tenants):
        mine = sorted((each for each in named if tenant.owns(*each)), key=lambda each: (each[0].value, each[1]))
        parts = [tuple(Prefix(family, address, family.bits) for family, address in mine[part::4]) for part in range(4)]
        macs = itertools.count(0x020000000000 + 16 * index)
        found = [
            Endpoint(f"t{index}e{part}", tenant.id, f"t{index}leg", next(macs), prefixes, shared=True)
            for part, prefixes in enumerate(parts[:3])
            if prefixes
        ]
        if parts[3]:
            alone = Endpoint(f"t{index}alone", tenant.id, f"t{index}alone", next(macs), parts[3])
            found.insert(len(found) * (index % 2), alone)
        endpoints += found
    return replace(world, endpoints=tuple(endpoints))


def check_legs(world: Policy) -> None:
    """Both laws, for every corner packet of a policy."""
    packets = policy_packets(world)
    domain = Domain(legged(world, packets))
    for packet in packets:
        sender = endpoint_at(domain.policy, packet.family, packet.source)
        receiver = endpoint_at(domain.policy, packet.family, packet.destination)
        if sender is None and receiver is None:
            continue
        if forwarded(domain.policy, packet):
            check(domain, packet)
        if sender is not None and sender.shared:
            for fields in lies_and_detours(domain, packet, sender, receiver):
                check_dropped(domain.switches[domain.home[sender.port]].send(fields))


def lies_and_detours(domain: Domain, packet: Packet, sender: Endpoint, receiver: Endpoint | None) -> Iterable[Fields]:
    """A packet of an endpoint behind a leg, sent as it must not be; and as it is, where its receiver is there, too."""
    others = [each.mac for each in domain.policy.endpoints if each.name != sender.name]
    port = domain.number[sender.port]
    for mac in (*others, STRANGER, GATEWAY_MAC):
        yield fields_of(packet, port, mac, GATEWAY_MAC)
    for mac in (*others, STRANGER, EVERYBODY):
        yield fields_of(packet, port, sender.mac, mac)
    if receiver is not None and receiver.port == sender.port:
        yield fields_of(packet, port, sender.mac, GATEWAY_MAC)


def check_dropped(journey: Journey) -> None:
    """Nothing leaves, and no row of a list is hit."""
    assert not journey.out, journey
    assert not any(cookie >> 48 & 0xF for cookie in journey.cookies), journey


@FEW
@given(policies(max_tenants=2, max_rules=4))
def legs_law(world: Policy) -> None:
    check_legs(world)


def test_both_laws_hold() -> None:
    legs_law()


def without(row: Flow, *names: str) -> Flow:
    """The row, without some terms of its match."""
    return replace(row, match=oxm.pack(term for term in oxm.unpack(row.match) if term.field.name not in names))


def row_without(maker: str, *names: str) -> Any:
    made = getattr(structure, maker)
    return lambda *given: without(made(*given), *names)


def asked_last(name: str) -> Any:
    made = getattr(structure, name)
    return lambda *given: replace(made(*given), priority=1)


def delivered_to_the_first() -> Any:
    made = structure._receiver_row
    return lambda endpoint, *given: made(replace(endpoint, mac=endpoint.mac & ~0xF), *given)


MUTANTS = {
    "any MAC address sends": ("_sender_row", lambda: row_without("_sender_row", "eth_src")),
    "frames for others come in": ("_sender_row", lambda: row_without("_sender_row", "eth_dst")),
    "to one's own leg": ("_same_leg_row", lambda: asked_last("_same_leg_row")),
    "to the leg's first": ("_receiver_row", delivered_to_the_first),
}


@pytest.mark.parametrize("bug", MUTANTS)
def test_the_laws_kill(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    name, mutant = MUTANTS[bug]
    monkeypatch.setattr(structure, name, mutant())
    with pytest.raises(AssertionError):
        legs_law()


# ---------------------------------------------------------------------------------------------------- neighbours

LEG, DOOR, SERVICES = 10, 11, 12
SHOP = TenantId("shop")


def placed(name: str, mac: int, *prefixes: str, port: str = "inside", shared: bool = True) -> Endpoint:
    return Endpoint(name, SHOP, port, mac, tuple(map(Prefix.parse, prefixes)), shared)


A = placed("a", 0x0A, "10.29.4.2", "10.29.4.3", "2001:db8::2")
B = placed("b", 0x0B, "10.29.4.4", "2001:db8::4")
C = placed("c", 0x0C, "10.29.4.5", "2001:db8::5", port="door", shared=False)


def shop(*endpoints: Endpoint) -> Policy:
    """A shop whose lists permit everything."""
    rules = [rule("in", "permit", protocol=None), rule("out", "permit", protocol=None, direction=Direction.EGRESS)]
    world = policy(*rules, operator=())
    own = (Prefix.parse("10.29.0.0/16"), Prefix.parse("2001:db8::/48"))
    tenants = tuple(replace(each, prefixes=own) if each.id == SHOP else each for each in world.tenants)
    return replace(world, endpoints=endpoints, tenants=tenants)


def switch(*endpoints: Endpoint) -> Switch:
    program = compile_host(shop(*endpoints), domain="d1", generation=1)
    ports = {"up0": UPLINK_PORT, "inside": LEG, "door": DOOR, SERVICES_PORT: SERVICES}
    return Switch(resolve(program.flows, program.ports, ports, "up0"))


def first(endpoint: Endpoint, family: Family) -> int:
    return next(each.network for each in endpoint.prefixes if each.family is family)


def questions(asker: Endpoint, mac: int, target: dict[Family, int]) -> Iterable[Fields]:
    """An ARP request and a solicitation of an endpoint, from a MAC address."""
    four, six = Family.IPV4, Family.IPV6
    yield {
        "in_port": LEG, "eth_src": mac, "eth_dst": EVERYBODY, "vlan_vid": 0, "eth_type": 0x0806, "arp_op": 1,
        "arp_spa": first(asker, four), "arp_tpa": target[four], "arp_sha": mac, "arp_tha": 0,
    }  # fmt: skip
    asked = Packet(six, first(asker, six), 0xFF02 << 112 | 1, ICMPV6, icmp_type=135)
    yield fields_of(asked, LEG, mac, 0x3333FF000002) | {"nd_target": target[six], "nd_sll": mac}


def firsts(endpoint: Endpoint) -> dict[Family, int]:
    return {family: first(endpoint, family) for family in Family}


def test_neighbours_of_a_leg_answer_for_themselves() -> None:
    held = switch(A, B, C)
    for target in (firsts(A), firsts(B), {Family.IPV4: A.prefixes[1].network, Family.IPV6: first(B, Family.IPV6)}):
        for asked in questions(A, A.mac, target):
            assert held.send(asked).out == [], "the segment's own question"
    for target in (firsts(C), {Family.IPV4: 0xA9FE0101, Family.IPV6: 0xFE80 << 112 | 1}):
        for asker in (A, B):
            for asked in questions(asker, asker.mac, target):
                [(port, answer)] = held.send(asked).out
                assert (port, answer["eth_src"], answer["eth_dst"]) == (LEG, GATEWAY_MAC, asker.mac)


def test_questions_in_the_name_of_others_are_not_answered() -> None:
    held = switch(A, B, C)
    for asker, mac in ((A, B.mac), (B, A.mac), (A, STRANGER), (C, A.mac), (C, C.mac)):
        for asked in questions(asker, mac, {Family.IPV4: 0xA9FE0101, Family.IPV6: 0xFE80 << 112 | 1}):
            assert held.send(asked).out == []


@pytest.mark.parametrize(
    ("name", "mutant", "law"),
    [
        ("_own_address_row", lambda: asked_last("_own_address_row"), test_neighbours_of_a_leg_answer_for_themselves),
        (
            "_request_row", lambda: row_without("_request_row", "eth_src", "arp_sha"),
            test_questions_in_the_name_of_others_are_not_answered,
        ),
        (
            "_solicitation_row", lambda: row_without("_solicitation_row", "eth_src", "nd_sll"),
            test_questions_in_the_name_of_others_are_not_answered,
        ),
        ("matched_prefixes", lambda: lambda endpoint: aggregate(endpoint.prefixes),
         test_neighbours_of_a_leg_answer_for_themselves),
    ],
)  # fmt: skip
def test_laws_of_neighbours_kill(monkeypatch: pytest.MonkeyPatch, name: str, mutant: Any, law: Any) -> None:
    monkeypatch.setattr(structure, name, mutant())
    with pytest.raises(AssertionError):
        law()


def test_a_host_offers_nothing_behind_a_shared_leg() -> None:
    """On the leg's segment, somebody else does, and everybody hears what is asked there."""
    held = switch(A, placed("one", 0x0D, "10.29.4.9"), C)
    asked = Packet(Family.IPV4, 0, (1 << 32) - 1, 17, 68, 67)
    assert held.send(fields_of(asked, LEG, 0x0D, EVERYBODY)).out == []
    [(port, _)] = held.send(fields_of(asked, DOOR, C.mac, EVERYBODY)).out
    assert port == SERVICES


def test_nobody_outside_speaks_for_an_endpoint_behind_a_leg() -> None:
    held = switch(A, B, C)
    for source, arrives in ((0xC0000207, True), (first(A, Family.IPV4), False), (first(B, Family.IPV4), False)):
        sent = Packet(Family.IPV4, source, first(B, Family.IPV4), TCP, 40000, 80, tcp_flags=2)
        out = held.send(fields_of(sent, UPLINK_PORT, GATEWAY_MAC, GATEWAY_MAC)).out
        assert [(port, seen["eth_dst"]) for port, seen in out] == ([(LEG, B.mac)] if arrives else [])


# --------------------------------------------------------------------------------------------------- declaration


@pytest.mark.parametrize(
    ("beside", "place"),
    [
        (placed("b", 0x0B, "10.29.4.4", shared=False), "endpoints[1].port"),
        (placed("b", 0x0A, "10.29.4.4"), "endpoints[1].mac"),
        (placed("b", 0x0B, "10.29.4.3"), "endpoints[1].prefixes"),
        (placed("b", 0x0B, "10.29.4.4", "10.29.8.0/24"), "endpoints[1].prefixes[1]"),
        (replace(placed("b", 0x0B, "10.30.0.9"), tenant=TenantId("inn")), "endpoints[1].tenant"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_endpoints_that_no_leg_can_tell_apart_are_refused(beside: Endpoint, place: str, turned: bool) -> None:
    cache = CompileCache()
    compile_host(shop(A), domain="d1", generation=1, cache=cache)
    with pytest.raises(BadPolicy) as caught:
        compile_host(shop(A, beside), domain="d1", generation=1, cache=cache if turned else None)
    assert caught.value.place == place
    compile_host(shop(A, B), domain="d1", generation=1, cache=cache)


def test_a_port_is_not_shared_by_accident() -> None:
    one, other = (replace(each, shared=False) for each in (A, B))
    for pair in ((one, other), (A, other), (one, B)):
        with pytest.raises(BadPolicy) as caught:
            switch(*pair)
        assert caught.value.place == "endpoints[1].port"


POOL = (
    A, replace(A, mac=0x1A), replace(A, port="third"), replace(A, port="door", shared=False), B, C,
    replace(B, shared=False, port="fourth"), placed("d", 0x0D, "10.29.4.9"), placed("e", 0x0E, "10.29.4.10"),
)  # fmt: skip


@st.composite
def crowds(draw: st.DrawFn) -> Policy:
    """Endpoints that may be together: one of each name, and ports that are shared or one endpoint's."""
    chosen: dict[str, Endpoint] = {}
    for each in draw(st.lists(st.sampled_from(POOL), max_size=6)):
        rest = [other for name, other in chosen.items() if name != each.name and other.port == each.port]
        if not rest or (each.shared and all(other.shared for other in rest)):
            chosen[each.name] = each
    return shop(*(chosen[name] for name in sorted(chosen)))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(crowds(), min_size=2, max_size=6))
def test_coming_and_going_behind_a_leg_leads_to_the_program_from_scratch(story: list[Policy]) -> None:
    cache, before = CompileCache(), None
    for world in story:
        program = compile_host(world, domain="d1", generation=1, cache=cache)
        assert encode_program(program) == encode_program(compile_host(world, domain="d1", generation=1))
        check_change(before, program, cache.change)
        before = program
