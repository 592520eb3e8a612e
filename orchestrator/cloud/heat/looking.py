"""Read a stack from Heat, Nova and Neutron into one value."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.cloud.heat.api import Member, OpenStack, Stack
from orchestrator.cloud.heat.members import Group
from orchestrator.cloud.heat.sight import Sight


def look(
    openstack: OpenStack, stack: Stack, found: Sequence[Member], group: Group, *, autonomous: bool = False
) -> Sight:
    """Read a stack whose members are known.

    Raises as `OpenStack` does, so that nothing is read in part.
    """
    servers = openstack.servers(stack.name) if found else {}
    ports = openstack.ports([port for member in found for port in member.ports.values()])
    going = frozenset(filter(None, stack.parameters.get("removed", "").split(",")))
    return Sight(stack, found, group, servers, ports, going, autonomous)


def as_named_by_heat(name: str, found: Sequence[Member]) -> Group:
    """Name the members of a stack that is not ours: the stack's name and Heat's."""
    live = {member.name: f"{name}-{member.name}" for member in found}
    return Group(frozenset(live), frozenset(), live)
