"""A rule at the place that is suggested for it has an effect, and undoes no exception."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls, corner_packets_of

from orchestrator.policy import oracle
from orchestrator.policy.formats.native import acl_from_json, rule_from_json
from orchestrator.policy.model import Acl, Action, ReturnTraffic, RuleId
from orchestrator.policy.ruleplace import SuggestedPlace, suggest_place
from orchestrator.policy.space import boxes_of, find_uncovered

SCANNER = {"id": "scanner", "action": "deny", "source": "192.0.2.66"}
SCANNER6 = {"id": "scanner6", "action": "deny", "source": "2001:db8::66"}
REST4 = {"id": "rest4", "action": "deny", "source": "0.0.0.0/0"}
REST6 = {"id": "rest6", "action": "deny", "source": "::/0"}
REST = {"id": "rest", "action": "deny"}
HALVES = [{"id": half, "action": "deny", "source": half} for half in ("0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1")]
WEB = {"id": "web", "action": "permit", "protocol": "tcp", "destination_ports": 443}
PARTS = [SCANNER, SCANNER6, REST4, REST6, REST, WEB, *({**half, "id": f"r{n}"} for n, half in enumerate(HALVES))]


@settings(max_examples=examples(150), deadline=None)
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


@settings(max_examples=examples(100), deadline=None)
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


@settings(max_examples=examples(100), deadline=None)
@given(acls(6), acls(1, 1))
def test_an_exception_denies_a_part_of_each_family_at_most(acl: Acl, other: Acl) -> None:
    rule = replace(other.rules[0], id=RuleId("new"))
    acl = replace(acl, groups={**other.groups, **acl.groups})
    names = suggest_place(acl, rule).exceptions
    boxes = boxes_of(rule, acl.groups)
    exceptions = [boxes_of(each, acl.groups) for each in acl.rules if each.id in names]
    whole = [denied for denied in exceptions if any(their.contains(box) for their in denied for box in boxes)]
    assert len(whole) <= 1, "one IP version stays closed where the exceptions of the other stand below that"
    if whole:
        assert whole[0] is not exceptions[-1]
        assert any(not any(their.contains(box) for their in whole[0]) for box in boxes)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.sampled_from(PARTS), unique_by=lambda part: part["id"]), st.sampled_from(["any", "0.0.0.0/0", "::/0"])
)
def test_no_exception_is_undone(parts: list[Any], source: str) -> None:
    """A packet that a deny of a part of the rule's packets decided is denied still, unless nothing would be left."""
    acl = acl_from_json({"rules": parts})
    rule = rule_from_json({"id": "new", "action": "permit", "protocol": "tcp", "source": source})
    place = suggest_place(acl, rule)
    position = place.position
    after = replace(acl, rules=(*acl.rules[:position], rule, *acl.rules[position:]))
    boxes = boxes_of(rule, acl.groups)
    walls = {
        each.id
        for each in acl.rules
        if any(their.contains(box) for their in boxes_of(each, acl.groups) for box in boxes)
    }
    opened = {
        oracle.ask(acl, packet, rule.direction, ReturnTraffic.EXPLICIT).rule
        for packet in corner_packets_of(after)
        if oracle.ask(after, packet, rule.direction, ReturnTraffic.EXPLICIT).rule == rule.id
        and oracle.ask(acl, packet, rule.direction, ReturnTraffic.EXPLICIT).action is Action.DENY
    }
    if opened - walls - {None}:
        denies = [each for each in acl.rules if each.action is Action.DENY and each.direction is rule.direction]
        covers = [their for each in denies if each.id not in walls for their in boxes_of(each, acl.groups)]
        families = {box.family for box in boxes if find_uncovered(box, covers) is not None}
        assert families != {box.family for box in boxes}, "exceptions are undone only where they leave nothing together"


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
        ([REST4, SCANNER6, REST6], {}, SuggestedPlace(2, "rest6", ("rest4", "scanner6"))),
        ([REST4, SCANNER6], {}, SuggestedPlace(2, None, ("rest4", "scanner6"))),
        ([SCANNER6, REST4, REST6], {}, SuggestedPlace(1, "rest4", ("scanner6",))),
        ([REST4, SCANNER6, REST6], {"source": "0.0.0.0/0"}, SuggestedPlace(0, "rest4")),
        ([REST4, SCANNER, REST6], {}, SuggestedPlace(0, "rest4")),  # its exception is dead behind it
    ],
)
def test_exceptions_hold(rules: list[Any], new: dict[str, Any], place: SuggestedPlace) -> None:
    """`192.0.2.66` is kept out of what is opened to everyone, and let in by a rule about it."""
    said = {"id": "new", "action": "permit", "protocol": "tcp", "destination_ports": new.pop("port", 25), **new}
    assert suggest_place(acl_from_json({"rules": rules}), rule_from_json(said)) == place
