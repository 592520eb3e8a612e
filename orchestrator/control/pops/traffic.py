"""Paths of packets in a PoP: WAN, server or nowhere, and each tenant's bypass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Action, RuleId, TenantId
from orchestrator.program.program import Tier
from orchestrator.store.pops.poprecords import Counted
from orchestrator.store.unit import Unit


@dataclass(frozen=True, slots=True)
class ServerTraffic:
    """A server's packets by lines and by exceptions, and its present tenants."""

    lines: Counted
    exceptions: Counted
    tenants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TenantTraffic:
    """A tenant's packets: heavy hitters past the servers, and those at servers."""

    server: str | None
    bypassed: Counted
    served: Counted

    @property
    def bypass_share(self) -> float | None:
        """None where there was no packet."""
        every = self.bypassed.packets + self.served.packets
        return self.bypassed.packets / every if every else None


@dataclass(frozen=True, slots=True)
class PopTraffic:
    """Everything that came in from outside, by where it went, since there is an edge.

    `heavy` are permits: what stands above them in their lists and denies has its packets sent on, and these are counted
    by the server that they meet. `gone` is what was counted by rules that are no more, of either kind.
    """

    heavy: Mapping[LiftedRule, Counted]
    gone: Counted
    servers: Mapping[str, ServerTraffic]
    nobody: Counted
    spoofed: Counted
    tenants: Mapping[str, TenantTraffic]


def pop_traffic(unit: Unit, name: str) -> PopTraffic:
    """Return where packets from outside to a PoP went. Raises NotFound."""
    pop = unit.pops.get(name)
    counts = unit.pops.edge_counts(name)
    policy = unit.domains.policy(pop.domain).policy
    rule_of = {
        tenant.rule_numbers[rule.id]: (LiftedRule(tenant.id, RuleId(rule.id)), rule.action)
        for tenant in policy.tenants
        for rule in tenant.acl.rules
        if tenant.rule_numbers[rule.id] in counts.heavy
    }
    permits = [(*rule_of[number], counted) for number, counted in counts.heavy.items() if number in rule_of]
    heavy = {rule: counted for rule, action, counted in permits if action is Action.PERMIT}
    gone = _sum_counts(counted for number, counted in counts.heavy.items() if number not in rule_of)
    server_of = {tenant.id: pop.places.get(tenant.number) for tenant in policy.tenants if tenant.prefixes}
    names = {each.number: each.name for each in pop.servers}
    return PopTraffic(
        heavy=heavy,
        gone=gone,
        servers={
            each.name: ServerTraffic(
                counts.lines.get(each.number, Counted()),
                counts.exceptions.get(each.number, Counted()),
                tuple(sorted(tenant for tenant, number in server_of.items() if number == each.number)),
            )
            for each in pop.servers
        },
        nobody=counts.nobody,
        spoofed=counts.spoofed,
        tenants={
            tenant: TenantTraffic(
                names.get(number) if number is not None else None,
                _sum_counts(counted for rule, counted in heavy.items() if rule.tenant == tenant),
                _server_counts(unit, tenant),
            )
            for tenant, number in server_of.items()
        },
    )


def _server_counts(unit: Unit, tenant: TenantId) -> Counted:
    """Return the firewall servers' counts of a tenant, by its ingress list."""
    hits = unit.hits.totals(tenant, Tier.SERVER)
    lines = (*hits.rules.values(), hits.ingress_default, hits.ingress_return)
    return _sum_counts(Counted(each.packets, each.bytes) for each in lines)


def _sum_counts(counted: Iterable[Counted]) -> Counted:
    total = Counted()
    for each in counted:
        total += each
    return total
