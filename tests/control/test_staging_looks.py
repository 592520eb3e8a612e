"""How often the database is asked what hosts hold, while one change follows the other."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from orchestrator.control.staging import Staging
from orchestrator.policy.model import Acl, Action, Policy, Rule, RuleId, Tenant, TenantId
from orchestrator.policy.narrowing import Withheld
from orchestrator.store.records import PolicySnapshot

_BEGAN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_LIST = Policy((Tenant(TenantId("t"), 1, (), Acl()),))


@dataclass(slots=True)
class Hosts:
    """Hosts that follow at once, and a clock that a change takes some milliseconds of."""

    generation: int = 0
    seconds: float = 0.0
    jumped_s: float = 0.0
    read_back: dt.datetime | None = None
    asked_at: list[int] = field(default_factory=list)

    def switches(self, _domain: str) -> list[Any]:
        self.asked_at.append(self.generation)
        held = {
            "generation": self.generation,
            "digest": digest_of(self.generation),
            "reported": self.read_back or self.now,
        }
        return [SimpleNamespace(**held, is_strange=False)]

    @property
    def now(self) -> dt.datetime:
        return _BEGAN + dt.timedelta(seconds=self.seconds + self.jumped_s)

    @property
    def unit(self) -> Any:
        nothing_kept = SimpleNamespace(drop=lambda _domain: None)
        return SimpleNamespace(moves_hosts=False, now=self.now, enforcers=self, intersections=nothing_kept)


def digest_of(generation: int) -> bytes:
    return generation.to_bytes(16, "big")


def snapshot_of(generation: int) -> PolicySnapshot:
    """The policy with a list of its own."""
    (tenant,) = _LIST.tenants
    acl = Acl((Rule(RuleId(f"r{generation}"), Action.PERMIT),))
    return PolicySnapshot(replace(_LIST, tenants=(replace(tenant, acl=acl),)), generation)


def publish(staging: Staging, hosts: Hosts, generation: int) -> None:
    """One change, which hosts hold some milliseconds later."""
    program: Any = SimpleNamespace(domain="pop", generation=generation, digest=digest_of(generation))
    staging.note_published(generation, snapshot_of(generation), program)
    hosts.generation = generation
    hosts.seconds += 0.005


def test_it_is_asked_now_and_then_however_long_changes_go_on() -> None:
    hosts, changes = Hosts(), 1000
    staging = Staging(clock=lambda: hosts.seconds)
    publish(staging, hosts, 1)
    for generation in range(2, changes):
        assert staging.held_back(hosts.unit, "pop", snapshot_of(generation)) == Withheld()
        publish(staging, hosts, generation)
    assert len(hosts.asked_at) < changes / 50
    assert len(known_generations(staging)) <= 256


def test_a_clock_that_jumps_ages_no_read_back() -> None:
    """A switch's cache may still decide by what was there before: it has had no time to follow."""
    hosts = Hosts()
    staging = Staging(clock=lambda: hosts.seconds)
    publish(staging, hosts, 1)
    staging.held_back(hosts.unit, "pop", snapshot_of(2))
    publish(staging, hosts, 2)
    hosts.read_back = hosts.now
    hosts.jumped_s = 3600.0
    assert could_be_held(staging, hosts) == {1, 2}
    hosts.seconds += 1.0
    assert could_be_held(staging, hosts) == {2}


def could_be_held(staging: Staging, hosts: Hosts) -> set[int]:
    """The generations of ours that packets may still be decided by."""
    staging.decide(hosts.unit, "pop", snapshot_of(hosts.generation + 1))
    return known_generations(staging)


def known_generations(staging: Staging) -> set[int]:
    return {each.generation for each in staging.histories["pop"].programs}
