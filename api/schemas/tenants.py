"""Tenants and what they own."""

from __future__ import annotations

import datetime as dt

from pydantic import Field

from api.schemas.common import Incoming, Line, Name, Outgoing, PrefixText
from api.schemas.cost import LimitsBody, UsedBody
from orchestrator.store.records import TenantRecord


class NewTenant(Incoming):
    """A tenant to be registered."""

    id: Name
    name: Line = ""
    domain: Name
    prefixes: list[PrefixText] = Field(default=[], max_length=100_000)


class TenantChange(Incoming):
    """What may be changed of a tenant."""

    name: Line


class TenantBody(Outgoing):
    """A tenant. `number` stands for it in registers and cookies of flow entries."""

    id: str
    name: str
    domain: str
    number: int
    prefixes: list[str]
    quota: LimitsBody
    version: int
    created: dt.datetime

    @classmethod
    def of(cls, record: TenantRecord) -> TenantBody:
        return cls(
            id=record.id,
            name=record.name,
            domain=record.domain,
            number=record.number,
            prefixes=list(map(str, record.prefixes)),
            quota=LimitsBody.of(record.quota),
            version=record.version,
            created=record.created,
        )


class SeenTenant(TenantBody):
    """A tenant, and what its list costs now."""

    used: UsedBody

    @classmethod
    def with_use(cls, record: TenantRecord, used: UsedBody) -> SeenTenant:
        return cls(**TenantBody.of(record).model_dump(), used=used)


class WrittenTenant(TenantBody):
    """A tenant just written, and the generation that holds it."""

    generation: int

    @classmethod
    def at(cls, record: TenantRecord, generation: int) -> WrittenTenant:
        return cls(**TenantBody.of(record).model_dump(), generation=generation)


class Prefixes(Incoming):
    """What a tenant owns, exclusively."""

    prefixes: list[PrefixText] = Field(max_length=100_000)


class PrefixesBody(Outgoing):
    """What a tenant owns."""

    prefixes: list[str]


class NewPrefix(Incoming):
    """One more prefix."""

    prefix: PrefixText
