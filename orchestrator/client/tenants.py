"""Tenants and what is theirs, as the REST API shows them: quotas, address groups."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.client.records import Json
from orchestrator.policy.addresses import Prefix


@dataclass(frozen=True, slots=True)
class Spending:
    """Rules, and flow entries on a switch: as a quota (None: as much as there is), or as what a list costs."""

    rules: int | None
    flows: int | None

    @classmethod
    def of(cls, body: Json) -> Spending:
        return cls(body["rules"], body["flows"])


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant's list may cost, and what it does."""

    limit: Spending
    used: Spending

    @classmethod
    def of(cls, body: Json) -> Quota:
        return cls(Spending.of(body), Spending.of(body["used"]))


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant, what it owns, and what its list may cost."""

    id: str
    name: str
    domain: str
    number: int
    prefixes: tuple[Prefix, ...]
    version: int
    quota: Spending

    @classmethod
    def of(cls, body: Json) -> Tenant:
        prefixes = tuple(Prefix.parse(text) for text in body["prefixes"])
        quota = Spending.of(body["quota"])
        return cls(body["id"], body["name"], body["domain"], body["number"], prefixes, body["version"], quota)


@dataclass(frozen=True, slots=True)
class Group:
    """An address group: how many members it has, and the rules that name it."""

    name: str
    description: str
    members: int
    rules: tuple[str, ...]

    @classmethod
    def of(cls, body: Json) -> Group:
        return cls(body["name"], body["description"], body["members"], tuple(body["rules"]))
