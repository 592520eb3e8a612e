"""Bodies of tenants' quotas."""

from __future__ import annotations

from pydantic import Field

from api.schemas.common import BIGGEST, Incoming
from orchestrator.store.records import Quota


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
