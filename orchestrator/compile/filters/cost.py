"""Estimate an access list's cost to a firewall VNF before it is committed."""

from __future__ import annotations

from orchestrator.compile.filters.iptables import iptables_lines
from orchestrator.compile.filters.lists import WORLDS, tenant_lists
from orchestrator.compile.nftables.plan import plan
from orchestrator.compile.nftables.size import LOOKUP_NS, RULE_NS, Size, dearest_way
from orchestrator.compile.nftables.space import Space
from orchestrator.compile.nftables.write import Declarations, PlanWriter
from orchestrator.policy.model import Acl, ReturnTraffic, Tenant, TenantId
from orchestrator.wire.costs import FirewallCost


def firewall_cost(acl: Acl, returns: ReturnTraffic = ReturnTraffic.ESTABLISHED) -> FirewallCost:
    """The cost of a list. Raises TooLarge where it cannot be expanded."""
    numbers: dict[str, int] = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    lists = tenant_lists(Tenant(TenantId("cost"), 1, (), acl, numbers), returns)
    nftables: list[str] = []
    dearest = Size(0, 0)
    for each in lists:
        for world in WORLDS:
            space = Space.of(tuple(each.rows(world).lines()), world.family)
            found = plan(space)
            declared = Declarations()
            declared.chain(each.name, PlanWriter(declared, each.name, space, each.tenant).rules(found))
            nftables += declared.lines
            dearest = max(dearest, dearest_way(found), key=lambda way: way.lookups * LOOKUP_NS + way.rules * RULE_NS)
    return FirewallCost(
        iptables_lines=iptables_lines(lists),
        nftables_lines=len(nftables) + len(lists) * len(WORLDS),  # the defaults
        nftables_elements=sum(line.endswith(",") for line in nftables),
        nftables_lookups=dearest.lookups,
        nftables_rules=dearest.rules,
    )
