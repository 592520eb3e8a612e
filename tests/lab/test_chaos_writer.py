"""The writer of a chaos run knows the list that a tenant has, whatever answers are lost."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.errors import Conflict, Stale, Unreachable
from orchestrator.lab.chaos import writer as writers
from orchestrator.lab.chaos.ledger import Ledger
from orchestrator.lab.chaos.world import FIRST, TENANTS, World
from orchestrator.lab.chaos.writer import Writer
from orchestrator.policy.model import Acl, TenantId

WRITES = 60


@dataclass
class Service:
    """Lists that change as they do in the service; of its answers, and of requests to it, some are lost."""

    loses: float
    draw: random.Random = field(default_factory=lambda: random.Random(5))
    generation: int = 1
    held: dict[TenantId, list[Acl]] = field(default_factory=lambda: {tenant: [FIRST] for tenant in TENANTS})
    waits: dict[TenantId, Acl] = field(default_factory=dict)

    @property
    def acls(self) -> Service:
        return self

    @property
    def domains(self) -> Any:
        return SimpleNamespace(read=lambda _: SimpleNamespace(generation=self.generation))

    def read(self, tenant: TenantId) -> Any:
        return SimpleNamespace(acl=self.held[tenant][-1], etag=str(len(self.held[tenant])))

    def put(self, tenant: TenantId, acl: Acl, *, etag: str, confirm_s: int | None) -> Any:
        self.lose()
        if etag != str(len(self.held[tenant])):
            raise Stale("another version")
        if tenant in self.waits:
            raise Conflict("a change waits")
        if acl != self.held[tenant][-1]:
            if confirm_s is not None:
                self.waits[tenant] = self.held[tenant][-1]
            self.change(tenant, acl)
        return self.answer(tenant)

    def confirm(self, tenant: TenantId, *, etag: str) -> Any:
        self.lose()
        if etag != str(len(self.held[tenant])):
            raise Stale("another version")
        if self.waits.pop(tenant, None) is None:
            raise Conflict("no change waits")
        return self.answer(tenant)

    def revert(self, tenant: TenantId, *, etag: str) -> Any:
        self.lose()
        if etag != str(len(self.held[tenant])):
            raise Stale("another version")
        if tenant not in self.waits:
            raise Conflict("no change waits")
        self.change(tenant, self.waits.pop(tenant))
        return self.answer(tenant)

    def change(self, tenant: TenantId, acl: Acl) -> None:
        self.held[tenant].append(acl)
        self.generation += 1

    def answer(self, tenant: TenantId) -> Any:
        self.lose()
        return SimpleNamespace(etag=str(len(self.held[tenant])), generation=self.generation)

    def lose(self) -> None:
        if self.draw.random() < self.loses:
            raise Unreachable("no answer")


@pytest.mark.parametrize("loses", [0.0, 0.4])
def test_the_outcome_of_every_write_is_known(loses: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "_AGAIN_S", 0.0)
    service, world = Service(loses), World(3)
    ledger = Ledger(world.permits(dict.fromkeys(TENANTS, FIRST)), 1)
    writer = Writer(lambda: nullcontext(service), world, ledger, 0.5)  # type: ignore[arg-type,return-value]
    for _ in range(WRITES):
        writer.write()
        assert not service.waits, "nothing is left to be confirmed"
        assert writer.check(service) == []  # type: ignore[arg-type]
        lists = {tenant: versions[-1] for tenant, versions in service.held.items()}
        assert ledger.newest.generation == service.generation
        assert ledger.newest.permits == world.permits(lists)
    assert writer.errors == []
    assert min(writer.acknowledged, writer.confirmed, writer.taken_back) > 0
