"""Tenants and what is theirs: prefixes, quotas, address groups."""

from __future__ import annotations

import datetime as dt

from orchestrator.wire.common import described, document


@document()
class Limits:
    """What a tenant's list may cost; null: as much as there is."""

    rules: int | None
    flows: int | None


@document()
class Used:
    """What a tenant's list costs now. `flows` is null while the service is starting."""

    rules: int
    flows: int | None


@document()
class Quota(Limits):
    """What a tenant's list may cost, and what it does."""

    used: Used


@document(kw_only=True)
class Tenant:
    """A tenant. `number` stands for it in registers and cookies of flow entries."""

    id: str
    name: str
    domain: str
    number: int
    prefixes: tuple[str, ...]
    quota: Limits
    version: int
    created: dt.datetime


@document(kw_only=True)
class SeenTenant(Tenant):
    """A tenant, and what its list costs now."""

    used: Used


@document(kw_only=True)
class WrittenTenant(Tenant):
    """A tenant just written, and the generation that holds it."""

    generation: int


@document()
class OwnedPrefixes:
    """What a tenant owns."""

    prefixes: tuple[str, ...]


@document(kw_only=True)
class Group:
    """An address group without its members, which have pages of their own."""

    name: str
    description: str
    members: int = described("how many")
    rules: tuple[str, ...] = described("the rules that name it, in the list's order")
