"""Estimate an access list's cost to a firewall VNF before it is committed.

A plan's cost is the most that a packet meets on its way through it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.compile.filters.filterlists import WORLDS, FilterList, tenant_lists
from orchestrator.compile.filters.iptables import iptables_lines
from orchestrator.compile.lists.alone import tenant_alone
from orchestrator.compile.nftables.plan import Cut, Plan, Rules, Sequence, Table, plan
from orchestrator.compile.nftables.space import Space
from orchestrator.compile.nftables.write import Declarations, PlanWriter
from orchestrator.policy.model import Acl, ReturnTraffic, Tenant, TenantId
from orchestrator.policy.stateless import view_of_tracking
from orchestrator.wire.costs import FirewallCost


@dataclass(frozen=True, slots=True)
class Size:
    """A plan's size.

    `lookups` and `rules`: the most that a packet without a match meets.
    """

    lookups: int
    rules: int


LOOKUP_NS, RULE_NS = 100, 10
"""Roughly what a look-up and a rule cost a packet: what makes one way dearer than another."""


def dearest_way(plan: Plan) -> Size:
    """The way through a plan on which a packet meets most."""
    return _Ways().dearest(plan)


class _Ways:
    """Remembers parts that several ways lead to."""

    def __init__(self) -> None:
        self._known: dict[int, Size] = {}

    def dearest(self, plan: Plan) -> Size:
        """Return the size of the dearest way through a plan."""
        if id(plan) not in self._known:
            self._known[id(plan)] = self._measure_plan(plan)
        return self._known[id(plan)]

    def _measure_plan(self, plan: Plan) -> Size:
        if isinstance(plan, Rules):
            return Size(0, len(plan.rows))
        if isinstance(plan, Table):
            return Size(1, 0)
        if isinstance(plan, Cut):
            ways = [self.dearest(span.then) for span in plan.spans]
            worst = max(ways, key=lambda each: each.lookups * LOOKUP_NS + each.rules * RULE_NS)
            return Size(worst.lookups + 1, worst.rules)
        assert isinstance(plan, Sequence)
        parts = [self.dearest(part) for part in plan.parts]
        return Size(sum(each.lookups for each in parts), sum(each.rules for each in parts))


def firewall_cost(acl: Acl, returns: ReturnTraffic = ReturnTraffic.ESTABLISHED) -> FirewallCost:
    """The cost of a list. Raises TooLarge where it cannot be expanded.

    Among stateless rules nftables has three lists of it: one about first packets, and two about packets.
    """
    numbers: dict[str, int] = {rule.id: number for number, rule in enumerate(acl.rules, 1)}
    tenant = Tenant(TenantId("cost"), 1, (), acl, numbers)
    lists: tuple[FilterList, ...] = tenant_lists(tenant, returns)
    if returns is ReturnTraffic.TRACKED and acl.has_stateless:
        alone = tenant_lists(tenant_alone(tenant), returns)
        lists = (*tenant_lists(replace(tenant, acl=view_of_tracking(acl)), returns), *alone, *alone)
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
