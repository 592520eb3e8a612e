"""Trials: packets that a policy permits and refuses, chosen so that a wrong filter is noticed, judged by the oracle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from law_examples import examples
from strategies import policies

from orchestrator.control.fleet.trials import choose, is_outdated, judge_trial
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Policy, Tenant, TenantId
from orchestrator.policy.oracle import decide
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, UDP
from orchestrator.scaling.lifecycle import Trial


@settings(max_examples=examples(25), deadline=None)
@given(policies())
def test_packets_are_what_a_router_forwards_and_expected_is_what_the_oracle_says(policy: Policy) -> None:
    sheet = choose(policy, 7)
    assert len(sheet.packets) == len(sheet.expected) <= 2
    assert len(set(sheet.expected)) == len(sheet.expected)
    for packet, expected in zip(sheet.packets, sheet.expected, strict=True):
        assert decide(policy, packet).permitted == expected
        assert packet.protocol in (TCP, UDP, ICMP, ICMPV6)
        assert not packet.later_fragment
        assert packet.source != packet.destination


@settings(max_examples=examples(25), deadline=None)
@given(policies())
def test_right_answers_pass_and_any_wrong_one_fails_and_says_which(policy: Policy) -> None:
    sheet = choose(policy, 7)
    assert judge_trial(sheet, policy) == (Trial.WAITING, "")
    assert judge_trial(replace(sheet, answer=sheet.expected), policy) == (Trial.PASSED, "")
    for wrong in range(len(sheet.packets)):
        answer = tuple(each != (at == wrong) for at, each in enumerate(sheet.expected))
        verdict, words = judge_trial(replace(sheet, answer=answer), policy)
        assert verdict is Trial.FAILED
        assert ("dropped" if sheet.expected[wrong] else "came through") in words


def policy_of(*rules: dict[str, object]) -> Policy:
    acl = acl_from_json({"rules": list(rules)})
    return Policy(tenants=(Tenant(TenantId("shop"), 1, (Prefix.parse("198.51.100.0/24"),), acl),))


@pytest.mark.parametrize("action", ["permit", "deny"])
def test_a_policy_that_says_only_one_thing_is_tried_with_that(action: str) -> None:
    """It has no packet of the other kind, which is not waited for in vain."""
    policy = policy_of(*({"id": way, "direction": way, "action": action} for way in ("ingress", "egress")))
    sheet = choose(policy, 1)
    assert (action == "permit") in sheet.expected
    assert judge_trial(replace(sheet, answer=sheet.expected), policy)[0] is Trial.PASSED


def test_what_has_changed_meanwhile_is_no_verdict() -> None:
    """Packets whose fate is another by now neither pass nor fail: they are chosen anew."""
    before = policy_of({"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": "80"})
    sheet = choose(before, 1)
    after = policy_of({"id": "none", "action": "deny"}, {"id": "out", "direction": "egress", "action": "deny"})
    assert is_outdated(sheet, after)
    for answer in (sheet.expected, tuple(not each for each in sheet.expected)):
        assert judge_trial(replace(sheet, answer=answer), after) == (Trial.WAITING, "")
