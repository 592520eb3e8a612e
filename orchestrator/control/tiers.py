"""The tiers beside the hosts, compiled and published under the same generations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from orchestrator.control.firewalls import FirewallTier
from orchestrator.control.pops.edges import EdgeTier
from orchestrator.control.pops.manager import ServerManager
from orchestrator.control.publisher import Publisher
from orchestrator.errors import NotFound
from orchestrator.program.program import Program, Tier
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.unit import Unit

Programs = Mapping[Tier, Program | None]
"""A program for each of these tiers; None where the domain does not have the tier."""


class OneTier(Protocol):
    """Makes and publishes the programs of one tier."""

    publisher: Publisher

    def compile(self, unit: Unit, domain: str, snapshot: PolicySnapshot) -> Program | None:
        """Compile a domain; None where it lacks the tier.

        Raises what refuses a change.
        """
        ...

    def publish(self, domain: str, program: Program | None) -> None:
        """Make a program current. None: the domain does not have the tier (any more)."""
        ...

    def forget(self, domain: str) -> None:
        """Drop what is kept for a domain."""
        ...


class Tiers:
    """All of them. Safe between threads."""

    def __init__(
        self,
        firewalls: FirewallTier | None = None,
        edges: EdgeTier | None = None,
        servers: ServerManager | None = None,
    ) -> None:
        self.edges = edges or EdgeTier(Publisher())
        self.servers = servers or ServerManager(Publisher(), lambda _domain, _generation: True)
        self._tiers: Mapping[Tier, OneTier] = {
            Tier.SERVER: firewalls or FirewallTier(Publisher()),
            Tier.EDGE: self.edges,
        }

    @property
    def publishers(self) -> tuple[Publisher, ...]:
        """Those that give the programs out."""
        return (*(each.publisher for each in self._tiers.values()), self.servers.publisher)

    def publisher(self, tier: Tier) -> Publisher:
        """Return the publisher of a tier's programs."""
        return self._tiers[tier].publisher

    def has_programs(self, domain: str) -> bool:
        """Return whether a domain has programs of these tiers."""
        return any(each.publisher.program(domain) is not None for each in self._tiers.values())

    def compile(self, unit: Unit, domain: str, snapshot: PolicySnapshot) -> Programs:
        """The programs of a domain. Raises what refuses a change, with its place."""
        programs = {tier: each.compile(unit, domain, snapshot) for tier, each in self._tiers.items()}
        self.servers.prepare(unit, domain, snapshot)
        return programs

    def publish(self, domain: str, generation: int, programs: Programs) -> None:
        """Make the programs of a generation current."""
        for tier, program in programs.items():
            self._tiers[tier].publish(domain, program)
        self.servers.publish(domain, generation)

    def forget(self, domain: str) -> None:
        """Drop what is kept for a domain."""
        for each in self._tiers.values():
            each.forget(domain)
        self.servers.forget(domain)


def require(unit: Unit, tier: Tier, domain: str) -> None:
    """Raises NotFound where a domain does not have a tier."""
    if tier is Tier.SERVER and not unit.firewalls.planes(domain):
        raise NotFound(f"the domain '{domain}' has no firewall VNFs")
    if tier is Tier.EDGE and unit.pops.of_domain(domain) is None:
        raise NotFound(f"the domain '{domain}' has no PoP")
