"""Calls of the REST API about proposals, and about what needs another person's approval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.client.paths import domain_path, quote_segment, tenant_path
from orchestrator.client.records import Json, Written
from orchestrator.client.transport import ANY_VERSION, Transport, document_of, json_of, written
from orchestrator.wire.common import Approvals, Proposal

_LOOKED_AT_S = 120.0
"""How much longer than others an answer may take that needs a look at a whole list."""


@dataclass(frozen=True, slots=True)
class ProposedAbout:
    """The subjects of proposals: the list of a tenant, or what is a domain's."""

    tenant: str | None = None
    domain: str | None = None

    @property
    def path(self) -> str:
        """Where the proposals are."""
        about = tenant_path(self.tenant) if self.tenant is not None else domain_path(self.domain or "")
        return f"{about}/proposals"


class ProposalCalls:
    """Changes that another person must approve."""

    _service: Transport

    def approvals(self, domain: str) -> Approvals:
        """Return which changes of a domain another person must approve. Raises NotFound."""
        return self._service.read_document(Approvals, f"{domain_path(domain)}/approvals")

    def set_approvals(
        self, domain: str, *, operator_rules: bool, tenants: Sequence[str], etag: str = ANY_VERSION
    ) -> Written:
        """Say what needs approval; that less needs it is a proposal itself. Raises BadPolicy, Stale."""
        body = {"operator_rules": operator_rules, "tenants": list(tenants)}
        return written(self._service.write("PUT", f"{domain_path(domain)}/approvals", body=body, etag=etag))

    def proposals(self, about: ProposedAbout) -> Iterator[Proposal]:
        """The proposals, newest first."""
        return self._service.documents(Proposal, about.path)

    def proposal(self, about: ProposedAbout, proposal: str) -> Proposal:
        """One proposal. Raises NotFound."""
        return self._service.read_document(Proposal, f"{about.path}/{quote_segment(proposal)}")

    def proposed_changes(self, about: ProposedAbout, proposal: str) -> Json:
        """Return the difference between an open proposal and what is in force.

        Raises NotFound, Conflict once decided.
        """
        path = f"{about.path}/{quote_segment(proposal)}/difference"
        found: Json = json_of(self._service.ask("GET", path, held_s=_LOOKED_AT_S))
        return found

    def approve_proposal(self, about: ProposedAbout, proposal: str) -> Written:
        """Carry a proposal out.

        Raises Forbidden for the person that proposed it, Conflict once it was decided, Stale where its base has moved.
        """
        return written(self._service.write("POST", f"{about.path}/{quote_segment(proposal)}/approval"))

    def reject_proposal(self, about: ProposedAbout, proposal: str, *, reason: str = "") -> Proposal:
        """Reject a proposal. Raises NotFound, Conflict once it was decided."""
        path = f"{about.path}/{quote_segment(proposal)}/rejection"
        return document_of(Proposal, self._service.write("POST", path, body={"reason": reason}))

    def withdraw_proposal(self, about: ProposedAbout, proposal: str) -> Proposal:
        """Take one's own proposal back. Raises NotFound, Forbidden, Conflict once it was decided."""
        path = f"{about.path}/{quote_segment(proposal)}/withdrawal"
        return document_of(Proposal, self._service.write("POST", path))
