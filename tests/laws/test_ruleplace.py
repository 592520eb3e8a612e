"""A rule at the place that is suggested for it has the effect that its author means."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from strategies import acls, corner_packets_of

from orchestrator.policy import oracle
from orchestrator.policy.model import Acl, ReturnTraffic, RuleId
from orchestrator.policy.ruleplace import suggest_place


@settings(max_examples=150, deadline=None)
@given(acls(6), acls(1, 1))
def test_every_packet_of_the_rule_gets_its_action(acl: Acl, other: Acl) -> None:
    rule = replace(other.rules[0], id=RuleId("new"))
    groups = {**other.groups, **acl.groups}
    position, _ = suggest_place(replace(acl, groups=groups), rule)
    after = replace(acl, groups=groups, rules=(*acl.rules[:position], rule, *acl.rules[position:]))
    for packet in corner_packets_of(after):
        if oracle.matches(rule, packet, groups):
            assert oracle.ask(after, packet, rule.direction, ReturnTraffic.EXPLICIT).action is rule.action


@settings(max_examples=100, deadline=None)
@given(acls(6), acls(1, 1))
def test_it_goes_no_further_up_than_it_must(acl: Acl, other: Acl) -> None:
    rule = replace(other.rules[0], id=RuleId("new"))
    acl = replace(acl, groups={**other.groups, **acl.groups})
    position, before = suggest_place(acl, rule)
    if before is None:
        assert position == len(acl.rules)
    else:
        assert acl.rules[position].id == before
        assert acl.rules[position].action is not rule.action
