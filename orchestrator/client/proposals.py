"""Calls of the client about proposals, expectations and shared drafts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.client.calls import Calls, domain_path, quote_segment, tenant_path
from orchestrator.client.records import Json, Written
from orchestrator.client.transport import ANY_VERSION, document_of, json_of, written
from orchestrator.policy.formats.native import acl_from_json, acl_to_json
from orchestrator.policy.model import Acl
from orchestrator.wire.common import Approvals, Proposal
from orchestrator.wire.expectations import KeptExpectations, SharedDraft

_LOOKED_AT_S = 120.0
"""How much longer than others an answer may take that needs a look at a whole list."""


@dataclass(frozen=True, slots=True)
class ProposedAbout:
    """The subjects of proposals: the list of a tenant, or what is a domain's."""

    tenant: str | None = None
    domain: str | None = None

    @property
    def path(self) -> str:
        """The path of the proposals in the REST API."""
        about = tenant_path(self.tenant) if self.tenant is not None else domain_path(self.domain or "")
        return f"{about}/proposals"


class ProposalCalls(Calls):
    """Changes that another person must approve."""

    def read_approvals(self, domain: str) -> Approvals:
        """Return which changes of a domain another person must approve. Raises NotFound."""
        return self._service.read_document(Approvals, f"{domain_path(domain)}/approvals")

    def set_approvals(
        self, domain: str, *, operator_rules: bool, tenants: Sequence[str], etag: str = ANY_VERSION
    ) -> Written:
        """Say what needs approval; that less needs it is a proposal itself. Raises BadPolicy, Stale."""
        body = {"operator_rules": operator_rules, "tenants": list(tenants)}
        return written(self._service.write("PUT", f"{domain_path(domain)}/approvals", body=body, etag=etag))

    def read_all(self, about: ProposedAbout) -> Iterator[Proposal]:
        """The proposals, newest first."""
        return self._service.documents(Proposal, about.path)

    def read(self, about: ProposedAbout, proposal: str) -> Proposal:
        """One proposal. Raises NotFound."""
        return self._service.read_document(Proposal, f"{about.path}/{quote_segment(proposal)}")

    def read_changes(self, about: ProposedAbout, proposal: str) -> Json:
        """Return the difference between an open proposal and what is in force.

        Raises NotFound, Conflict once decided.
        """
        path = f"{about.path}/{quote_segment(proposal)}/difference"
        found: Json = json_of(self._service.ask("GET", path, held_s=_LOOKED_AT_S))
        return found

    def approve(self, about: ProposedAbout, proposal: str) -> Written:
        """Carry a proposal out.

        Raises Forbidden for the person that proposed it, Conflict once it was decided, Stale where its base has moved.
        """
        return written(self._service.write("POST", f"{about.path}/{quote_segment(proposal)}/approval"))

    def reject(self, about: ProposedAbout, proposal: str, *, reason: str = "") -> Proposal:
        """Reject a proposal. Raises NotFound, Conflict once it was decided."""
        path = f"{about.path}/{quote_segment(proposal)}/rejection"
        return document_of(Proposal, self._service.write("POST", path, body={"reason": reason}))

    def withdraw(self, about: ProposedAbout, proposal: str) -> Proposal:
        """Take one's own proposal back. Raises NotFound, Forbidden, Conflict once it was decided."""
        path = f"{about.path}/{quote_segment(proposal)}/withdrawal"
        return document_of(Proposal, self._service.write("POST", path))


"""How much longer than others an answer may take that needs a look at a whole list."""


class ExpectationCalls(Calls):
    """Expectations of tenants' lists: each change is held to them."""

    def read(self, tenant: str) -> KeptExpectations:
        """Return the list's expectations; an empty text has none."""
        return self._service.read_document(KeptExpectations, f"{tenant_path(tenant)}/acl/expectations")

    def keep(self, tenant: str, text: str, *, etag: str | None = None) -> KeptExpectations:
        """Hold each change of the list to this from now on.

        Raises BadInput with the line, TooLarge, Stale.
        """
        path = f"{tenant_path(tenant)}/acl/expectations"
        return document_of(KeptExpectations, self._service.write("PUT", path, body={"text": text}, etag=etag))

    def delete(self, tenant: str, *, etag: str | None = None) -> None:
        """Expect nothing of the list any more. Raises Stale."""
        self._service.write("DELETE", f"{tenant_path(tenant)}/acl/expectations", etag=etag)


class DraftCalls(Calls):
    """Drafts of tenants' lists that others may read."""

    def read_all(self, tenant: str) -> Iterator[SharedDraft]:
        """The drafts that are shared, newest first."""
        return self._service.documents(SharedDraft, f"{tenant_path(tenant)}/acl/drafts")

    def share(self, tenant: str, acl: Acl, *, base: int, message: str = "", days: int = 7) -> SharedDraft:
        """Share a draft with the tenant's members. Raises BadPolicy, TooLarge."""
        body = {"acl": acl_to_json(acl), "base_version": base, "message": message, "days": days}
        return document_of(SharedDraft, self._service.write("POST", f"{tenant_path(tenant)}/acl/drafts", body=body))

    def read(self, tenant: str, draft: str) -> tuple[SharedDraft, Acl]:
        """A shared draft with its list. Raises NotFound, also for one whose time is over."""
        path = f"{tenant_path(tenant)}/acl/drafts/{draft}"
        found = self._service.read_document(SharedDraft, path)
        return found, acl_from_json(json_of(self._service.ask("GET", f"{path}/acl")))

    def delete(self, tenant: str, draft: str) -> None:
        """Share a draft no more. Raises NotFound."""
        self._service.write("DELETE", f"{tenant_path(tenant)}/acl/drafts/{draft}")
