"""Bearer tokens."""

from __future__ import annotations

import datetime as dt
from dataclasses import field

from orchestrator.wire.common import describe, document


@document(kw_only=True)
class Token:
    """A token without its secret."""

    id: int
    role: str
    tenant: str | None
    domain: str | None
    description: str
    created: dt.datetime
    expires: dt.datetime | None
    person: str = describe("the person that bears it; without a name, a person of its own", default="")
    made_by: str | None = describe("another person that made it, and has seen its secret", default=None)


@document(kw_only=True)
class NewToken(Token):
    """A token just made, with its secret, which is seen only now."""

    token: str = field(repr=False)
