"""The audit trail, as the REST API shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from orchestrator.client.transport import Transport, document_of
from orchestrator.wire.audit import AuditAnchor, AuditAnchors, AuditEntry, AuditPage

_PAGE = 1000


class AuditCalls:
    """The audit trail: administrators see all of it, members what is about their tenant."""

    _service: Transport

    def audit(
        self, wanted: Mapping[str, str | None], *, marker: int | None = None, limit: int = 100, newest: bool = False
    ) -> AuditPage:
        """Return a page of entries; `wanted` are filters: tenant, who, kind, subject, since, until."""
        query = {"marker": marker, "limit": limit, "newest": newest or None, **wanted}
        return document_of(AuditPage, self._service.ask("GET", "/v1/audit", query=query))

    def audit_entries(self, wanted: Mapping[str, str | None] = MappingProxyType({})) -> Iterator[AuditEntry]:
        """Yield all entries that are wanted, oldest first."""
        marker: int | None = 0
        while marker is not None:
            page = self.audit(wanted, marker=marker, limit=_PAGE)
            yield from page.items
            marker = page.next

    def audit_entry(self, entry: int) -> AuditEntry:
        """Return one entry. Raises NotFound."""
        return self._service.read_document(AuditEntry, f"/v1/audit/{entry}")

    def audit_anchors(self) -> Iterator[AuditAnchor]:
        """Yield all anchors that the database has."""
        after: str | None = None
        while True:
            page = self._service.read_document(AuditAnchors, "/v1/audit/anchors", after=after)
            yield from page.items
            if page.next is None:
                return
            after = page.next
