"""What stands in for sets makes no difference, and is found once for what rules share."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import OWNED, acls

from orchestrator.policy.addresses import ANY, Addresses, Family, Prefix
from orchestrator.policy.difference import difference
from orchestrator.policy.findings import check
from orchestrator.policy.model import Acl, Action, AddressGroup, Direction, GroupName, Rule, RuleId
from orchestrator.policy.rulelist import rule_rows
from orchestrator.policy.space import StandIns, box, boxes_of
from orchestrator.policy.spans import Span


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=3, unique=True).map(sorted), max_size=12))
def test_stand_ins_are_equal_where_sets_are(drawn: list[list[int]]) -> None:
    sets = [tuple(Span(10 * low, 10 * low) for low in lows) for lows in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box, "_FEW", 0)
        names = StandIns()
        found = [names.of(each) for each in (*sets, *sets)]
    for one, name in zip((*sets, *sets), found, strict=True):
        for other, another in zip((*sets, *sets), found, strict=True):
            assert (one == other) is (name == another)


def test_sets_that_are_gone_leave_no_name_to_others() -> None:
    names = StandIns()
    found = {names.of(tuple(Span(place * each, place * each) for each in range(2, 40))) for place in range(2, 200)}
    assert len(found) == 198


@settings(max_examples=examples(60), deadline=None)
@given(acl=acls(6, min_rules=1))
def test_stand_ins_of_boxes_are_equal_where_boxes_are(acl: Acl) -> None:
    boxes = [box for rule in acl.rules for box in (*boxes_of(rule, acl.groups), *boxes_of(rule, acl.groups))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box, "_FEW", 1)
        names = StandIns()
        found = [names.of_box(box) for box in boxes]
    for one, name in zip(boxes, found, strict=True):
        assert [one == other for other in boxes] == [name == other for other in found]


@settings(max_examples=examples(40), deadline=None)
@given(before=acls(8, min_rules=1), after=acls(8, min_rules=1))
def test_findings_and_differences_are_the_same_with_them(before: Acl, after: Acl) -> None:
    plain = check(before), difference(before, after), difference(before, after, own=OWNED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box, "_FEW", 0)
        assert (check(before), difference(before, after), difference(before, after, own=OWNED)) == plain


def test_rows_of_one_group_share_its_addresses() -> None:
    """By which thousands of rules with large groups cost what the rules and the groups say, not their product."""
    prefixes = tuple(Prefix(Family.IPV4, 4 * each, 32) for each in range(100))
    sides = ANY, Addresses((), ("ours",))
    rules = tuple(Rule(RuleId(f"r{each}"), Action.PERMIT, Direction.INGRESS, None, *sides) for each in range(2))
    acl = Acl(rules, {"ours": AddressGroup(GroupName("ours"), prefixes)})
    for own in ((), (Prefix(Family.IPV4, 0, 24),)):
        one, other, _ = rule_rows(acl, Direction.INGRESS, own=own)[Family.IPV4]
        assert one.box.destination is other.box.destination
        assert len(one.box.destination) == (64 if own else 100)
