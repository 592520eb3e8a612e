"""iptables and nftables that track connections agree with the oracle, trace by trace and rule by rule."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from compiled_domain import populated
from enforce.contract_filters import SHOP
from enforce.contract_filters import policy as contract_policy
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import policies
from tracked_domain import conversation, denying, error_from_path, trackable
from tracked_filter import TrackedFilter, firsts

from orchestrator.bench.traffic.addresses import alone
from orchestrator.bench.traffic.rules import Listed
from orchestrator.compile.nftables import plan
from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import ANY, Family
from orchestrator.policy.model import Action, Direction, Packet, Policy, ReturnTraffic, Rule, RuleId
from orchestrator.policy.protocols import TCP, UDP

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking, which takes minutes with traces of many packets."""
FLAGS = (0x02, 0x02, 0x10, 0x12, 0x14, 0x04, 0x11, 0x18, 0x01, 0)


@pytest.fixture(params=["nftables", "iptables"])
def plane(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@settings(max_examples=examples(60), deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=3, max_rules=6), st.randoms(use_true_random=False))
def test_conversations_pass_as_the_oracle_decides(plane: str, policy: Policy, rng: random.Random) -> None:
    tracked = trackable(populated(policy))
    domain = TrackedFilter(plane, tracked)
    for first in firsts(tracked, rng, 40):
        for packet in conversation(first):
            if not domain.meet(packet, fully=True):
                break


@settings(max_examples=examples(40), deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=3, max_rules=6), st.randoms(use_true_random=False))
def test_a_change_holds_for_connections_that_are_open(plane: str, policy: Policy, rng: random.Random) -> None:
    """Half of the talk under one policy, the other half under the next: as the oracle says, packet by packet."""
    tracked = trackable(populated(policy))
    domain = TrackedFilter(plane, tracked)
    talks = [list(conversation(first)) for first in firsts(tracked, rng, 25)]
    open_ones = [talk for talk in talks if all(domain.meet(packet, fully=True) for packet in talk[:4])]
    domain.load(denying(tracked, but_first=rng.randrange(2)))
    for talk in open_ones:
        for packet in talk[3:5]:
            domain.meet(packet, fully=packet.protocol == TCP)
    domain.load(tracked)
    for talk in open_ones:
        assert domain.meet(talk[4], fully=talk[4].protocol == TCP)


def test_conversations_pass_through_a_list_that_nftables_looks_up_by_protocol_and_address() -> None:
    """Only a long list is; a rule about ports names its protocol behind such a look-up, too."""
    acl, rng = Listed(200).acl(), random.Random(7)
    domain = TrackedFilter("nftables", trackable(alone(acl)))
    few = trackable(alone(replace(acl, rules=tuple(rng.sample(acl.rules, 12)))))
    met = [domain.meet(packet) for first in firsts(few, rng, 40) for packet in conversation(first)]
    assert {*met} == {False, True}


@settings(max_examples=examples(60), deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=2, max_rules=5), st.randoms(use_true_random=False))
def test_no_trace_gets_more_through_than_the_oracle_permits(plane: str, policy: Policy, rng: random.Random) -> None:
    """Packets of chance between few ends, of all flags and in both directions, with errors about what went before."""
    tracked = trackable(populated(policy))
    domain = TrackedFilter(plane, tracked)
    said = [packet for first in firsts(tracked, rng, 8) for packet in conversation(first)]
    for _ in range(150 if said else 0):
        packet = rng.choice(said)
        if packet.protocol == TCP:
            packet = replace(packet, tcp_flags=rng.choice(FLAGS))
        if rng.random() < 0.25:
            if error := error_from_path(packet, said, rng):
                domain.meet(error, quoted=packet)
        elif rng.random() < 0.03:
            domain.load(rng.choice((tracked, denying(tracked))))
        elif rng.random() < 0.05:
            domain.meet(replace(packet, **{rng.choice(("source_port", "destination_port")): 0}))
        else:
            domain.meet(packet)


def test_a_connection_that_the_other_end_opened_anew_counts_for_its_rule(plane: str) -> None:
    """The kernel knows the newer opening alone; the oracle knows both, and names the older."""
    ids = [rule.id for rule in SHOP]
    rules = [Rule(name, Action.PERMIT, way, protocol=TCP) for name, way in zip(ids, Direction, strict=False)]
    domain = TrackedFilter(plane, trackable(contract_policy(rules)))
    comes = Packet(Family.IPV4, 0xC0000201, 0xC633640A, TCP, 2001, 80)
    goes = Packet(Family.IPV4, comes.destination, comes.source, TCP, 80, 2001)
    talk = ((comes, 0x02), (goes, 0x14), (goes, 0x02), (comes, 0x12), (goes, 0x10))
    assert all(domain.meet(replace(packet, tcp_flags=flags)) for packet, flags in talk)


@pytest.mark.usefixtures("eager")
@settings(max_examples=examples(60), deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=1, max_rules=12), st.randoms(use_true_random=False))
def test_nftables_with_maps_for_every_address(policy: Policy, rng: random.Random) -> None:
    tracked = trackable(populated(policy))
    domain = TrackedFilter("nftables", tracked)
    for first in firsts(tracked, rng, 60):
        for packet in list(conversation(first))[:4]:
            if not domain.meet(packet, fully=True):
                break


@pytest.mark.usefixtures("eager")
@settings(max_examples=examples(60), deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=1, max_rules=6), st.randoms(use_true_random=False))
def test_nftables_asks_first_for_addresses_that_are_shut_out(policy: Policy, rng: random.Random) -> None:
    tracked = trackable(populated(_shut_out(policy, rng)))
    domain = TrackedFilter("nftables", tracked)
    for first in firsts(tracked, rng, 60):
        for packet in list(conversation(first))[:4]:
            if not domain.meet(packet, fully=True):
                break


def _shut_out(policy: Policy, rng: random.Random) -> Policy:
    """The policy of one tenant with some of its rules' addresses shut out before these rules."""
    (tenant,) = policy.tenants
    rules = tenant.acl.rules
    ends = [(rule, *pair) for rule in rules for pair in ((rule.source, ANY), (ANY, rule.destination))]
    denies = tuple(
        Rule(RuleId(f"out{place}"), Action.DENY, rule.direction, source=source, destination=destination)
        for place, (rule, source, destination) in enumerate(ends)
        if (source, destination) != (ANY, ANY) and rng.random() < 0.3
    )
    numbers: dict[str, int] = {rule.id: 50 + place for place, rule in enumerate(denies)}
    numbers.update(tenant.rule_numbers)
    acl = replace(tenant.acl, rules=(*denies, *rules))
    return replace(policy, tenants=(replace(tenant, acl=acl, rule_numbers=numbers),))


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of a few rules are planned like lists of thousands."""
    for name, value in (("FEW_ROWS", 1), ("TABLE_ROWS", 2), ("SPLIT_ROWS", 2), ("LOOKUP", 0)):
        monkeypatch.setattr(plan, name, value)


def test_a_full_table_opens_no_direction(plane: str) -> None:
    domain = TrackedFilter(plane, trackable(contract_policy()))
    domain.connections.most = 1
    asks = [Packet(Family.IPV4, 0xC0000201, 0xC633640A, UDP, port, 53) for port in (2001, 2002)]
    assert [domain.send(each).accepted for each in asks] == [True, False]
    answers = [replace(each, source=each.destination, destination=each.source, source_port=53,
                       destination_port=each.source_port) for each in asks]  # fmt: skip
    assert [domain.send(each).accepted for each in answers] == [True, False]


def test_rules_that_no_connection_can_be_asked_for_are_refused_with_their_place(plane: str) -> None:
    odd = replace(contract_policy(), return_traffic=ReturnTraffic.TRACKED)
    with pytest.raises(BadPolicy, match="tracked") as refused:
        TrackedFilter(plane, odd)
    assert refused.value.place == "tenants[shop].acl.rules[8]"
