"""Tenants, what they own, their quotas, and bearer tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from api.schemas.common import BIGGEST, Incoming, Line, Name, PrefixText
from orchestrator.store.records import Quota
from orchestrator.wire.tenants import MOST_AT_ONCE


class NewTenant(Incoming):
    """A tenant to be registered."""

    id: Name
    name: Line = ""
    domain: Name
    prefixes: list[PrefixText] = Field(default=[], max_length=100_000)


class NewTenantOfMany(Incoming):
    """One of the tenants to be registered in a domain."""

    id: Name
    name: Line = ""
    prefixes: list[PrefixText] = Field(default=[], max_length=1_000)


class NewTenants(Incoming):
    """Tenants of one domain to be registered together: all of them, or none."""

    domain: Name
    tenants: list[NewTenantOfMany] = Field(min_length=1, max_length=MOST_AT_ONCE)


class TenantChange(Incoming):
    """A change of a tenant."""

    name: Line


class Prefixes(Incoming):
    """Prefixes that a tenant alone owns."""

    prefixes: list[PrefixText] = Field(max_length=100_000)


class NewPrefix(Incoming):
    """One more prefix."""

    prefix: PrefixText


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


class QuotaPut(Incoming):
    """Limits of a tenant's list. Null: as much as there is."""

    rules: int | None = Field(ge=0, le=BIGGEST)
    flows: int | None = Field(ge=0, le=BIGGEST, description="flow entries of the domain's program, see /acl/check")

    stored_bytes: int | None = Field(default=None, ge=0, le=BIGGEST, description="of the list and its history")
    versions: int | None = Field(default=None, ge=2, le=BIGGEST, description="how many are kept")
    streams: int | None = Field(default=None, ge=0, le=BIGGEST, description="of events, at one service")
    analysis_seconds: int | None = Field(default=None, ge=0, le=BIGGEST, description="in a minute, at one service")

    def quota(self) -> Quota:
        kept = self.stored_bytes, self.versions
        return Quota(self.rules, self.flows, *kept, self.streams, self.analysis_seconds)
