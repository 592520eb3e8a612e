"""Bearer tokens as the REST API shows them, and the client's calls."""

from __future__ import annotations

import datetime as dt

from orchestrator.client.transport import ANY_VERSION, Transport, document_of
from orchestrator.wire.codec import fill
from orchestrator.wire.tokens import NewToken, Token


class TokenCalls:
    """Bearer tokens: the own one, and, for administrators, everybody's."""

    _service: Transport

    def own_token(self) -> Token:
        """Return the token of the caller, as the service knows it.

        Raises Unauthenticated.
        """
        return self._service.read_document(Token, "/v1/tokens/mine")

    def create_token(
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

    def rotate_token(
        self, token: int, *, overlap: dt.timedelta, expires: dt.datetime | None = None
    ) -> tuple[Token, str]:
        """Return a token's successor and its secret, shown only now.

        The old one ends after the overlap. Raises NotFound.
        """
        body: dict[str, object] = {"overlap_s": overlap.total_seconds()}
        body |= {"expires": expires.isoformat()} if expires else {}
        made = document_of(NewToken, self._service.write("POST", f"/v1/tokens/{token}/rotation", body=body))
        return fill(Token, made), made.token

    def tokens(self) -> tuple[Token, ...]:
        """Every token, without secrets."""
        return tuple(self._service.documents(Token, "/v1/tokens"))

    def revoke_token(self, token: int) -> None:
        """Raises NotFound."""
        self._service.write("DELETE", f"/v1/tokens/{token}", etag=ANY_VERSION)
