"""Expectations of tenants' lists and shared drafts, as the REST API shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.client.paths import tenant_path
from orchestrator.client.transport import Transport, document_of, json_of
from orchestrator.policy.formats.native import acl_from_json, acl_to_json
from orchestrator.policy.model import Acl
from orchestrator.wire.expectations import JudgedList, KeptExpectations, SharedDraft

_LOOKED_AT_S = 120.0
"""How much longer than others an answer may take that needs a look at a whole list."""


class DraftCalls:
    """Expectations and shared drafts."""

    _service: Transport

    def expectations(self, tenant: str) -> KeptExpectations:
        """Return the list's expectations; an empty text has none."""
        return self._service.read_document(KeptExpectations, f"{tenant_path(tenant)}/acl/expectations")

    def keep_expectations(self, tenant: str, text: str, *, etag: str | None = None) -> KeptExpectations:
        """Hold each change of the list to this from now on.

        Raises BadInput with the line, TooLarge, Stale.
        """
        path = f"{tenant_path(tenant)}/acl/expectations"
        return document_of(KeptExpectations, self._service.write("PUT", path, body={"text": text}, etag=etag))

    def delete_expectations(self, tenant: str, *, etag: str | None = None) -> None:
        """Expect nothing of the list any more. Raises Stale."""
        self._service.write("DELETE", f"{tenant_path(tenant)}/acl/expectations", etag=etag)

    def test_acl(
        self, tenant: str, acl: Acl | None = None, expectations: str | None = None, *, name: str = "expectations"
    ) -> JudgedList:
        """Check a list against expectations; by default the current list and kept expectations.

        Raises BadInput.
        """
        body: dict[str, Any] = {"name": name}
        if acl is not None:
            body["acl"] = acl_to_json(acl)
        if expectations is not None:
            body["expectations"] = expectations
        path = f"{tenant_path(tenant)}/acl/test"
        return document_of(JudgedList, self._service.ask("POST", path, body=body, held_s=_LOOKED_AT_S))

    def drafts(self, tenant: str) -> Iterator[SharedDraft]:
        """The drafts that are shared, newest first."""
        return self._service.documents(SharedDraft, f"{tenant_path(tenant)}/acl/drafts")

    def share_draft(self, tenant: str, acl: Acl, *, base: int, message: str = "", days: int = 7) -> SharedDraft:
        """Share a draft with the tenant's members. Raises BadPolicy, TooLarge."""
        body = {"acl": acl_to_json(acl), "base_version": base, "message": message, "days": days}
        return document_of(SharedDraft, self._service.write("POST", f"{tenant_path(tenant)}/acl/drafts", body=body))

    def draft(self, tenant: str, draft: str) -> tuple[SharedDraft, Acl]:
        """A shared draft with its list. Raises NotFound, also for one whose time is over."""
        path = f"{tenant_path(tenant)}/acl/drafts/{draft}"
        found = self._service.read_document(SharedDraft, path)
        return found, acl_from_json(json_of(self._service.ask("GET", f"{path}/acl")))

    def delete_draft(self, tenant: str, draft: str) -> None:
        """Share a draft no more. Raises NotFound."""
        self._service.write("DELETE", f"{tenant_path(tenant)}/acl/drafts/{draft}")
