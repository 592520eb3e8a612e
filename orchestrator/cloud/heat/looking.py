"""What of a stack is asked of Heat, Nova and Neutron, put together as one sight."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.cloud.heat.api import Member, OpenStack, Stack
from orchestrator.cloud.heat.members import Group
from orchestrator.cloud.heat.sight import Sight


def look(
    openstack: OpenStack, stack: Stack, found: Sequence[Member], group: Group, *, autonomous: bool = False
) -> Sight:
    """One look at a stack whose members were read. Raises what `OpenStack` raises, so nothing is half seen."""
    servers = openstack.servers(stack.name) if found else {}
    ports = openstack.ports([port for member in found for port in member.ports.values()])
    going = frozenset(filter(None, stack.parameters.get("removed", "").split(",")))
    return Sight(stack, found, group, servers, ports, going, autonomous)


def as_named_by_heat(name: str, found: Sequence[Member]) -> Group:
    """Members of a stack that is not ours to change: called after the stack, or whatever, and Heat's name of each."""
    live = {member.name: f"{name}-{member.name}" for member in found}
    return Group(frozenset(live), frozenset(), live)
