"""Tenants and what they own."""

from __future__ import annotations

from pydantic import Field

from api.schemas.common import Incoming, Line, Name, PrefixText


class NewTenant(Incoming):
    """A tenant to be registered."""

    id: Name
    name: Line = ""
    domain: Name
    prefixes: list[PrefixText] = Field(default=[], max_length=100_000)


class TenantChange(Incoming):
    """What may be changed of a tenant."""

    name: Line


class Prefixes(Incoming):
    """What a tenant owns, exclusively."""

    prefixes: list[PrefixText] = Field(max_length=100_000)


class NewPrefix(Incoming):
    """One more prefix."""

    prefix: PrefixText
