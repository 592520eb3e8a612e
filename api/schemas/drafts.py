"""Shared drafts, expectations and proposals."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.schemas.common import BIGGEST, Incoming, Line, Name, Outgoing
from api.schemas.inspection import ChangeBody, PacketBody
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl
from orchestrator.policy.rulechanges import RuleChange
from orchestrator.policy.ruletext import rule_text

ListDocument = dict[str, Any]
"""A whole list in its native form, read by `acl_from_json`: its errors name the place."""


class TracedBody(PacketBody):
    """A packet to trace, optionally through a draft instead of the tenant's list."""

    acl: ListDocument | None = Field(default=None, description="a draft: traced in the place of the list")

    def draft(self) -> Acl | None:
        """The draft. Raises BadInput, BadPolicy with the place within it."""
        return None if self.acl is None else acl_from_json(self.acl)


class ExpectationsPut(Incoming):
    """Expectations of a list from now on: sentences, as lines or YAML."""

    text: str = Field(max_length=1 << 18, examples=["nobody reaches 198.51.100.20:22 from outside"])


class TestBody(Incoming):
    """A list and its expectations; by default the current list and its kept ones."""

    acl: ListDocument | None = None
    expectations: str | None = Field(default=None, max_length=1 << 18)
    name: str = Field(default="expectations", max_length=255, description="how places name the expectations")


class NewDraft(Incoming):
    """A draft to share with the tenant's members."""

    acl: ListDocument
    base_version: int = Field(ge=0, le=BIGGEST)
    message: str = Field(default="", max_length=1000)
    days: int = Field(default=7, ge=1, le=30)


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
