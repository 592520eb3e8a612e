"""The goals of a domain's firewall servers, and each server's settings.

A tenant that moves is kept by the server that it leaves until the move is enforced everywhere: `leaving` says who is
kept, and with which generation the tenant moved.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.compile.servers.programs import Ask, Peer
from orchestrator.compile.servers.tenants import Lists
from orchestrator.policy.model import TenantId
from orchestrator.policy.prefilter import Misdirect, Share
from orchestrator.store.pops.poprecords import Pop, ServerState
from orchestrator.store.records import PolicySnapshot

_MEET = ("169.254.66.{}", "fd66::{:x}")
"""The addresses of a server where servers meet, by its number."""

Leaving = Mapping[tuple[int, str], int]
"""The generation in which a tenant left a server, by the server's number and the tenant."""


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """The goal of a domain's servers."""

    snapshot: PolicySnapshot
    pop: Pop
    lists: Lists
    changed: frozenset[str]
    """The tenants whose lists changed with it."""

    def moves_from(self, before: Goal) -> Leaving:
        """Which servers that are still there tenants leave, compared with the goal before."""
        lost = {each.number for each in self.pop.servers if each.state is ServerState.LOST}
        there = {each.number for each in self.pop.servers} - lost
        names = {tenant.number: str(tenant.id) for tenant in self.snapshot.policy.tenants}
        return {
            (server, names[tenant]): self.snapshot.generation
            for tenant, server in before.pop.places.items()
            if self.pop.places.get(tenant) not in (None, server) and server in there and tenant in names
        }


@dataclass(slots=True)
class Asks:
    """Servers' settings for programs, by server: unchanged ones are the same objects."""

    _found: Mapping[int, Ask] = field(default_factory=dict)
    _made_of: tuple[object, ...] = ()
    """The PoP, who leaves which server, and who there is."""

    def of(self, goal: Goal, leaving: Leaving) -> Mapping[int, Ask]:
        """For a goal, while some tenants are kept by the servers that they leave."""
        roster = tuple((each.id, each.number) for each in goal.snapshot.policy.tenants)
        made_of = goal.pop, tuple(leaving), roster
        if made_of != self._made_of:
            numbers = [each.number for each in goal.pop.servers]
            self._found = {each: Ask(_share(goal, each, leaving), _peers(goal.pop, each)) for each in numbers}
            self._made_of = made_of
        return self._found


def _share(goal: Goal, number: int, leaving: Leaving) -> Share:
    """Whom a server serves, and where the others are."""
    placed = {
        tenant.id: server
        for tenant in goal.snapshot.policy.tenants
        if (server := goal.pop.places.get(tenant.number)) is not None
    }
    kept = {TenantId(tenant) for server, tenant in leaving if server == number}
    mine = {tenant for tenant, server in placed.items() if server == number} | (kept & placed.keys())
    elsewhere = {tenant: server for tenant, server in placed.items() if tenant not in mine}
    return Share(frozenset(mine), elsewhere, goal.pop.settings.misdirect)


def _peers(pop: Pop, number: int) -> tuple[Peer, ...]:
    """The other servers, where packets are handed to them; else servers need not meet."""
    if pop.settings.misdirect is not Misdirect.REHOME:
        return ()
    others = [each.number for each in pop.servers if each.number != number and each.state is not ServerState.LOST]
    return tuple(Peer(each, tuple(ipaddress.ip_address(form.format(each)) for form in _MEET)) for each in others)
