"""Proposals: what is asked of them, and what they would change."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.schemas.common import Incoming, Line, Name, Outgoing
from api.schemas.inspection import ChangeBody
from orchestrator.policy.rulechanges import RuleChange
from orchestrator.policy.ruletext import rule_text


class ApprovalsPut(Incoming):
    """The changes of a domain that are to need another person's approval."""

    operator_rules: bool
    tenants: list[Name] = Field(max_length=100_000)


class Rejection(Incoming):
    """Why a proposal is rejected."""

    reason: Line = ""


class ProposedRule(Outgoing):
    """A rule that a proposal edits, in words.

    `before` is null for one that is added, `after` for one that goes.
    """

    id: str
    kind: Literal["added", "removed", "changed", "moved"]
    before: str | None
    after: str | None

    @classmethod
    def of(cls, change: RuleChange) -> ProposedRule:
        before, after = (None if rule is None else rule_text(rule) for rule in (change.before, change.after))
        return cls(id=change.id, kind=change.kind, before=before, after=after)


class ProposedChanges(Outgoing):
    """The change that a proposal makes to what is in force now: rules, and packets.

    `packets` is null where they are too different to tell. Of operator rules, they are those that the operator decides
    from then on, and those that it leaves to the lists again are in `left`. `approvals`: what would need approval.
    """

    rules: list[ProposedRule] = Field(default_factory=list)
    groups: list[str] = Field(default_factory=list)
    defaults: list[Literal["ingress", "egress"]] = Field(default_factory=list)
    packets: list[ChangeBody] | None = None
    left: list[ChangeBody] = Field(default_factory=list)
    approvals: dict[str, object] | None = None
