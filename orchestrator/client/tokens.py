"""Bearer tokens as the REST API shows them, and the calls of the client about them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from orchestrator.client.records import Json, time_of
from orchestrator.client.transport import ANY_VERSION, Transport, json_of


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token without its secret."""

    id: int
    role: str
    tenant: str | None
    domain: str | None
    description: str
    expires: dt.datetime | None

    @classmethod
    def of(cls, body: Json) -> Token:
        expires = time_of(body["expires"])
        return cls(body["id"], body["role"], body["tenant"], body["domain"], body["description"], expires)


class TokenCalls:
    """Bearer tokens: the own one, and, for administrators, everybody's."""

    _service: Transport

    def own_token(self) -> Token:
        """Who the service takes us for. Raises Unauthenticated."""
        return Token.of(self._service.read("/v1/tokens/mine"))

    def create_token(
        self, role: str, *, tenant: str | None = None, description: str = "", expires: dt.datetime | None = None
    ) -> tuple[Token, str]:
        """A bearer token and its secret, seen only now."""
        body = {"role": role, "description": description}
        body |= {"tenant": tenant} if tenant else {}
        body |= {"expires": expires.isoformat()} if expires else {}
        answer = json_of(self._service.write("POST", "/v1/tokens", body=body))
        return Token.of(answer), str(answer["token"])

    def tokens(self) -> tuple[Token, ...]:
        """Every token, without secrets."""
        return tuple(map(Token.of, self._service.pages("/v1/tokens")))

    def revoke_token(self, token: int) -> None:
        """Raises NotFound."""
        self._service.write("DELETE", f"/v1/tokens/{token}", etag=ANY_VERSION)
