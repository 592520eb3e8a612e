"""The meaning of a policy, in plain Python.

Every compiler, classifier and placement must agree with this page.

A packet from A to B passes when
  1. an operator rule permits it, or, where no operator rule speaks,
  2. A's egress list permits it (if A is a tenant's address) and B's ingress list permits it (if B is).
In a list the first rule that matches decides; after the tenant's rules comes the return-traffic rule of the domain,
then the direction's default. A packet between two addresses that are nobody's is not ours to carry.

Where a domain tracks connections, this page decides about packets that open one; `connections.py` says the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.policy.addresses import Addresses, Family
from orchestrator.policy.fields import FIELDS, Kind, MatchField
from orchestrator.policy.model import (
    RETURN_RULE_ID,
    Acl,
    Action,
    AddressGroup,
    Direction,
    Packet,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
)
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, only_family

RETURN_RULES = tuple(
    Rule(RETURN_RULE_ID, Action.PERMIT, direction, protocol=TCP, established=True) for direction in Direction
)
"""The last rule of each list under `ReturnTraffic.ESTABLISHED`. It admits ACK scans, as every stateless filter does."""

PATH_MTU_RULES = (
    Rule(RETURN_RULE_ID, Action.PERMIT, Direction.INGRESS, protocol=ICMP, icmp_type=3, icmp_code=4),
    Rule(RETURN_RULE_ID, Action.PERMIT, Direction.INGRESS, protocol=ICMPV6, icmp_type=2),
)
"""The messages of path MTU discovery: fragmentation needed (RFC 792, 1191), packet too big (RFC 4443, 8201).

They stand beside `RETURN_RULES` under `ReturnTraffic.PATH_MTU`, in ingress lists alone. Switches and firewall VNFs
let through at most `Policy.path_mtu_rate` packets of them a second for each tenant; this page says that a packet passes
which is among these.
"""

_LAST_RULES = {
    ReturnTraffic.ESTABLISHED: RETURN_RULES,
    ReturnTraffic.PATH_MTU: RETURN_RULES + PATH_MTU_RULES,
    ReturnTraffic.EXPLICIT: (),
    ReturnTraffic.TRACKED: (),
}


def return_rules(returns: ReturnTraffic) -> tuple[Rule, ...]:
    """The rules that stand behind a tenant's own, of both directions."""
    return _LAST_RULES[returns]


@dataclass(frozen=True, slots=True)
class Step:
    """One list's answer.

    `rule` is None where the list's default decided; `tenant` is None for operator rules.
    """

    tenant: TenantId | None
    direction: Direction | None
    action: Action
    rule: RuleId | None


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and how it came about, in the order in which lists were asked."""

    action: Action
    steps: tuple[Step, ...]

    @property
    def permitted(self) -> bool:
        return self.action is Action.PERMIT


def matches(rule: Rule, packet: Packet, groups: Mapping[str, AddressGroup]) -> bool:
    """Whether a rule's match holds for a packet (its direction is the caller's business)."""
    if only_family(rule.protocol) not in (None, packet.family):
        return False
    if packet.later_fragment and rule.looks_past_the_ip_header:
        return False
    return all(_holds(field, rule, packet, groups) for field in FIELDS)


def _holds(field: MatchField, rule: Rule, packet: Packet, groups: Mapping[str, AddressGroup]) -> bool:
    """Whether one field of a packet is as the rule asks."""
    asked, found = getattr(rule, field.attribute), getattr(packet, field.name)
    match field.kind:
        case Kind.NUMBER:
            return asked is None or bool(asked == found)
        case Kind.PREFIXES:
            return _names_address(asked, groups, packet.family, found)
        case Kind.RANGES:
            return any(each.low <= found <= each.high for each in asked)
        case Kind.BITS:
            return not asked or any(each.holds(found) for each in asked)
        case Kind.SET:
            return asked is None or bool(asked >> found & 1)
        case Kind.LATER:
            return bool(found or not asked)


def _names_address(addresses: Addresses, groups: Mapping[str, AddressGroup], family: Family, address: int) -> bool:
    if addresses.is_any:
        return True
    named = (prefix for name in addresses.groups for prefix in groups[name].prefixes)
    return any(prefix.family is family and prefix.holds(address) for prefix in (*addresses.prefixes, *named))


def first_match(
    rules: Iterable[Rule], packet: Packet, direction: Direction, groups: Mapping[str, AddressGroup]
) -> Rule | None:
    """The first rule of a list that matches a packet in one direction."""
    return next((rule for rule in rules if rule.direction is direction and matches(rule, packet, groups)), None)


def ask(acl: Acl, packet: Packet, direction: Direction, returns: ReturnTraffic, tenant: TenantId | None = None) -> Step:
    """One list's answer for a packet."""
    rule = first_match(acl.rules + return_rules(returns), packet, direction, acl.groups)
    return Step(tenant, direction, rule.action if rule else acl.default(direction), rule.id if rule else None)


def decide(policy: Policy, packet: Packet) -> Decision:
    """The fate of a packet between two addresses, and every list's part in it."""
    sender = owner(policy, packet.family, packet.source)
    receiver = owner(policy, packet.family, packet.destination)
    steps: list[Step] = []
    operator = next((rule for rule in policy.operator if matches(rule, packet, {})), None)
    if operator is not None:
        return Decision(operator.action, (Step(None, None, operator.action, operator.id),))
    for tenant, direction in ((sender, Direction.EGRESS), (receiver, Direction.INGRESS)):
        if tenant is not None:
            steps.append(ask(tenant.acl, packet, direction, policy.return_traffic, tenant.id))
            if steps[-1].action is Action.DENY:
                break
    permitted = bool(steps) and steps[-1].action is Action.PERMIT
    return Decision(Action.PERMIT if permitted else Action.DENY, tuple(steps))


def owner(policy: Policy, family: Family, address: int) -> Tenant | None:
    """The tenant that owns an address. Prefixes are exclusive, so there is at most one."""
    return next((tenant for tenant in policy.tenants if tenant.owns(family, address)), None)
