"""The measured lists decide the traffic where they are said to, and lifting changes nothing of it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.bench.promotion.suite import LIFTED
from orchestrator.bench.traffic.addresses import (
    ECHO,
    EXCLUDED,
    SERVER,
    SERVER_MAC,
    TENANT,
    THROUGHPUT,
    UNSERVED,
    WEB,
    Clients,
    policy,
)
from orchestrator.bench.traffic.line import RIGHT
from orchestrator.bench.traffic.rules import NO_RULES, TRAFFIC_RULES, Kind, Listed, Position
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.policy.addresses import ANY, Family
from orchestrator.policy.model import Action, Direction, Packet
from orchestrator.policy.oracle import decide
from orchestrator.policy.ports import EVERY_PORT
from orchestrator.policy.protocols import TCP, UDP

LISTS = st.builds(Listed, st.integers(10, 60), st.sampled_from(Position), st.sampled_from(Kind))
SERVED = ((TCP, WEB), (TCP, THROUGHPUT), (UDP, THROUGHPUT), (UDP, ECHO))
PORTS = st.integers(1024, 65535)


def packet(source: int, protocol: int, source_port: int, port: int) -> Packet:
    return Packet(Family.IPV4, source, SERVER.network, protocol, source_port, port)


@given(LISTS, st.sampled_from(Clients), st.integers(0, 2**32 - 1), PORTS)
def test_the_traffic_is_decided_by_its_own_rules(listed: Listed, clients: Clients, draw: int, source_port: int) -> None:
    wanted = policy(listed.acl(), server_port=RIGHT)
    source = clients.value.network | draw & ~clients.value.mask & 0xFFFFFFFE
    for (protocol, port), rule in zip(((TCP, WEB), (UDP, THROUGHPUT), (UDP, ECHO)), TRAFFIC_RULES, strict=False):
        said = decide(wanted, packet(source, protocol, source_port, port))
        assert said.permitted
        assert rule.id in {each.rule for each in said.steps if each.direction is Direction.INGRESS}
    assert not decide(wanted, packet(source, UDP, source_port, UNSERVED)).permitted
    for protocol, port in SERVED:
        assert not decide(wanted, packet(EXCLUDED.network, protocol, source_port, port)).permitted


@given(LISTS)
def test_a_list_is_as_long_as_asked_and_has_its_rules_in_place(listed: Listed) -> None:
    acl = listed.acl()
    assert len(acl.rules) == listed.rules
    at = [acl.rules.index(rule) for rule in TRAFFIC_RULES]
    assert at == list(range(at[0], at[0] + len(at)))
    before, after = at[0] - 4, listed.rules - 1 - at[-1]
    assert {
        Position.FIRST: before == 0, Position.LAST: after == 0, Position.MIDDLE: abs(before - after) <= 1
    }[listed.position]  # fmt: skip
    assert {rule.action for rule in acl.rules} == set(Action)


def test_lists_of_a_kind_look_at_what_it_says() -> None:
    others = {kind: [r for r in Listed(400, kind=kind).acl().rules if r.id.startswith("r")] for kind in Kind}
    named = {kind: sum(r.source_ports != EVERY_PORT for r in rules) for kind, rules in others.items()}
    assert all(rule.source == ANY for rule in others[Kind.NO_SOURCES])
    assert named[Kind.NO_SOURCES] == 0
    assert 0 < named[Kind.FEW_SOURCE_PORTS] < 130
    assert named[Kind.FIVE_TUPLES] > 190


def test_a_longer_list_holds_the_shorter_ones_rules() -> None:
    short, long = (Listed(rules, Position.FIRST).acl().rules for rules in (100, 200))
    assert long[:100] == short
    assert Listed(0).acl() == NO_RULES


@settings(max_examples=10)
@given(LISTS)
def test_every_rule_for_the_traffic_can_be_lifted_with_its_answers(listed: Listed) -> None:
    cache = CompileCache()
    cache.compile_program(policy(listed.acl(), server_port=RIGHT), domain="d", generation=1, lifted=LIFTED)
    assert [(lift.rule, lift.form is not None, lift.replies) for lift in cache.lifts] == [
        (rule, True, True) for rule in LIFTED
    ]


def test_other_tenants_are_where_they_are_said_to_be() -> None:
    wanted = policy(NO_RULES, server_port=RIGHT)
    owners = {endpoint.tenant: endpoint for endpoint in wanted.endpoints}
    assert owners[TENANT].port == RIGHT
    assert owners[TENANT].mac == SERVER_MAC
    assert len({endpoint.mac for endpoint in wanted.endpoints}) == len(wanted.endpoints) == len(wanted.tenants)
    for clients in (Clients.INSIDE, Clients.NEIGHBOURS):
        inside = [t for t in wanted.tenants if any(clients.value.contains(prefix) for prefix in t.prefixes)]
        owned = sum(1 << (32 - prefix.length) for tenant in inside for prefix in tenant.prefixes)
        assert owned * 2 == 1 << (32 - clients.value.length)
        odd = [prefix.network & 1 for tenant in inside for prefix in owners[tenant.id].prefixes]
        assert odd == [1] * len(inside)
