"""A domain with a shop whose rules are worth lifting, for tests of what stands above lists.

The web server is 10.29.4.2. Its list lets everybody in to port 80 but for a lab, and says more of other things; its
replies may go anywhere but to 10.66.0.0/16. The operator keeps one network out and lets its monitor in everywhere.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import ANY, Addresses, Prefix
from orchestrator.policy.model import (
    Acl,
    Action,
    Direction,
    Endpoint,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.ports import EVERY_PORT, PortRange
from orchestrator.policy.protocols import TCP, UDP

WEB = "10.29.4.2/32"
SHOP = TenantId("shop")


def rule(
    name: str, action: str, source: str = "", destination: str = "", port: int = 0, *, protocol: int | None = TCP,
    direction: Direction = Direction.INGRESS,
) -> Rule:  # fmt: skip
    """A rule in a line; sides and ports that are left out are any."""
    sides = [Addresses((Prefix.parse(side),)) if side else ANY for side in (source, destination)]
    ports = (PortRange(port, port),) if port else EVERY_PORT
    return Rule(
        RuleId(name), Action(action), direction, protocol, sides[0], sides[1], destination_ports=ports
    )  # fmt: skip


RULES = (
    rule("lab", "deny", "10.9.0.0/16", WEB, 80),
    rule("ssh", "permit", "192.0.2.0/24", WEB, 22),
    rule("web", "permit", "", WEB, 80),
    rule("dns", "permit", "", WEB, 53, protocol=UDP),
    rule("partners", "permit", "198.51.100.0/24"),
    rule("updates", "permit", WEB, "203.0.113.0/24", 443, direction=Direction.EGRESS),
    rule("quiet", "deny", WEB, "10.66.0.0/16", protocol=None, direction=Direction.EGRESS),
)
OPERATOR = (
    rule("kept-out", "deny", "100.64.0.0/10", protocol=None),
    rule("monitor", "permit", "172.31.0.0/24", "", 9100),
)


def policy(
    *rules: Rule, operator: tuple[Rule, ...] = OPERATOR, returns: ReturnTraffic = ReturnTraffic.ESTABLISHED
) -> Policy:
    """The shop with these rules (those above, if there are none) and a neighbour."""
    listed = rules or RULES
    numbers = {each.id: number for number, each in enumerate(listed, 1)}
    shop = Tenant(SHOP, 7, (Prefix.parse("10.29.4.0/24"),), Acl(listed), numbers)
    inn = (rule("all", "permit", protocol=None),)
    neighbour = Tenant(TenantId("inn"), 8, (Prefix.parse("10.30.0.0/24"),), Acl(inn), {"all": 90})
    return Policy(
        tenants=(neighbour, shop),
        operator=operator,
        operator_numbers={each.id: number for number, each in enumerate(operator, 900)},
        return_traffic=returns,
        endpoints=(
            Endpoint("web0", SHOP, "web0", 0x02_00_00_00_00_02, (Prefix.parse(WEB),)),
            Endpoint("inn0", TenantId("inn"), "inn0", 0x02_00_00_00_00_03, (Prefix.parse("10.30.0.5/32"),)),
        ),
    )


def named(*rules: str) -> list[LiftedRule]:
    """Rules of the shop by name."""
    return [LiftedRule(SHOP, RuleId(each)) for each in rules]


def with_first(world: Policy, first: Rule) -> Policy:
    """The shop's list with one more rule at the top; the others are the same objects."""
    neighbour, shop = world.tenants
    acl = replace(shop.acl, rules=(first, *shop.acl.rules))
    return replace(world, tenants=(neighbour, replace(shop, acl=acl, rule_numbers={**shop.rule_numbers, first.id: 99})))
