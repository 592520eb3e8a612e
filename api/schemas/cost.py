"""What lists cost, and what tenants may spend."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import Field

from api.schemas.common import BIGGEST, Incoming, Outgoing, Written
from orchestrator.compile.cost import Cost, ListCost
from orchestrator.compile.filters.cost import FirewallCost
from orchestrator.compile.pipelines.host import HIGHEST_RULE_PRIORITY, LOWEST_RULE_PRIORITY
from orchestrator.compile.tcam import TcamCost
from orchestrator.store.records import Quota


class ListCostBody(Outgoing):
    """What one direction of a list costs on a switch, return traffic included."""

    rules: int
    flows: int = Field(description="flow entries")
    levels: int = Field(description="priorities that rules which overlap one another need")
    shapes: int = Field(description="hash tables that the first packet of a flow may be looked up in")

    @classmethod
    def of(cls, cost: ListCost) -> ListCostBody:
        return cls(rules=cost.rules, flows=cost.flows, levels=cost.levels, shapes=cost.shapes)


class TcamCostBody(Outgoing):
    """What both directions of a list would need of a ternary CAM, with port ranges cut into aligned blocks."""

    ipv4_entries: int
    ipv6_entries: int
    slots: int = Field(description="of 160 bits: an IPv4 entry takes one, an IPv6 entry four")

    @classmethod
    def of(cls, cost: TcamCost) -> TcamCostBody:
        return cls(ipv4_entries=cost.ipv4_entries, ipv6_entries=cost.ipv6_entries, slots=cost.slots)


class FirewallCostBody(Outgoing):
    """What both directions of a list cost a firewall VNF, return traffic and defaults included."""

    iptables_lines: int = Field(description="a packet meets them one after the other")
    nftables_lines: int
    nftables_elements: int = Field(description="lines that are elements of maps")
    nftables_lookups: int = Field(description="lookups in maps of one packet, on the dearest way")
    nftables_rules: int = Field(description="rules that one packet meets, on the dearest way")

    @classmethod
    def of(cls, cost: FirewallCost) -> FirewallCostBody:
        return cls(**asdict(cost))


class CostBody(Outgoing):
    """What a list costs on each kind of device. One of more than `most_levels` levels is refused when it is written."""

    ingress: ListCostBody
    egress: ListCostBody
    tcam: TcamCostBody
    firewall: FirewallCostBody | None = Field(description="null where it was not asked, or took too long to tell")
    most_levels: int
    widest_rule: str | None = Field(description="the rule that needs the most flow entries")
    widest_rule_flows: int

    @classmethod
    def of(cls, cost: Cost, firewall: FirewallCost | None = None) -> CostBody:
        return cls(
            ingress=ListCostBody.of(cost.ingress),
            egress=ListCostBody.of(cost.egress),
            tcam=TcamCostBody.of(cost.tcam),
            firewall=FirewallCostBody.of(firewall) if firewall is not None else None,
            most_levels=HIGHEST_RULE_PRIORITY - LOWEST_RULE_PRIORITY + 1,
            widest_rule=cost.widest_rule,
            widest_rule_flows=cost.widest_rule_flows,
        )


class WrittenList(Written):
    """What a change of a list came to, and, where it was asked for with `cost=true`, what the list now costs."""

    cost: CostBody | None = None


class QuotaPut(Incoming):
    """What a tenant's list may cost. Null: as much as there is."""

    rules: int | None = Field(ge=0, le=BIGGEST)
    flows: int | None = Field(ge=0, le=BIGGEST, description="flow entries of the domain's program, see /acl/check")

    def quota(self) -> Quota:
        return Quota(self.rules, self.flows)


class UsedBody(Outgoing):
    """What a tenant's list costs now. `flows` is null while the service is starting."""

    rules: int
    flows: int | None


class LimitsBody(Outgoing):
    """What a tenant's list may cost; null: as much as there is."""

    rules: int | None
    flows: int | None

    @classmethod
    def of(cls, quota: Quota) -> LimitsBody:
        return cls(rules=quota.rules, flows=quota.flows)


class QuotaBody(LimitsBody):
    """What a tenant's list may cost, and what it does."""

    used: UsedBody
