"""What a packet filter that carries stateless rules beside tracked ones must be to its driver, fake and real alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
from enforce.contract_filters import (
    SHOP,
    Meddling,
    assert_decides,
    assert_holds,
    bring,
    by_cookie,
    meddle,
    policy,
    ports,
    program,
)
from enforce.contract_tracked import FIRSTS, TRACKED, Talk, TrackedBench, back, tcp
from tracked_domain import conversation, trackable

from orchestrator.enforce import gap
from orchestrator.policy.model import Action, Direction, Policy, Rule, RuleId
from orchestrator.policy.protocols import TCP

SYN, ACK = 0x02, 0x10
BACK = Rule(RuleId("back"), Action.PERMIT, Direction.EGRESS, protocol=TCP, source_ports=ports(80), stateless=True)
"""Lets the answers of shop's web server out, which the list's default leaves to connections."""


def stateless(*names: str) -> Policy:
    """Return the contract's policy, tracked, with rules of shop's stateless; of its web server, in both directions."""
    rules = [replace(each, stateless=each.id in names) for each in SHOP]
    made = trackable(policy([BACK, *rules] if "web" in names else rules))
    shop = replace(made.tenants[0], rule_numbers={**made.tenants[0].rule_numbers, BACK.id: 90})
    return replace(made, tenants=(shop, *made.tenants[1:]))


MIXED = stateless("bad", "web", "dns", "gre")
OTHERS = stateless("any", "echo", "mail")
MEDDLINGS = (
    Meddling("tracks what is decided alone", "flush chain ip aclflow untrack", ""),
    Meddling(
        "tracks nothing", "flush chain ip aclflow raw_receiver\nadd rule ip aclflow raw_receiver goto untrack", ""
    ),
    Meddling("lets an end pass what is untracked", "flush chain ip aclflow sender_asks", ""),
    Meddling("permits alone", "flush chain ip aclflow alone_ingress_1\nadd rule ip aclflow alone_ingress_1 accept", ""),
    Meddling("has an end know what it decided alone", "flush chain ip aclflow receiver_alone", ""),
)


class StatelessContract:
    def test_stateless_rules_come_and_go(self, bench: TrackedBench) -> None:
        """By deltas: a lone ACK passes where a stateless rule permits it, and nowhere else."""
        states = (policy(), TRACKED, MIXED, OTHERS, MIXED, TRACKED, MIXED, policy())
        here = program(bench, states[0])
        bring(bench, here)
        for generation, wanted in enumerate(states[1:], 8):
            there = program(bench, wanted, generation)
            bench.driver.apply(gap.step(here, there, (), bench.driver.resolve), gap.stamp_of(there))
            assert_holds(bench, there)
            here = there
            if wanted is states[-1]:
                assert_decides(bench, wanted, bench.packets)
                continue
            talk = Talk(bench, wanted)
            lone = [replace(tcp(2000 + generation, ACK), destination_port=port) for port in (80, 22)]
            assert talk.say(lone) == [wanted is MIXED, wanted is OTHERS]
            begins = list(conversation(tcp(3000 + generation)))[:4]
            assert talk.say(begins) == [True] * 4

    def test_what_is_decided_alone_counts_for_its_rules(self, bench: TrackedBench) -> None:
        bring(bench, program(bench, MIXED))
        talk = Talk(bench, MIXED)
        passed = 0
        for first in FIRSTS:
            for packet in list(conversation(first))[:4]:
                if not talk.say([packet])[0]:
                    break
                passed += 1
        assert passed > 15
        assert by_cookie(bench.driver.hits()) == +talk.counted

    def test_a_connection_whose_rule_becomes_stateless_is_left_to_that_rule(self, bench: TrackedBench) -> None:
        """Its answers have no rule and are cut; once the rule tracks again, they pass."""
        here, there = program(bench, TRACKED), program(bench, OTHERS, 8)
        bring(bench, here)
        talk = Talk(bench, TRACKED)
        ssh = replace(tcp(2001), destination_port=22)
        assert talk.say(list(conversation(ssh))[:3]) == [True] * 3
        for old, new, wanted in ((here, there, OTHERS), (there, here, TRACKED)):
            bench.driver.apply(gap.step(old, new, (), bench.driver.resolve), gap.stamp_of(new))
            assert_holds(bench, new)
            talk.policy = wanted
            assert talk.say([replace(ssh, tcp_flags=ACK), back(ssh, ACK)]) == [True, wanted is TRACKED]

    @pytest.mark.parametrize("meddling", MEDDLINGS, ids=lambda each: each.name)
    def test_a_foreign_hand_in_what_decides_alone_is_seen_and_put_right(
        self, bench: TrackedBench, meddling: Meddling
    ) -> None:
        wanted = program(bench, MIXED)
        bring(bench, wanted)
        meddle(bench, meddling)
        assert gap.mismatch(bench.driver.observe(), bench.driver.resolve(wanted.flows, ()), gap.stamp_of(wanted))
        bring(bench, wanted)
        assert_holds(bench, wanted)
        assert Talk(bench, MIXED).say([tcp(2001, ACK), replace(tcp(2001, ACK), destination_port=22)]) == [True, False]
