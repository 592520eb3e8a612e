"""Tenants and what is theirs: prefixes, quotas, address groups."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from orchestrator.wire.common import describe, document
from orchestrator.wire.domains import ReturnTrafficWord
from orchestrator.wire.lists import Unconfirmed


@document()
class Limits:
    """Limits of a tenant's list; null: as much as there is."""

    rules: int | None
    flows: int | None
    stored_bytes: int | None = describe("of the list and its history; the oldest versions go first", default=None)
    versions: int | None = describe("how many are kept", default=None)
    streams: int | None = describe("of events that are open at one service; null: 64", default=None)
    analysis_seconds: int | None = describe("for which a service looks at the list in a minute", default=None)


@document()
class Used:
    """Present cost of a tenant's list. `flows` is null while the service is starting."""

    rules: int
    flows: int | None
    stored_bytes: int | None = describe("what the list and its history take up", default=None)
    streams: int | None = describe("of events that are open at this service", default=None)
    analysis_seconds: float | None = describe("for which this service looked at it in the last minute", default=None)


@document(kw_only=True)
class Quota(Limits):
    """Limits of a tenant's list, and its present cost."""

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


@document()
class OwnEndpoint:
    """One of a tenant's endpoints, by the name that its rules and expectations may use."""

    name: str
    prefixes: tuple[str, ...]


NO_HOST = " (the domain has no host yet)"
"""Said behind a list that is in force nowhere, for nothing is there that could enforce it."""


@document()
class InForce:
    """Whether every host of the domain holds the newest version of a tenant's list."""

    version: int
    state: Literal["in force", "behind"]
    since: dt.datetime = describe("when the last host reached it; or since when a host is behind")
    hosts: int
    late: int = describe("how many hosts are behind")
    behind: tuple[str, ...] | None = describe("which hosts; null where the caller is not told")

    def text(self) -> str:
        """Return it in words: ``in force since 2026-11-24 12:00 UTC``, ``behind: host1, host2, since ...``."""
        since = f"since {self.since:%Y-%m-%d %H:%M} UTC"
        if self.state == "in force":
            return f"in force {since}{'' if self.hosts else NO_HOST}"
        names = ", ".join(self.behind) if self.behind else f"{self.late} host{'' if self.late == 1 else 's'}"
        return f"behind: {names}, {since}"


@document(kw_only=True)
class SeenTenant(Tenant):
    """A tenant with the state of its list."""

    used: Used
    in_force: InForce
    return_traffic: ReturnTrafficWord = describe("how its domain lets replies in")
    unconfirmed: Unconfirmed | None = describe("the change of the list that waits to be confirmed", default=None)


@document(kw_only=True)
class WrittenTenant(Tenant):
    """A tenant just written, and the generation that holds it."""

    generation: int


MOST_AT_ONCE = 1_000
"""So many tenants are created in one request: others wait for about a second meanwhile."""


@document()
class TenantToCreate:
    """A tenant that is to be created with others."""

    id: str
    name: str = ""
    prefixes: tuple[str, ...] = ()


@document()
class CreatedTenants:
    """Tenants that were created together, and the generation that holds them all."""

    domain: str
    tenants: int = describe("how many")
    generation: int


@document()
class OwnedPrefixes:
    """The prefixes that a tenant owns."""

    prefixes: tuple[str, ...]


@document(kw_only=True)
class Group:
    """An address group without its members, which have pages of their own."""

    name: str
    description: str
    members: int = describe("how many")
    rules: tuple[str, ...] = describe("the rules that name it, in the list's order")
