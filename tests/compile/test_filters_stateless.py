"""nftables carries stateless rules out beside tracked ones, as the oracle says: packet by packet and rule by rule."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import tracked_filter
from compiled_domain import populated
from enforce.contract_filters import BANK, ports
from enforce.contract_filters import policy as contract_policy
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import policies
from tracked_domain import answers_half_known, conversation, denying, error_from_path, marked, trackable
from tracked_filter import TrackedFilter, decides_alone, firsts

from orchestrator.compile.filters import filterlists
from orchestrator.compile.nftables import nftables_script, plan
from orchestrator.enforce.drivers.filters.fakeconnections import NOTHING_SEEN
from orchestrator.errors import BadPolicy
from orchestrator.policy.addresses import Family
from orchestrator.policy.connections import ends_of
from orchestrator.policy.model import Acl, Action, Direction, Packet, Policy, ReturnTraffic, Rule, RuleId
from orchestrator.policy.protocols import TCP, UDP
from orchestrator.policy.tcpflags import FlagMatch, TcpFlag

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking, which takes minutes with traces of many packets."""
FLAGS = (0x02, 0x02, 0x10, 0x12, 0x14, 0x04, 0x11, 0x18, 0x01, 0)


def whole(policy: Policy) -> Policy:
    """The policy with rules that look at no fragments, which filters refuse."""
    tenants = tuple(
        replace(each, acl=replace(each.acl, rules=tuple(replace(rule, fragments=False) for rule in each.acl.rules)))
        for each in policy.tenants
    )
    return replace(policy, tenants=tenants, operator=tuple(replace(rule, fragments=False) for rule in policy.operator))


class Talks:
    """Conversations over a filter, held to the oracle; which of them the filter saw with gaps."""

    def __init__(self, domain: TrackedFilter) -> None:
        self.domain = domain
        self.alone = 0
        self._gaps: set[object] = set()

    def say(self, packet: Packet) -> bool:
        """Send a packet: nothing less than the oracle permits may pass, but for what the filter is stricter about.

        It is about connections of which it did not see all packets, about answers at an end that does not know the
        connection, and about protocol 0. What is decided alone makes no entry.
        """
        alone = decides_alone(self.domain.policy, packet)
        if alone:
            self._gaps.add(ends_of(packet))
        is_strict = not alone and (
            ends_of(packet) in self._gaps or answers_half_known(packet, self.domain.known) or not packet.protocol
        )
        entries = self.domain.connections.statistics()
        passed = self.domain.meet(packet, fully=not is_strict)
        assert not alone or self.domain.connections.statistics() == entries, "no state is made"
        self.alone += alone
        return passed


def hold_conversations(policy: Policy, rng: random.Random, most: int = 40) -> int:
    """Hold what ends say to each other through a filter to the oracle; return how much was decided alone."""
    talks = Talks(TrackedFilter("nftables", policy))
    for first in firsts(policy, rng, most):
        for packet in conversation(first):
            if not talks.say(packet):
                break
    return talks.alone


def hold_trace(states: Sequence[Policy], rng: random.Random, turns: int) -> None:
    """Hold packets of chance between few ends, while the policy changes."""
    domain = TrackedFilter("nftables", states[0])
    said = [packet for first in firsts(states[0], rng, 8) for packet in conversation(first)]
    for _ in range(turns if said else 0):
        packet = rng.choice(said)
        if packet.protocol == TCP:
            packet = replace(packet, tcp_flags=rng.choice(FLAGS))
        if rng.random() < 0.2:
            if error := error_from_path(packet, said, rng):
                domain.meet(error, quoted=packet)
        elif rng.random() < 0.06:
            domain.load(rng.choice(states))
        else:
            domain.meet(packet)


@settings(max_examples=examples(40), deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=3, max_rules=6), st.randoms(use_true_random=False))
def test_conversations_pass_as_the_oracle_decides(policy: Policy, rng: random.Random) -> None:
    hold_conversations(whole(marked(populated(policy), rng)), rng)


@settings(max_examples=examples(40), deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=2, max_rules=5), st.randoms(use_true_random=False))
def test_no_trace_gets_more_through_than_the_oracle_permits(policy: Policy, rng: random.Random) -> None:
    """Of all flags and in both directions, with errors about what went before, while marks and actions change."""
    base = populated(policy)
    changed = [marked(base, rng), marked(denying(base), rng), marked(base, rng)]
    hold_trace([*map(whole, changed), trackable(base)], rng, 200)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of a few rules are planned like lists of thousands."""
    for name, value in (("FEW_ROWS", 1), ("TABLE_ROWS", 2), ("SPLIT_ROWS", 2), ("LOOKUP", 0)):
        monkeypatch.setattr(plan, name, value)


@pytest.mark.usefixtures("eager")
@settings(max_examples=examples(40), deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(policies(max_tenants=1, max_rules=12), st.randoms(use_true_random=False))
def test_nftables_with_maps_for_everything(policy: Policy, rng: random.Random) -> None:
    hold_conversations(whole(marked(populated(policy), rng)), rng, 60)


SSH = Rule(RuleId("ssh"), Action.PERMIT, protocol=TCP, destination_ports=ports(22))
MAIL = Rule(RuleId("post"), Action.DENY, protocol=UDP, destination_ports=ports(25))
FLAGGED = FlagMatch(TcpFlag.SYN | TcpFlag.ECE, 0x42)
"""What a first packet may have, and what connections are not asked for."""


def _shop(*rules: Rule, operator: Sequence[Rule] = ()) -> Policy:
    made = contract_policy(rules, BANK, operator)
    numbers = {rule.id: number for number, rule in enumerate((*rules, *BANK), 1)}
    return replace(
        made,
        return_traffic=ReturnTraffic.TRACKED,
        tenants=tuple(replace(each, rule_numbers=numbers) for each in made.tenants),
    )


def test_an_end_that_decided_alone_does_not_know_the_connection() -> None:
    """Bank's end lets the first packet in by its flags alone, shop's end remembers it; answers are bank's to refuse."""
    odd = Rule(RuleId("odd"), Action.PERMIT, protocol=TCP, tcp_flags=FLAGGED, stateless=True)
    rest = Rule(RuleId("rest"), Action.PERMIT, protocol=TCP)
    made = _shop()
    bank = replace(made.tenants[1], acl=Acl((odd, rest)), rule_numbers={"odd": 1, "rest": 2})
    mixed = replace(made, tenants=(made.tenants[0], bank))
    plain = replace(mixed, tenants=(made.tenants[0], replace(bank, acl=Acl((rest,)))))
    first = Packet(Family.IPV4, 0xC633640A, 0xCB007109, TCP, 2001, 80, tcp_flags=0x42)
    answer = Packet(Family.IPV4, first.destination, first.source, TCP, 80, 2001, tcp_flags=0x12)
    for after in (mixed, plain):
        domain = TrackedFilter("nftables", mixed)
        assert domain.meet(first)
        domain.load(after)
        assert [domain.meet(answer), domain.meet(replace(first, tcp_flags=0x10))] == [False, False]


def test_what_others_leave_untracked_passes_where_it_is_decided_alone() -> None:
    """The machine may have tables of others that untrack packets: what is left to connections is dropped."""
    alone = Rule(RuleId("alone"), Action.PERMIT, protocol=UDP, stateless=True)
    every = Rule(RuleId("every"), Action.PERMIT, protocol=47, stateless=True)
    rest = Rule(RuleId("rest"), Action.PERMIT, protocol=TCP)
    domain = TrackedFilter("nftables", _shop(alone, rest, operator=(every,)))
    first = Packet(Family.IPV4, 0xC0000201, 0xC633640A, TCP, 2001, 80, tcp_flags=0x02)
    assert domain.send(first).accepted
    assert [domain.walk(replace(first, protocol=each), NOTHING_SEEN).accepted for each in (TCP, UDP)] == [False, True]
    stranger = replace(first, destination=0xC0000301, protocol=47)
    assert [domain.walk(stranger, NOTHING_SEEN).accepted, domain.send(stranger).accepted] == [False, False]


def test_the_operators_rule_counts_for_the_end_that_tracks() -> None:
    """An answer that the sender's list lets out alone belongs to the connection that the operator's rule permits."""
    out = Rule(RuleId("out"), Action.PERMIT, Direction.EGRESS, protocol=TCP, source_ports=ports(22), stateless=True)
    domain = TrackedFilter("nftables", _shop(out, operator=(SSH,)))
    first = Packet(Family.IPV4, 0xCB007109, 0xC633640A, TCP, 2001, 22, tcp_flags=0x02)
    answer = Packet(Family.IPV4, first.destination, first.source, TCP, 22, 2001, tcp_flags=0x12)
    assert all(domain.meet(each, fully=True) for each in (first, answer, replace(first, tcp_flags=0x10)))


def _without(text: str) -> Callable[[str], str]:
    return lambda script: script.replace(text, "")


PLANTED: dict[str, Callable[[str], str]] = {
    "all is tracked": lambda script: script.replace("notrack accept", "accept"),
    "what is denied alone is tracked": lambda script: script.replace("goto untrack", "accept"),
    "an end knows what it decided alone": _without("ct mark set ct mark | 0x40000000"),
    "ends are asked the other way round": lambda script: script.replace(
        "ct direction 0 ct orig", "ct direction 1 ct orig"
    ),
    "operators' rules count for each end": lambda script: script.replace("jump operator_again", "jump operator"),
    "operators' rules count for tracked senders alone": lambda script: re.sub(
        r"(chain sender_alone \{\n[^}]*?)\t\tjump operator\n", r"\1", script
    ),
    "untracked packets pass": lambda script: script.replace("ct state 0x40 drop", "ct state 0x40 accept"),
    "strangers pass": lambda script: re.sub(r"\n[^\n]*saddr != @ours ip6? daddr != @ours (drop|accept)", "", script),
    "rows that leave packets permit them": lambda script: script.replace("goto receiver_asks", "accept"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bugs_are_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    made = [0]

    def planted(policy: Policy) -> str:
        script = nftables_script(policy)
        made[0] += PLANTED[name](script) != script
        return PLANTED[name](script)

    monkeypatch.setattr(tracked_filter, "nftables_script", planted)
    with pytest.raises(AssertionError):
        _hold_many()
    assert made[0]


def _hold_many() -> None:
    test_an_end_that_decided_alone_does_not_know_the_connection()
    test_what_others_leave_untracked_passes_where_it_is_decided_alone()
    test_the_operators_rule_counts_for_the_end_that_tracks()
    for seed in range(8):
        rng = random.Random(seed)
        base = contract_policy(operator=(SSH, MAIL))
        hold_conversations(marked(base, rng), rng, 80)
        hold_trace([marked(base, rng) for _ in range(2)], rng, 100)


def test_lists_about_first_packets_are_asked_for_what_they_deny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a stateless permit opens connections, too."""
    monkeypatch.setattr(filterlists, "view_of_tracking", lambda acl: acl)
    with pytest.raises(AssertionError):
        _hold_many()


def test_what_is_not_carried_is_refused_with_its_place() -> None:
    rule = Rule(RuleId("later"), Action.DENY, fragments=True, stateless=True)
    with pytest.raises(BadPolicy, match="leave `fragments` out") as refused:
        TrackedFilter("nftables", _shop(rule))
    assert refused.value.place == "tenants[shop].acl.rules[0]"
    with pytest.raises(BadPolicy, match="with iptables do not") as refused:
        TrackedFilter("iptables", _shop(replace(rule, fragments=False)))
    assert refused.value.place == "tenants[shop].acl.rules[0]"
