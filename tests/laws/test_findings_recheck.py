"""Findings on an edited list, told from those on the list before, are those of a check from scratch."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from law_examples import examples
from strategies import OWNED, acls

from orchestrator.bench.rulesets import synthetic
from orchestrator.policy import oracle, rechecks
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.findings import Checks, Finding, Kind, check
from orchestrator.policy.model import Acl, Action, ReturnTraffic, Rule, RuleId
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.policy.rechecks import Hulls, Judged, recheck
from orchestrator.policy.space import boxes_of

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def _whatever_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists here are short: most of a list is near whatever changes."""
    monkeypatch.setattr(rechecks, "_MOST_AROUND", 1.0)


@st.composite
def edited(draw: DrawFn, acl: Acl, number: int) -> Acl:
    """The list after one edit: a rule taken out, moved, turned round, or a new one put in."""
    rules = list(acl.rules)
    place = draw(st.integers(0, max(len(rules) - 1, 0)))
    what = draw(st.sampled_from(("remove", "move", "turn", "add", "copy")))
    if what == "add" or not rules:
        fresh = draw(acls(1, min_rules=1, with_groups=False)).rules
        rules[place:place] = [replace(rule, id=RuleId(f"new{number}")) for rule in fresh]
    elif what == "copy":
        rules.insert(place, replace(rules[-1], id=RuleId(f"copy{number}")))
    elif what == "remove":
        del rules[place]
    elif what == "move":
        rules.insert(draw(st.integers(0, len(rules) - 1)), rules.pop(place))
    else:
        turned = Action.DENY if rules[place].action is Action.PERMIT else Action.PERMIT
        rules[place] = replace(rules[place], action=turned)
    return replace(acl, rules=tuple(rules))


def without_packets(findings: Iterable[Finding]) -> list[Finding]:
    return [replace(finding, witness=None) for finding in findings]


def assert_shown(findings: Iterable[Finding], acl: Acl, checks: Checks) -> None:
    """Packets that show a redundant rule, or a conflict, are decided by that rule, or the earlier one."""
    directions = {rule.id: rule.direction for rule in acl.rules}
    for finding in findings:
        if finding.kind in (Kind.REDUNDANT, Kind.CONFLICT):
            assert finding.witness is not None
            asked = oracle.ask(acl, finding.witness, directions[finding.rules[0]], checks.returns)
            assert asked.rule == finding.rules[0]


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_edit_by_edit_it_stays_what_a_check_of_the_whole_list_says(data: st.DataObject) -> None:
    own: tuple[Prefix, ...] = data.draw(st.sampled_from(((), OWNED)))
    checks = Checks(own=own, returns=data.draw(st.sampled_from((ReturnTraffic.EXPLICIT, ReturnTraffic.ESTABLISHED))))
    acl = data.draw(acls(7))
    judged = Judged.of(acl, replace(checks, now=NOW))
    for number in range(3):
        acl = data.draw(edited(acl, number))
        now = replace(checks, now=NOW + number * dt.timedelta(days=400))
        judged = recheck(judged, acl, now)
        assert without_packets(judged.findings) == without_packets(check(acl, now))
        assert_shown(judged.findings, acl, now)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), data=st.data())
def test_what_is_said_of_a_longer_list_stays_right(seed: int, data: st.DataObject) -> None:
    acl, checks = synthetic(200, seed), Checks(returns=ReturnTraffic.ESTABLISHED)
    judged = Judged.of(acl, checks)
    for number in range(2):
        acl = data.draw(edited(acl, number))
        judged = recheck(judged, acl, checks)
        assert without_packets(judged.findings) == without_packets(check(acl, checks))


@settings(max_examples=examples(100), deadline=None)
@given(acl=acls(8))
def test_rules_that_share_a_packet_have_hulls_that_meet(acl: Acl) -> None:
    hulls = Hulls.of(acl.rules, acl.groups)
    for place, rule in enumerate(acl.rules):
        near = hulls.meeting(np.array([place]))
        for other, against in enumerate(acl.rules):
            assert near[other] or not _share(rule, against, acl)


def _share(one: Rule, other: Rule, acl: Acl) -> bool:
    return any(mine.overlaps(theirs) for mine in boxes_of(one, acl.groups) for theirs in boxes_of(other, acl.groups))


def test_another_world_is_judged_anew() -> None:
    acl = synthetic(20)
    judged = Judged.of(acl, Checks())
    for checks in (Checks(own=(Prefix.parse("198.51.100.0/24"),)), Checks(returns=ReturnTraffic.ESTABLISHED)):
        assert recheck(judged, acl, checks).findings == check(acl, checks)
    turned = replace(acl, ingress_default=Action.PERMIT)
    assert recheck(judged, turned, Checks()).findings == check(turned, Checks())


def rule(name: str, source: str, *ports: int, action: Action = Action.PERMIT) -> Rule:
    """A TCP rule for ports from the first up to the last."""
    asked = (PortRange(ports[0], ports[-1]),) if ports else EVERY_PORT
    return Rule(RuleId(name), action, protocol=TCP, source=Addresses((Prefix.parse(source),)), destination_ports=asked)


LOWER, UPPER, WHOLE, WIDER = "192.0.2.0/25", "192.0.2.128/25", "192.0.2.0/24", "192.0.2.0/23"


def test_a_rule_that_comes_to_life_takes_over_from_one_that_no_change_came_near() -> None:
    first, gone, both = rule("lower", LOWER), rule("upper", UPPER), rule("both", WHOLE)
    last = rule("not-lower", LOWER, action=Action.DENY)
    judged = Judged.of(Acl((first, gone, both, last)), Checks())
    again = recheck(judged, Acl((first, both, last)), Checks()).findings
    assert [each.rules for each in again.of([Kind.REDUNDANT])] == [("lower", "both")]


def test_a_dead_rule_stays_dead_where_what_covers_it_is_not_near() -> None:
    first, upper, both = rule("lower", LOWER), rule("upper", UPPER, 80), rule("both", WHOLE, 80)
    denied = rule("denied", WIDER, 80, action=Action.DENY)
    others = rule("below", WIDER, 0, 79), rule("above", WIDER, 81, 65535)
    before, new = (first, upper, both, denied, *others), rule("new", LOWER, 443)
    again = recheck(Judged.of(Acl(before), Checks()), Acl((*before, new)), Checks()).findings
    assert without_packets(again) == without_packets(check(Acl((*before, new)), Checks()))
    assert "lower" not in {each.rules[0] for each in again.of([Kind.REDUNDANT])}
