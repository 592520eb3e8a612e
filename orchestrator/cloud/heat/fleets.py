"""`HeatCloud`: a fleet's VNFs as members of a ResourceGroup, one stack a fleet.

Heat takes further changes while it is at one (it does not answer 409, and what comes later wins), so it is we who wait:
a stack that is in progress is changed by nobody, `Busy` is raised, and the fleet's loop asks again. Between reading a
group and changing it there is nothing that Heat could compare, so one replica of the service at a time may decide about
a fleet; the loop's lease sees to that.

The last VNF of a fleet takes the stack with it, so that nothing stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import structlog

from orchestrator.cloud.base import Pace, Vnf, VnfOrder
from orchestrator.cloud.heat import stackstate
from orchestrator.cloud.heat.alarms import GROW
from orchestrator.cloud.heat.api import Action, Member, OpenStack, Stack, Status
from orchestrator.cloud.heat.settings import ALARMS, HeatSettings
from orchestrator.cloud.heat.stackstate import Group, Sight, as_named_by_heat, look, own_name, vnfs
from orchestrator.cloud.heat.words import in_words, too_little_room
from orchestrator.errors import BadInput, Busy, TooLarge

_MARKED = "aclflow gave it up"


class AutonomousVnfs:
    """VNFs of groups that alarms scale, in one project, as VNFs of their domains.

    The cloud decides about them. They are adopted: seen, brought into their domain, given traffic. When Heat takes one
    away its member is being deleted for a while before its machine ends (`notice` of the template), and that while is
    for draining.

    One that is no good is given back to its group: marked as unhealthy, and the group told to grow. A marked member
    does not count, so Heat comes to the size that it had, with another machine in the marked one's place. Heat makes
    the new one first. (A group told to shrink instead would lose the marked one *and* another.)
    """

    def __init__(self, settings: HeatSettings, openstack: OpenStack) -> None:
        self._settings = settings
        self._openstack = openstack

    def list(self, fleet: str | None = None) -> tuple[Vnf, ...]:
        """List the VNFs of a domain, or of all."""
        if fleet is not None:
            return self._list_vnfs(fleet, self._openstack.stack(self._settings.stack_name(fleet, ALARMS)))
        found: list[Vnf] = []
        for listed in self._openstack.stacks(self._settings.tag_of(ALARMS)):
            owner = self._settings.fleet_of(listed.name, ALARMS)
            if owner is not None:
                found += self._list_vnfs(owner, self._openstack.stack(listed.name))
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

    def _list_vnfs(self, fleet: str, stack: Stack | None) -> tuple[Vnf, ...]:
        if stack is None:
            return ()
        found = self._openstack.members(stack)
        group, links = as_named_by_heat(stack.name, found), self._settings.links
        return vnfs(fleet, look(self._openstack, stack, found, group, autonomous=True, links=links))


def _is_there(member: Member) -> bool:
    return member.standing.action is not Action.DELETE


log = structlog.get_logger()

TEMPLATE = "firewall-fleet.yaml"


class HeatCloud:
    """Firewall VNFs in one project of one OpenStack."""

    def __init__(self, settings: HeatSettings, openstack: OpenStack) -> None:
        self._settings = settings
        self._openstack = openstack
        self._autonomous = AutonomousVnfs(settings, openstack)

    @property
    def kind(self) -> str:
        """The kind of cloud."""
        return "heat"

    @property
    def pace(self) -> Pace:
        """Seconds between looks: each look takes several requests for each fleet."""
        return self._settings.pace

    def create(self, orders: Sequence[VnfOrder]) -> None:
        """Begin to build the missing VNFs; failed ones of the fleet are removed with it."""
        if not orders:
            return
        fleet = orders[0].fleet
        if any(order.fleet != fleet for order in orders):
            raise BadInput("orders of one fleet at a time", place="orders")
        name = self._settings.stack_name(fleet)
        stack = self._openstack.stack(name)
        names = [order.name for order in orders]
        if stack is None:
            self._note_found(name, orders, list(dict.fromkeys(names)))
            return
        if stack.standing.action is Action.DELETE:
            self._see_it_deleted(stack)
        found = self._openstack.members(stack)
        group = self._make_group(stack, found)
        begun = group.pending if stack.standing.status is Status.IN_PROGRESS else frozenset[str]()
        lacking = tuple(each for each in group.lacking(names) if each not in begun)
        if not lacking:
            return
        _refuse_while_busy(stack)
        failed = _failed_members(found) - group.members_called(names)
        self._check_room(stack.parameters.get("flavor", ""), len(lacking), len(group.live - failed))
        self._openstack.update_stack(stack, self._boot(orders[0]) | group.grow_group(lacking, without=failed))
        log.info("heat.growing", fleet=fleet, vnfs=lacking, taken_out=len(failed))

    def list(self, fleet: str | None = None) -> tuple[Vnf, ...]:
        """List the VNFs of a fleet, or of all, with those that alarms made.

        An unknown name may be another stack with a group.
        """
        if fleet is not None:
            stack = self._openstack.stack(self._settings.stack_name(fleet))
            found = (vnfs(fleet, self._read_sight(stack)) if stack is not None else ()) + self._autonomous.list(fleet)
            return found if found or stack is not None else self._others(fleet)
        all_found = [*self._autonomous.list()]
        for listed in self._openstack.stacks(self._settings.tag):
            owner = self._settings.fleet_of(listed.name)
            stack = self._openstack.stack(listed.name) if owner is not None else None
            if owner is not None and stack is not None:
                all_found += vnfs(owner, self._read_sight(stack))
        return tuple(sorted(all_found, key=lambda vnf: (vnf.fleet, vnf.name)))

    def delete(self, fleet: str, names: Sequence[str]) -> None:
        """Begin to delete VNFs.

        Failed ones of the fleet are removed too; others stay.
        """
        stack = self._openstack.stack(self._settings.stack_name(fleet))
        if stack is None:
            self._autonomous.give_back(fleet, names)
            return
        if stack.standing.action is Action.DELETE and stack.standing.status is not Status.FAILED:
            return
        found = self._openstack.members(stack)
        group = self._make_group(stack, found)
        victims = group.members_called(names)
        if not victims and group.live and not group.pending.intersection(names):
            return
        _refuse_while_busy(stack)
        victims |= _failed_members(found)
        if group.live == victims:
            self._openstack.delete_stack(stack)
            log.info("heat.deleting", fleet=fleet)
            return
        self._openstack.update_stack(stack, group.shrunk(victims))
        log.info("heat.shrinking", fleet=fleet, vnfs=tuple(names))

    def close(self) -> None:
        """Give connections back."""
        self._openstack.close()

    # -------------------------------------------------------------------------------------------------------- steps

    def _others(self, name: str) -> tuple[Vnf, ...]:
        """List the members of a stack that is not ours, such as an edge's.

        It lets them enrol.
        """
        stack = self._openstack.stack(name)
        if stack is None:
            return ()
        found = self._openstack.members(stack)
        return vnfs(name, look(self._openstack, stack, found, as_named_by_heat(name, found), links={}))

    def _see_it_deleted(self, stack: Stack) -> NoReturn:
        """Raise Busy while a stack is being deleted: another can only be made after.

        Always raises Busy.
        """
        if stack.standing.status is Status.FAILED:
            self._openstack.delete_stack(stack)
            raise Busy(f"the last stack could not be deleted, Heat tries again: {in_words(stack.standing.reason)}")
        raise Busy(f"Heat is still deleting the stack {stack.name}")

    def _note_found(self, name: str, orders: Sequence[VnfOrder], names: Sequence[str]) -> None:
        self._check_room(self._settings.flavor(), len(names), 0)
        parameters = self._boot(orders[0]) | stackstate.first_parameters(names)
        self._openstack.create_stack(name, TEMPLATE, parameters, self._settings.tag)
        log.info("heat.founding", fleet=orders[0].fleet, vnfs=tuple(names))

    def _boot(self, order: VnfOrder) -> dict[str, object]:
        """Return the user data of future VNFs.

        Existing ones keep theirs: Heat leaves it alone.
        """
        token = self._settings.token_of(order.fleet, order.fleet)
        return {"service_url": order.url, "plane": order.plane.value, "enrol_token": token}

    def _make_group(self, stack: Stack, found: Sequence[Member]) -> Group:
        live = frozenset(member.name for member in found)
        return Group(
            live, self._openstack.removed_members(stack), stackstate.read_names(stack.parameters.get("members", ""))
        )

    def _read_sight(self, stack: Stack) -> Sight:
        found = self._openstack.members(stack)
        group = self._make_group(stack, found)
        return look(self._openstack, stack, found, group, links=self._settings.links)

    def _check_room(self, flavor: str, more: int, there: int) -> None:
        """Refuse what a quota would: Heat would try, and leave half of it. Raises TooLarge."""
        for quota in self._openstack.quotas(flavor, there):
            reason = too_little_room(quota, more)
            if reason is not None:
                raise TooLarge(reason, place="orders")


def _failed_members(found: Sequence[Member]) -> frozenset[str]:
    """Members that never came to be: an update would try them once more."""
    return frozenset(
        member.name
        for member in found
        if member.standing.status is Status.FAILED and member.standing.action is Action.CREATE
    )


def _refuse_while_busy(stack: Stack) -> None:
    if stack.standing.status is Status.IN_PROGRESS:
        raise Busy(f"Heat is at the stack {stack.name}: {stack.standing.action.value.lower()}")
