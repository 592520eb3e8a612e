"""Tenants and what they own."""

from __future__ import annotations

from pydantic import Field

from api.schemas.common import Incoming, Line, Name, PrefixText
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
