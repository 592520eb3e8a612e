"""The rules that a logged packet may be of are named anew only where a list changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from orchestrator.control.packets import log
from orchestrator.control.packets.log import NO_NAMES
from orchestrator.policy.model import Acl, Action, Policy, Rule, RuleId, Tenant, TenantId


def tenant(number: int, *rules: str) -> Tenant:
    """A tenant whose rules all log."""
    acl = Acl(tuple(Rule(RuleId(each), Action.PERMIT, log=True) for each in rules))
    numbers = {RuleId(each): 100 * number + place for place, each in enumerate(rules)}
    return Tenant(TenantId(f"t{number}"), number, (), acl, numbers)


def test_only_lists_that_changed_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, looked = log.name_rules, list[str]()

    def counted(rules: Iterable[Rule], *rest: object) -> object:
        looked.extend(str(each.id) for each in rules)
        return plain(rules, *rest)  # type: ignore[arg-type]

    tenants = tuple(tenant(number, "a", "b") for number in range(1, 50))
    spoken = (Rule(RuleId("first"), Action.DENY, log=True), Rule(RuleId("second"), Action.DENY))
    numbers = {RuleId("first"): 7, RuleId("second"): 8}
    policies = [
        Policy(tenants),
        Policy((*tenants[:6], tenant(7, "c"), *tenants[7:])),
        Policy(tenants[1:], spoken, numbers),
        Policy((*tenants[:3], tenant(70, "a"), *tenants[3:]), spoken[1:], numbers),
        Policy((replace(tenants[0], acl=Acl()), *tenants[1:])),
    ]
    known = NO_NAMES.after(policies[0])
    monkeypatch.setattr(log, "name_rules", counted)
    for policy, read in zip(policies[1:], (["c"], ["a", "b"], ["a", "b", "a"], []), strict=True):
        looked.clear()
        known = known.after(policy)
        assert sorted(each for each in looked if each in ("a", "b", "c")) == sorted(read)
        assert known.by_cookie == NO_NAMES.after(policy).by_cookie
        assert known.of_tenant == NO_NAMES.after(policy).of_tenant
