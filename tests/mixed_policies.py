"""Policies that two switches hold at one time, and what such a mix lets through."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import Phase

from orchestrator.errors import TooLarge
from orchestrator.policy.corners import policy_packets
from orchestrator.policy.formats.native import acl_from_json
from orchestrator.policy.intersection import withheld
from orchestrator.policy.listed import Listed
from orchestrator.policy.model import (
    Acl,
    Direction,
    Packet,
    Policy,
    Rule,
    trusted_acl,
)
from orchestrator.policy.narrowing import Withheld, narrow
from orchestrator.policy.oracle import Action, ask, matches, owner

HIGHEST = 10**6
PHASES = (Phase.explicit, Phase.generate)
"""A counterexample has thousands of packets: making it smaller takes longer than reading it."""


def passes_point(policy: Policy, packet: Packet, direction: Direction) -> bool:
    """What the sender's (egress) or the receiver's switch (ingress) says of a packet between two addresses of ours."""
    operator = next((rule for rule in policy.operator if matches(rule, packet, {})), None)
    if operator is not None:
        return operator.action is Action.PERMIT
    address = packet.source if direction is Direction.EGRESS else packet.destination
    tenant = owner(policy, packet.family, address)
    return tenant is not None and ask(tenant.acl, packet, direction, policy.return_traffic).action is Action.PERMIT


def passes(sender: Policy, receiver: Policy, packet: Packet) -> bool:
    """Whether a packet passes when the sender's switch holds one policy and the receiver's another."""
    return passes_point(sender, packet, Direction.EGRESS) and passes_point(receiver, packet, Direction.INGRESS)


def leaks(policies_held: tuple[Policy, ...], allowed: tuple[Policy, ...], packets: tuple[Packet, ...]) -> list[Packet]:
    """The packets that some mix lets through and no policy of `allowed` permits."""
    return [
        packet
        for packet in packets
        if any(passes(one, other, packet) for one in policies_held for other in policies_held)
        and not any(passes(each, each, packet) for each in allowed)
    ]


def step(before: Policy, after: Policy) -> tuple[Policy, Withheld]:
    back = withheld([before], after)
    return narrow(after, back, highest_number=HIGHEST), back


def packets_of(*several: Policy) -> tuple[Packet, ...]:
    found: dict[Packet, None] = {}
    for policy in several:
        found.update(dict.fromkeys(policy_packets(policy)))
    return tuple(
        packet
        for packet in found
        if all(owner(several[0], packet.family, end) is not None for end in (packet.source, packet.destination))
    )


def alike(before: Policy, after: Policy) -> Policy:
    """The other policy with the first one's tenants and operator, so that only lists differ."""
    lists = {tenant.id: tenant for tenant in after.tenants}
    tenants = tuple(
        replace(tenant, acl=lists[tenant.id].acl, rule_numbers=lists[tenant.id].rule_numbers)
        if tenant.id in lists
        else tenant
        for tenant in before.tenants
    )
    return replace(before, tenants=tenants, return_traffic=after.return_traffic)


def with_list(policy: Policy, rules: Listed[Rule]) -> Policy:
    tenant = policy.tenants[0]
    acl = trusted_acl(rules, tenant.acl.groups, tenant.acl.ingress_default, tenant.acl.egress_default)
    numbers = {rule.id: 1 + place for place, rule in enumerate(rules)}
    return replace(policy, tenants=(replace(tenant, acl=acl, rule_numbers=numbers),))


def too_large(*_: object, **__: object) -> None:
    raise TooLarge("too many boxes")


# ------------------------------------------------------------------------------------ where connections are tracked


def deny(direction: str, port: int) -> Acl:
    return acl_from_json(
        {
            "rules": [
                {"id": "no", "action": "deny", "direction": direction, "protocol": "tcp", "destination_ports": port},
                {"id": "all", "action": "permit"},
            ]
        }
    )


def policy_with(policy: Policy, acl: Acl) -> Policy:
    numbers = {rule.id: 1 + place for place, rule in enumerate(acl.rules)}
    return replace(policy, operator=(), tenants=(replace(policy.tenants[0], acl=acl, rule_numbers=numbers),))
