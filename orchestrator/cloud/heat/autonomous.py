"""VNFs of groups that alarms scale, as VNFs of their domains.

The cloud decides about them.

They are adopted: seen, brought into their domain, given traffic. When Heat takes one away its member is being deleted
for a while before its machine ends (`notice` of the template), and that while is for draining.

One that is no good is given back to its group: marked as unhealthy, and the group told to grow. A marked member does
not count, so Heat comes to the size that it had, with another machine in the marked one's place. Heat makes the new
one first. (A group told to shrink instead would lose the marked one *and* another.)
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from orchestrator.cloud.base import Vnf
from orchestrator.cloud.heat.alarms import GROW
from orchestrator.cloud.heat.api import Action, Member, OpenStack, Stack, Status
from orchestrator.cloud.heat.looking import as_named_by_heat, look
from orchestrator.cloud.heat.settings import ALARMS, HeatSettings
from orchestrator.cloud.heat.sight import own_name, vnfs
from orchestrator.errors import Busy

log = structlog.get_logger()

_MARKED = "aclflow gave it up"


class AutonomousVnfs:
    """Those of one project."""

    def __init__(self, settings: HeatSettings, openstack: OpenStack) -> None:
        self._settings = settings
        self._openstack = openstack

    def list(self, fleet: str | None = None) -> tuple[Vnf, ...]:
        """List the VNFs of a domain, or of all."""
        if fleet is not None:
            return self._of(fleet, self._openstack.stack(self._settings.stack_name(fleet, ALARMS)))
        found: list[Vnf] = []
        for listed in self._openstack.stacks(self._settings.tag_of(ALARMS)):
            owner = self._settings.fleet_of(listed.name, ALARMS)
            if owner is not None:
                found += self._of(owner, self._openstack.stack(listed.name))
        return tuple(found)

    def give_back(self, fleet: str, names: Sequence[str]) -> None:
        """Replace some members.

        Raises Busy while the group changes; a member that is gone is no error.
        """
        stack = self._openstack.stack(self._settings.stack_name(fleet, ALARMS))
        if stack is None or stack.standing.action is Action.DELETE:
            return
        members = [each for each in self._openstack.members(stack) if own_name(each) in names and _is_there(each)]
        if not members:
            return
        if self._openstack.is_scaling(stack):
            raise Busy(f"the group of {fleet} is being changed")
        for member in members:
            if member.standing.status is not Status.FAILED:
                self._openstack.mark_unhealthy(stack, member.name, _MARKED)
        self._openstack.signal(stack, GROW)
        log.info("heat.given_back", fleet=fleet, vnfs=tuple(map(own_name, members)))
        raise Busy(f"the group of {fleet} was told to replace {len(members)}; whether it follows is seen later")

    def _of(self, fleet: str, stack: Stack | None) -> tuple[Vnf, ...]:
        if stack is None:
            return ()
        found = self._openstack.members(stack)
        return vnfs(fleet, look(self._openstack, stack, found, as_named_by_heat(stack.name, found), autonomous=True))


def _is_there(member: Member) -> bool:
    return member.standing.action is not Action.DELETE
