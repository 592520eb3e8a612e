"""A rule at the place that is suggested for it has an effect, and undoes no exception."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from strategies import acls, corner_packets_of

from orchestrator.policy import oracle
from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.policy.model import Acl, Action, ReturnTraffic, RuleId
from orchestrator.policy.ruleplace import SuggestedPlace, suggest_place
from orchestrator.policy.space import boxes_of

SCANNER = {"id": "scanner", "action": "deny", "source": "192.0.2.66"}
REST = {"id": "rest", "action": "deny"}
WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": 443}


@settings(max_examples=150, deadline=None)
@given(acls(6), acls(1, 1))
def test_every_packet_of_the_rule_gets_its_action_but_for_exceptions(acl: Acl, other: Acl) -> None:
    rule = replace(other.rules[0], id=RuleId("new"))
    groups = {**other.groups, **acl.groups}
    place = suggest_place(replace(acl, groups=groups), rule)
    assert rule.action is Action.PERMIT or not place.exceptions
    position = place.position
    after = replace(acl, groups=groups, rules=(*acl.rules[:position], rule, *acl.rules[position:]))
    for packet in corner_packets_of(after):
        if oracle.matches(rule, packet, groups):
            found = oracle.ask(after, packet, rule.direction, ReturnTraffic.EXPLICIT)
            assert found.action is rule.action or found.rule in place.exceptions


@settings(max_examples=100, deadline=None)
@given(acls(6), acls(1, 1))
def test_it_goes_no_further_up_than_it_must(acl: Acl, other: Acl) -> None:
    rule = replace(other.rules[0], id=RuleId("new"))
    acl = replace(acl, groups={**other.groups, **acl.groups})
    place = suggest_place(acl, rule)
    if place.before is None:
        assert place.position == len(acl.rules)
    else:
        assert acl.rules[place.position].id == place.before
        assert acl.rules[place.position].action is not rule.action
    above = {each.id for each in acl.rules[: place.position]}
    assert above.issuperset(place.exceptions)


@settings(max_examples=100, deadline=None)
@given(acls(6), acls(1, 1))
def test_an_exception_denies_a_part_of_each_family_at_most(acl: Acl, other: Acl) -> None:
    rule = replace(other.rules[0], id=RuleId("new"))
    acl = replace(acl, groups={**other.groups, **acl.groups})
    names = suggest_place(acl, rule).exceptions
    for exception in (each for each in acl.rules if each.id in names):
        denied = boxes_of(exception, acl.groups)
        assert not any(their.contains(box) for their in denied for box in boxes_of(rule, acl.groups))


@pytest.mark.parametrize(
    ("rules", "new", "place"),
    [
        ([SCANNER, WEB, REST], {}, SuggestedPlace(2, "rest", ("scanner",))),
        ([SCANNER, WEB], {}, SuggestedPlace(2, None, ("scanner",))),
        ([SCANNER, WEB, REST], {"source": "192.0.2.66"}, SuggestedPlace(0, "scanner")),
        ([SCANNER, WEB, REST], {"source": "192.0.2.0/24", "action": "deny", "port": 443}, SuggestedPlace(1, "web")),
        (
            [{**SCANNER, "source": "0.0.0.0/1"}, {**SCANNER, "id": "other", "source": "128.0.0.0/1"}],
            {"destination": "198.51.100.7"},
            SuggestedPlace(0, "scanner"),  # together they would leave it nothing
        ),
    ],
)
def test_exceptions_hold(rules: list[Any], new: dict[str, Any], place: SuggestedPlace) -> None:
    """`192.0.2.66` is kept out of what is opened to everyone, and let in by a rule about it."""
    said = {"id": "new", "action": "permit", "protocol": "tcp", "destination_ports": new.pop("port", 25), **new}
    assert suggest_place(acl_from_json({"rules": rules}), rule_from_json(said)) == place
