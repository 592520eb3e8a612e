"""Client calls about bearer tokens and the audit trail."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from orchestrator.client.calls import Calls
from orchestrator.client.transport import ANY_VERSION, document_of
from orchestrator.wire.audit import AuditAnchor, AuditAnchors, AuditEntry, AuditPage
from orchestrator.wire.codec import fill
from orchestrator.wire.enrolment import NewToken, Token


class TokenCalls(Calls):
    """Bearer tokens: the own one, and, for administrators, everybody's."""

    def read_own(self) -> Token:
        """Return the token of the caller, as the service knows it.

        Raises Unauthenticated.
        """
        return self._service.read_document(Token, "/v1/tokens/mine")

    def create(
        self,
        role: str,
        *,
        tenant: str | None = None,
        description: str = "",
        expires: dt.datetime | None = None,
        person: str = "",
    ) -> tuple[Token, str]:
        """Create a token; return it and its secret, which is seen only now.

        `person` bears it, by default the caller.
        """
        body = {"role": role, "description": description, "person": person}
        body |= {"tenant": tenant} if tenant else {}
        body |= {"expires": expires.isoformat()} if expires else {}
        made = document_of(NewToken, self._service.write("POST", "/v1/tokens", body=body))
        return fill(Token, made), made.token

    def rotate(self, token: int, *, overlap: dt.timedelta, expires: dt.datetime | None = None) -> tuple[Token, str]:
        """Return a token's successor and its secret, shown only now.

        The old one ends after the overlap. Raises NotFound.
        """
        body: dict[str, object] = {"overlap_s": overlap.total_seconds()}
        body |= {"expires": expires.isoformat()} if expires else {}
        made = document_of(NewToken, self._service.write("POST", f"/v1/tokens/{token}/rotation", body=body))
        return fill(Token, made), made.token

    def read_all(self) -> tuple[Token, ...]:
        """Every token, without secrets."""
        return tuple(self._service.documents(Token, "/v1/tokens"))

    def revoke(self, token: int) -> None:
        """Make a token invalid. Raises NotFound."""
        self._service.write("DELETE", f"/v1/tokens/{token}", etag=ANY_VERSION)


_PAGE = 1000


class AuditCalls(Calls):
    """The audit trail: administrators see all of it, members what is about their tenant."""

    def read_page(
        self, wanted: Mapping[str, str | None], *, marker: int | None = None, limit: int = 100, newest: bool = False
    ) -> AuditPage:
        """Return a page of entries; `wanted` are filters: tenant, who, kind, subject, since, until."""
        query = {"marker": marker, "limit": limit, "newest": newest or None, **wanted}
        return document_of(AuditPage, self._service.ask("GET", "/v1/audit", query=query))

    def read_entries(self, wanted: Mapping[str, str | None] = MappingProxyType({})) -> Iterator[AuditEntry]:
        """Yield all entries that are wanted, oldest first."""
        marker: int | None = 0
        while marker is not None:
            page = self.read_page(wanted, marker=marker, limit=_PAGE)
            yield from page.items
            marker = page.next

    def read_entry(self, entry: int) -> AuditEntry:
        """Return one entry. Raises NotFound."""
        return self._service.read_document(AuditEntry, f"/v1/audit/{entry}")

    def read_anchors(self) -> Iterator[AuditAnchor]:
        """Yield all anchors that the database has."""
        after: str | None = None
        while True:
            page = self._service.read_document(AuditAnchors, "/v1/audit/anchors", after=after)
            yield from page.items
            if page.next is None:
                return
            after = page.next
