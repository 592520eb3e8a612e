"""VNF groups that the cloud scales itself: an AutoScalingGroup, two policies, and alarms.

Here an alarm of the cloud decides, not `scaling.decide`: for an operator whose monitoring is the cloud's, or who wants
no service of aclflow to be needed for growing. Heat chooses the member that goes (the oldest, in this release), so what
it carries must move or end within `notice`; which is why a fleet of ours is the better way. A domain has the one or the
other. `fleets.py` has what becomes of the VNFs.

Three things of Heat that this respects. A signal that cannot be followed (at the limit, within the cooldown, while the
group is at it) is dropped without a word, so `grow` asks before it signals and says what stands in the way. A webhook
needs no token: whoever has the URL can let the group grow. And nobody reads the outputs of a stack whose group is
scaling: Heat would store the half-way values and serve them for good, so sizes are counted among the members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.cloud.heat.api import Action, Member, OpenStack, Stack, Status
from orchestrator.cloud.heat.settings import ALARMS, HeatSettings
from orchestrator.cloud.heat.words import in_words
from orchestrator.errors import BadInput, Busy, Conflict, NotFound, Refused, TooLarge, TryAgain
from orchestrator.wire.firewalls import Plane

TEMPLATE = "firewall-autoscaling.yaml"
GROW, SHRINK = "grow", "shrink"
_ALARM_SERVICE = "OS::Aodh"
"""Begins the names of what a cloud without alarms does not have."""


@dataclass(frozen=True, slots=True)
class AlarmLimits:
    """Limits of scaling by alarms: sizes, cooldown, and time to drain a leaving VNF.

    Raises BadInput.
    """

    fewest: int = 1
    most: int = 5
    cooldown_s: int = 60
    notice_s: int = 30
    alarms: bool = True
    """Whether the cloud's own alarms are made too; else only the webhooks are there."""

    def __post_init__(self) -> None:
        if not 0 <= self.fewest <= self.most or self.most < 1:
            raise BadInput(f"between {self.fewest} and {self.most} VNFs is no range", place="fewest")
        for place in ("cooldown_s", "notice_s"):
            if getattr(self, place) < 0:
                raise BadInput(f"{getattr(self, place)} s is no time", place=place)


@dataclass(frozen=True, slots=True)
class AlarmGroup:
    """A group's state.

    `size` counts members that exist or are coming, without those that leave; `settled` is true once nothing is under
    way; `trouble` says in words what failed.
    """

    domain: str
    size: int
    fewest: int
    most: int
    settled: bool
    trouble: str


@dataclass(frozen=True, slots=True)
class Webhooks:
    """Secrets: who posts to one of these URLs changes the group's size."""

    grow: str
    shrink: str


class AlarmGroups:
    """The alarm-driven groups of one project, one a domain."""

    def __init__(self, settings: HeatSettings, openstack: OpenStack) -> None:
        self._settings = settings
        self._openstack = openstack

    def create(self, domain: str, url: str, plane: Plane, limits: AlarmLimits) -> None:
        """Begin to create a domain's group; accept an existing one with the same parameters.

        Raises Missing without a group token, Conflict where it is there and another one, Busy while the one before is
        still being deleted; one that Heat could not create is taken away, with all that there is of it. Where Heat gave
        no answer it is looked for: Unreachable is raised only for a group that is not there yet.
        """
        name = self._name_stack(domain)
        parameters = _parameters(url, plane, limits)
        stack = self._openstack.stack(name)
        if stack is not None:
            self._clear(stack)
            _see_it_is_the_same(stack, parameters)
            return
        parameters["enrol_token"] = self._settings.token_of(domain, domain)
        try:
            self._openstack.create_stack(name, TEMPLATE, parameters, self._settings.tag_of(ALARMS))
        except TryAgain as error:
            if self._openstack.stack(name) is None:
                raise type(error)(f"{error.reason}; ask again: what Heat begins with all the same is found") from None
        except Refused as error:
            if _ALARM_SERVICE not in error.reason:
                raise
            raise Refused(
                f"{error.reason} Where the cloud has no alarms, make the webhooks alone (--webhooks-only)"
            ) from None

    def show(self, domain: str) -> AlarmGroup:
        """How a group is doing. Raises NotFound."""
        stack, found = self._read_group(domain)
        busy = stack.standing.status is Status.IN_PROGRESS or self._is_scaling(stack)
        reasons = [each.standing.reason for each in found if each.standing.status is Status.FAILED]
        if stack.standing.status is Status.FAILED:
            reasons.append(stack.standing.reason)
        fewest, most = (int(stack.parameters[name]) for name in ("fewest", "most"))
        trouble = in_words(reasons[0]) if reasons else ""
        return AlarmGroup(domain, _size(found), fewest, most, not busy, trouble)

    def grow(self, domain: str) -> None:
        """Add one VNF, as an alarm would.

        Raises TooLarge at the maximum, Busy while the group changes.
        """
        group = self.show(domain)
        if group.size >= group.most:
            raise TooLarge(f"the group has {group.size} VNFs, and {group.most} are the most", place="domain")
        self._send_signal(group, GROW)

    def shrink(self, domain: str) -> None:
        """Remove one VNF, as an alarm would.

        Raises TooLarge at the minimum, Busy while the group changes.
        """
        group = self.show(domain)
        if group.size <= group.fewest:
            raise TooLarge(f"the group has {group.size} VNFs, and {group.fewest} are the fewest", place="domain")
        self._send_signal(group, SHRINK)

    def webhooks(self, domain: str) -> Webhooks:
        """Return the URLs that alarms post to.

        Raises NotFound.
        """
        stack = self._find_stack(domain)
        return Webhooks(self._openstack.webhook(stack, GROW), self._openstack.webhook(stack, SHRINK))

    def delete(self, domain: str) -> None:
        """Begin to delete a group, with all its VNFs; fine where it is gone."""
        stack = self._openstack.stack(self._name_stack(domain))
        if stack is not None:
            self._openstack.delete_stack(stack)

    def _clear(self, stack: Stack) -> None:
        """Return for a complete stack; delete one that failed.

        Raises Busy for a stack that is being deleted, or is deleted here.
        """
        standing = stack.standing
        if standing.action is Action.CREATE and standing.status is Status.FAILED:
            self._openstack.delete_stack(stack)
            why = in_words(standing.reason)
            raise Busy(f"Heat could not create it ({why}), and takes away what there is of it: then ask again")
        if standing.action is Action.DELETE:
            raise Busy("Heat is still deleting the last one: ask again when it is gone")

    def _send_signal(self, group: AlarmGroup, policy: str) -> None:
        if not group.settled:
            raise Busy("Heat is at the group: it would drop the signal without a word")
        self._openstack.signal(self._find_stack(group.domain), policy)

    def _is_scaling(self, stack: Stack) -> bool:
        return stack.standing.action is not Action.DELETE and self._openstack.is_scaling(stack)

    def _read_group(self, domain: str) -> tuple[Stack, tuple[Member, ...]]:
        stack = self._find_stack(domain)
        return stack, self._openstack.members(stack)

    def _find_stack(self, domain: str) -> Stack:
        stack = self._openstack.stack(self._name_stack(domain))
        if stack is None:
            raise NotFound(f"'{domain}' has no group that grows by alarms", place="domain")
        return stack

    def _name_stack(self, domain: str) -> str:
        return self._settings.stack_name(domain, ALARMS)


def _parameters(url: str, plane: Plane, limits: AlarmLimits) -> dict[str, object]:
    """Return the template's parameters, except the token."""
    return {
        "service_url": url,
        "plane": plane.value,
        "fewest": limits.fewest,
        "most": limits.most,
        "cooldown": limits.cooldown_s,
        "notice": limits.notice_s,
        "with_alarms": limits.alarms,
    }


def _see_it_is_the_same(stack: Stack, wanted: Mapping[str, object]) -> None:
    """Check that a group has the wanted parameters.

    Raises Conflict where it differs: it would silently be left as it is.
    """
    there = stack.parameters
    other = [
        f"{name} {there.get(name)}, not {value}" for name, value in wanted.items() if there.get(name) != str(value)
    ]
    if other:
        raise Conflict(f"the group is there, with {'; '.join(other)}: delete it first, or ask for what there is")


def _size(found: tuple[Member, ...]) -> int:
    """How many there are or will be."""
    return sum(each.standing.action is not Action.DELETE for each in found)
