"""Lists that are much like one that was judged: what they are compared with, and that it makes no difference."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from strategies import acls

from orchestrator.bench.rulesets import synthetic
from orchestrator.control import dryruns
from orchestrator.control.dryruns import findings_now, findings_then
from orchestrator.policy.findings import Checks, check, soon_over
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.rechecks import Judged, recheck

CHECKS = Checks()
MOST = 1_000_000


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dryruns, "_memory", dryruns._Memory())


def moved(acl: Acl) -> Acl:
    return replace(acl, rules=(acl.rules[1], acl.rules[0], *acl.rules[2:]))


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(acls(), acls()), min_size=1, max_size=4))
def test_whatever_was_judged_before_findings_are_those_of_a_check(lists: list[tuple[Acl, Acl]]) -> None:
    for current, tried in lists:
        assert findings_now("blue", current, CHECKS, MOST).counts == check(current, CHECKS).counts
        assert findings_then("blue", current, tried, CHECKS, MOST)[0].counts == check(tried, CHECKS).counts


def test_a_draft_is_compared_with_the_nearer_of_what_is_in_force_and_what_was_tried_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a list that was replaced would have every rule of the first draft of the new one judged once more."""
    known: list[Acl] = []

    def noted(before: Judged, acl: Acl, checks: Checks) -> Judged:
        known.append(before.acl)
        return recheck(before, acl, checks)

    old, new, imported = (synthetic(300, seed=seed) for seed in (1, 2, 3))
    findings_then("blue", old, moved(old), CHECKS, MOST)
    findings_now("blue", new, CHECKS, MOST)
    monkeypatch.setattr(dryruns, "recheck", noted)
    findings_then("blue", new, moved(new), CHECKS, MOST)
    assert known[-1] == new
    findings_then("blue", new, imported, CHECKS, MOST)
    findings_then("blue", new, moved(imported), CHECKS, MOST)
    assert known[-1] == imported


def test_rules_whose_time_is_nearly_over() -> None:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    ends = {"over": -1, "now": 0, "soon": 23, "at last": 24, "later": 25}
    rules = [
        Rule(RuleId(name.replace(" ", "-")), Action.DENY, expires=now + dt.timedelta(hours=h))
        for name, h in ends.items()
    ]
    acl = Acl((*rules, Rule(RuleId("never"), Action.DENY)))
    found = soon_over(acl, Checks(now=now), dt.timedelta(days=1))
    assert [rule.id for rule in found] == ["soon", "at-last"]
    assert soon_over(acl, Checks(), dt.timedelta(days=1)) == ()
