"""Small worlds that many tests of the store begin with."""

from __future__ import annotations

from orchestrator.policy.addresses import Addresses, Prefix
from orchestrator.policy.model import Acl, Action, AddressGroup, Endpoint, GroupName, Rule, RuleId, TenantId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.store import Store

OWN4, OWN6 = Prefix.parse("10.1.0.0/16"), Prefix.parse("2001:db8:1::/48")


def prefix(text: str) -> Prefix:
    return Prefix.parse(text)


def populate(store: Store) -> None:
    """Domain `pop` with tenant `blue`, which owns 10.1.0.0/16 and 2001:db8:1::/48."""
    with store.write() as unit:
        unit.domains.create("pop")
        unit.tenants.create("blue", name="Blue", domain="pop", prefixes=[OWN4, OWN6])


def rule(rule_id: str, port: int = 80, destination: str = "10.1.0.0/24", action: Action = Action.PERMIT) -> Rule:
    return Rule(
        RuleId(rule_id),
        action,
        protocol=TCP,
        destination=Addresses((prefix(destination),)),
        destination_ports=(PortRange(port, port),),
    )


def acl(*rules: Rule) -> Acl:
    return Acl(rules)


def group(name: str, *members: str) -> AddressGroup:
    return AddressGroup(GroupName(name), tuple(map(prefix, members)), "a group")


def endpoint(
    name: str, *prefixes: str, port: str | None = None, tenant: str = "blue", mac: int = 0x020000000001,
    shared: bool = False,
) -> Endpoint:  # fmt: skip
    return Endpoint(name, TenantId(tenant), port or f"tap-{name}", mac, tuple(map(prefix, prefixes)), shared)
