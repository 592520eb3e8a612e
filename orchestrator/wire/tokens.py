"""Bearer tokens."""

from __future__ import annotations

import datetime as dt
from dataclasses import field

from orchestrator.wire.common import described, document


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
    person: str = described("the person that bears it; without a name, a person of its own", default="")
    made_by: str | None = described("another person that made it, and has seen its secret", default=None)


@document(kw_only=True)
class NewToken(Token):
    """A token just made, with its secret, which is seen only now."""

    token: str = field(repr=False)
