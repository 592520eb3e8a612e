"""The lists of the abuse figure: they pass their ceiling, and each of them does to others what it is there for."""

from __future__ import annotations

from orchestrator.bench.control_plane import abuse
from orchestrator.control.ceilings import Ceilings
from orchestrator.policy.model import Acl


def test_the_worst_lists_pass_the_ceiling() -> None:
    lists = [*abuse.worst_lists()]
    for acl in lists:
        Ceilings().check_list(acl)
    assert max(len(acl.rules) for acl in lists) == 4_000
    assert any(len(rule.source_ports) * len(rule.destination_ports) == 900 for acl in lists for rule in acl.rules)


def test_a_few_rules_under_abuse_are_measured() -> None:
    found = abuse.cost(4, [Acl(acl.rules[:50]) for acl in abuse.worst_lists()])
    assert len(found.quiet) == 4
    assert len(found.abused) in (4, 8)
    assert min(*found.quiet, *found.abused) > 0
