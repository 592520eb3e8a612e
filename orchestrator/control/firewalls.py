"""The tier of firewall VNFs: each domain's policy compiled for its firewalls' planes.

It is published beside the switches' program, under the same generation.

A firewall holds the whole policy and changes at one moment, so a mix of old and new firewalls lets nothing through that
neither policy permits: where a packet passes several, each must permit it by itself. It needs no intersection first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.compile.filters.rows import Plane, filter_program
from orchestrator.control.publisher import PublishedTier
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Policy, ReturnTraffic
from orchestrator.program.program import Program, Tier
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.unit import Unit


@dataclass(frozen=True, slots=True)
class _Last:
    """The last compilation of a domain."""

    policy: Policy
    planes: frozenset[Plane]
    lifted: tuple[LiftedRule, ...]
    program: Program

    def is_of(self, snapshot: PolicySnapshot, planes: frozenset[Plane]) -> bool:
        """Whether the program would be the same."""
        return self.policy is snapshot.policy and (self.planes, self.lifted) == (planes, snapshot.lifted)


class FirewallTier(PublishedTier[_Last]):
    """Compiles and publishes. Safe between threads."""

    def compile(self, unit: Unit, domain: str, snapshot: PolicySnapshot) -> Program | None:
        """The program of a domain's firewalls; None where it has none.

        Raises TooLarge, BadPolicy and NotExpressible with the place of the rule that the firewalls cannot carry.
        """
        planes = _planes(unit, domain)
        if not planes:
            return None
        with self._lock:
            last = self._known.get(domain)
        if last is not None and last.is_of(snapshot, planes):
            return Program.of(domain, Tier.SERVER, snapshot.generation, last.program.blocks, ())
        policy, lifted = snapshot.policy, snapshot.lifted
        program = filter_program(
            _without_connections(policy), planes, domain=domain, generation=snapshot.generation, lifted=lifted
        )
        with self._lock:
            self._known[domain] = _Last(policy, planes, lifted, program)
        return program


def _without_connections(policy: Policy) -> Policy:
    """A policy as planes hold it that know no connections: replies come in by what they look like."""
    if policy.return_traffic is not ReturnTraffic.TRACKED:
        return policy
    return replace(policy, return_traffic=ReturnTraffic.ESTABLISHED)


def _planes(unit: Unit, domain: str) -> frozenset[Plane]:
    """Return the planes of a domain's firewalls with whole policies.

    Servers of a PoP have a share each.
    """
    pop = unit.pops.of_domain(domain)
    servers = set() if pop is None else {each.name for each in pop.servers}
    return frozenset(plane for name, plane in unit.firewalls.plane_of(domain).items() if name not in servers)
