"""Suites by name, and the rules they measure with."""

from __future__ import annotations

import pytest

from orchestrator.bench import suites
from orchestrator.bench.rulesets import synthetic
from orchestrator.errors import BadInput
from orchestrator.policy.model import Action


def test_a_suite_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadInput, match="control-plane"):
        suites.run("nothing")


def test_the_measured_rules_are_the_same_every_time_and_varied() -> None:
    acl = synthetic(500)
    assert acl == synthetic(500)
    assert synthetic(600).rules[:500] == acl.rules
    assert {rule.action for rule in acl.rules} == set(Action)
    assert len({(rule.source, rule.destination) for rule in acl.rules}) > 450
