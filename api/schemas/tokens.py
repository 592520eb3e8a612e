"""Bearer tokens."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from api.schemas.common import Incoming, Line, Name, Outgoing
from orchestrator.store.records import NewToken, TokenRecord


class TokenRequest(Incoming):
    """A token to be made. Members and readers are of one tenant, administrators of none."""

    role: Literal["admin", "member", "reader"]
    tenant: Name | None = None
    description: Line = ""
    expires: Annotated[AwareDatetime | None, Field(strict=False)] = None


class TokenBody(Outgoing):
    """A token without its secret."""

    id: int
    role: str
    tenant: str | None
    domain: str | None
    description: str
    created: dt.datetime
    expires: dt.datetime | None

    @classmethod
    def of(cls, record: TokenRecord) -> TokenBody:
        return cls(
            id=record.id,
            role=record.principal.role.value,
            tenant=record.principal.tenant,
            domain=record.principal.domain,
            description=record.description,
            created=record.created,
            expires=record.expires,
        )


class NewTokenBody(TokenBody):
    """A token just made, with its secret, which is seen only now."""

    token: str

    @classmethod
    def made(cls, new: NewToken) -> NewTokenBody:
        return cls(**TokenBody.of(new.record).model_dump(), token=new.secret)
