"""Looking at all changes since the oldest program that may be held is never laxer than comparing with each of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.control.policychanges import compare_policies, could_leak
from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, Direction, Policy, Rule, RuleId, Tenant, TenantId

PREFIXES = tuple(map(Prefix.parse, ("10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16", "10.1.1.0/24")))

rules = st.builds(
    lambda number, way, prefix: Rule(
        RuleId(f"r{number}"), Action.PERMIT, direction=way, destination=Addresses((PREFIXES[prefix],))
    ),
    st.integers(0, 5), st.sampled_from(Direction), st.integers(0, 3),
)  # fmt: skip
lists = st.lists(rules, max_size=4, unique_by=lambda rule: rule.id)
histories = st.lists(st.tuples(st.integers(0, 1), lists), min_size=1, max_size=5)
START = Policy(tuple(Tenant(TenantId(name), 1 + number, (), Acl()) for number, name in enumerate("ab")))


def policies(history: list[tuple[int, list[Rule]]]) -> list[Policy]:
    """A policy, and what it became, one tenant's list after the other."""
    found = [START]
    for which, chosen in history:
        tenants = list(found[-1].tenants)
        kept = {rule: rule for tenant in tenants for rule in tenant.acl.rules}
        tenants[which] = replace(tenants[which], acl=Acl(tuple(kept.get(rule, rule) for rule in chosen)))
        found.append(replace(found[-1], tenants=tuple(tenants)))
    return found


@given(histories)
def test_changes_together_leak_wherever_one_of_the_steps_to_the_newest_does(
    history: list[tuple[int, list[Rule]]],
) -> None:
    known = policies(history)
    newest = known[-1]
    steps = [compare_policies(before, after) for before, after in pairwise(known)]
    for place, held in enumerate(known):
        if could_leak([compare_policies(held, newest)]):
            assert could_leak(steps[place:])
            assert could_leak(steps)


def test_the_law_is_about_lists_that_do_leak() -> None:
    rule = Rule(RuleId("r"), Action.DENY, direction=Direction.EGRESS)
    moved = [(0, [rule]), (1, [replace(rule, direction=Direction.INGRESS)]), (0, [])]
    known = policies(moved)
    assert could_leak([compare_policies(known[1], known[-1])])
    assert not could_leak([compare_policies(known[0], known[1])])
