"""Counts of tiers ahead of the hosts: firewall servers, VNFs, and edges.

A packet that they permit goes on and is counted again by its host, so tiers are told apart and never added up; one that
they deny ends there, and no host knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from orchestrator.policy.model import Action
from orchestrator.program.program import Tier
from orchestrator.store.hits.records import RuleHits, TenantHits
from orchestrator.store.unit import Unit


def hits_ahead(unit: Unit, tenant: str, only: Sequence[str] | None = None) -> Mapping[Tier, TenantHits]:
    """Return counts of a tenant's rules on each tier ahead of its domain's hosts.

    Of its current rules, or `only` some of them, and its defaults. Raises NotFound.
    """
    found = {tier: unit.hits.totals(tenant, tier, only) for tier in _tiers(unit, unit.tenants.get(tenant).domain)}
    if Tier.EDGE in found:
        found[Tier.EDGE] = _of_permits(unit, tenant, found[Tier.EDGE])
    return MappingProxyType(found)


def _tiers(unit: Unit, domain: str) -> tuple[Tier, ...]:
    if unit.pops.of_domain(domain) is not None:
        return Tier.SERVER, Tier.EDGE
    return (Tier.SERVER,) if unit.firewalls.planes(domain) else ()


def _of_permits(unit: Unit, tenant: str, found: TenantHits) -> TenantHits:
    """Drop an edge's counts of denies.

    It drops nothing that a list speaks of: what a deny counts there is sent on.
    """
    denies = {rule.id for rule in unit.acls.current(tenant).acl.rules if rule.action is Action.DENY}
    rules = {name: RuleHits() if name in denies else hits for name, hits in found.rules.items()}
    return replace(found, rules=MappingProxyType(rules))
