"""Bodies about expectations of a list, and about drafts that are tried and shared."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.schemas.common import BIGGEST, Incoming
from api.schemas.inspection import PacketBody
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.model import Acl

ListDocument = dict[str, Any]
"""A whole list in its native form, read by `acl_from_json`: its errors name the place."""


class TracedBody(PacketBody):
    """A packet to trace, optionally through a draft instead of the tenant's list."""

    acl: ListDocument | None = Field(default=None, description="a draft: traced in the place of the list")

    def draft(self) -> Acl | None:
        """The draft. Raises BadInput, BadPolicy with the place within it."""
        return None if self.acl is None else acl_from_json(self.acl)


class ExpectationsPut(Incoming):
    """Expectations of a list from now on: sentences, as lines or YAML."""

    text: str = Field(max_length=1 << 18, examples=["nobody reaches 198.51.100.20:22 from outside"])


class TestBody(Incoming):
    """A list and its expectations; by default the current list and its kept ones."""

    acl: ListDocument | None = None
    expectations: str | None = Field(default=None, max_length=1 << 18)
    name: str = Field(default="expectations", max_length=255, description="how places name the expectations")


class NewDraft(Incoming):
    """A draft to share with the tenant's members."""

    acl: ListDocument
    base_version: int = Field(ge=0, le=BIGGEST)
    message: str = Field(default="", max_length=1000)
    days: int = Field(default=7, ge=1, le=30)
