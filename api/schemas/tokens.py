"""Bearer tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from api.schemas.common import Incoming, Line, Name


class TokenRequest(Incoming):
    """A token to be made. Members and readers are of one tenant, administrators of none."""

    role: Literal["admin", "member", "reader"]
    tenant: Name | None = None
    description: Line = ""
    person: Annotated[str, Field(max_length=64, description="who bears it; without a word, who makes it")] = ""
    expires: Annotated[AwareDatetime | None, Field(strict=False)] = None


class Rotation(Incoming):
    """How a token is replaced.

    Both are good for `overlap_s` seconds, and the new one ends at `expires`.
    """

    overlap_s: Annotated[float, Field(ge=0, le=31_536_000)] = 86_400.0
    expires: Annotated[AwareDatetime | None, Field(strict=False)] = None
