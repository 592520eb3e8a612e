"""The rules that stand above their lists, by name: placement's word to the compilers."""

from __future__ import annotations

from typing import NamedTuple

from orchestrator.policy.model import RuleId, TenantId


class LiftedRule(NamedTuple):
    """A rule that is to be decided before all others, where that changes no verdict.

    Only the name: what entries it takes follows from the policy, each time anew, and so does whether there are any.
    """

    tenant: TenantId
    rule: RuleId

    def __str__(self) -> str:
        return f"{self.tenant}/{self.rule}"
