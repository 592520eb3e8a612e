"""The members of a fleet's stack in Heat, and the VNFs that they are. Pure.

Heat knows what it was asked for, Nova what became of the virtual machine since: one that was deleted or that broke
behind Heat's back is no firewall any more, whatever Heat says.

Heat names a group's members itself: the first `count` natural numbers, without those on its list of removed ones.

    count 3, removed {}            0  1  2
    fw-1 goes                      count 2, removed {1}         0  2
    one comes                      count 3, removed {1}         0  2  3        1 is never used again

aclflow names its VNFs itself too (fw-0, fw-1, ..), and numbers may be missing there that are not missing here: an order
that Heat never got. So which is which stands in a parameter of the stack, `members`, written with the very update that
makes a member. That alone survives a lost answer: whoever asks again finds the name. `Group` computes parameters that
change only the members that are to come or go.

A member that no name was written for was made by somebody else: it is listed as `stray-7`, and deleted by that name.
The names of those that go stay written until they are gone, so that their leaving can be seen.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.cloud.base import Vnf, VnfState
from orchestrator.cloud.endpoints import device_of
from orchestrator.cloud.heat.api import Action, Member, OpenStack, Port, Server, Stack, Standing, Status
from orchestrator.cloud.heat.words import in_words
from orchestrator.compile.spreadprogram import Side
from orchestrator.errors import Drifted

_STRAY = "stray-"


@dataclass(frozen=True, slots=True)
class Group:
    """A ResourceGroup: its members, names that Heat will not reuse, our names by Heat's."""

    live: frozenset[str]
    removed: frozenset[str]
    names: Mapping[str, str]

    def name_of(self, member: str) -> str:
        """Return our name of a member."""
        return self.names.get(member, _STRAY + member)

    @property
    def pending(self) -> frozenset[str]:
        """Names that were ordered for members that do not exist yet.

        Names of members that existed and are gone are left out.
        """
        there = self.live | self.removed
        return frozenset(name for member, name in self.names.items() if member not in there)

    def members_called(self, names: Iterable[str]) -> frozenset[str]:
        """Return the live members that have one of these names."""
        wanted = frozenset(names)
        return frozenset(member for member in self.live if self.name_of(member) in wanted)

    def lacking(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of some names that no live member has, each once."""
        there = {self.name_of(member) for member in self.live}
        return tuple(name for name in dict.fromkeys(names) if name not in there)

    def grow_group(self, names: Sequence[str], without: frozenset[str] = frozenset()) -> dict[str, object]:
        """Return the parameters that add a member per name, and remove some.

        Raises Drifted if others would be removed.
        """
        kept = self.live - without
        removed = self.removed | without
        will_be = list(itertools.islice(_count_without(removed), len(kept) + len(names)))
        lost = kept - set(will_be)
        if lost:
            raise Drifted(
                f"the group was changed by somebody else: growing it would take member {min(lost)} away; "
                f"delete {self.name_of(min(lost))} first"
            )
        new = dict(zip((each for each in will_be if each not in kept), names, strict=True))
        return _parameters(len(will_be), without, {**self._pick_names(self.live), **new})

    def shrunk(self, victims: frozenset[str]) -> dict[str, object]:
        """The parameters that take exactly these members out."""
        return _parameters(len(self.live - victims), victims & self.live, self._pick_names(self.live))

    def _pick_names(self, members: frozenset[str]) -> dict[str, str]:
        return {member: name for member, name in self.names.items() if member in members}


def read_names(parameter: str) -> dict[str, str]:
    """Parse the parameter `members`.

    Raises Drifted if somebody else wrote it.
    """
    try:
        found = json.loads(parameter or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found.values()):
        raise Drifted("the stack's parameter `members` was changed by somebody else: it must be a map of names")
    return found


def first_parameters(names: Sequence[str]) -> dict[str, object]:
    """The parameters of a group that is to be created."""
    return _parameters(len(names), frozenset(), {str(index): name for index, name in enumerate(names)})


def _parameters(count: int, removed: frozenset[str], names: Mapping[str, str]) -> dict[str, object]:
    """Return the parameters of a group.

    Heat adds `removed` to its own list, so only the members that leave now are listed.
    """
    return {"count": count, "removed": ",".join(sorted(removed)), "members": dict(names)}


def _count_without(removed: frozenset[str]) -> Iterator[str]:
    return (name for name in map(str, itertools.count()) if name not in removed)


_BROKEN = frozenset(
    {"ERROR", "DELETED", "SOFT_DELETED", "SHUTOFF", "PAUSED", "SUSPENDED", "SHELVED", "SHELVED_OFFLOADED"}
)
_SHORT = 8
"""So many letters of a machine's id tell those of one domain apart."""


@dataclass(frozen=True, slots=True)
class Sight:
    """Everything that was read of one stack.

    `going` are members that its last change removes. `autonomous`: the cloud adds and removes members without a change
    of the stack. `links`: the spreading switch's interface towards the network of each side, where there is one.
    """

    stack: Stack
    members: Sequence[Member]
    group: Group
    servers: Mapping[str, Server]
    ports: Mapping[str, Port]
    going: frozenset[str]
    autonomous: bool = False
    links: Mapping[str, str] = field(default_factory=dict)


def vnfs(fleet: str, sight: Sight) -> tuple[Vnf, ...]:
    """A fleet's VNFs, by name: those that are there, and those that are to come."""
    there = [_make_vnf(fleet, sight, member) for member in sight.members]
    return tuple(sorted(there + _to_come(fleet, sight), key=lambda vnf: vnf.name))


def own_name(member: Member) -> str:
    """Name a member that aclflow did not order.

    It is named after its machine, for Heat reuses a replaced member's name.
    """
    return f"asg-{member.server[:_SHORT] if member.server else member.name}"


def _to_come(fleet: str, sight: Sight) -> list[Vnf]:
    """Return the VNFs that were ordered and that Heat has not begun.

    They failed with the stack where Heat never will.
    """
    standing = sight.stack.standing
    if standing.status is Status.COMPLETE or standing.action is Action.DELETE:
        return []
    coming = standing.status is Status.IN_PROGRESS
    state = VnfState.COMING if coming else VnfState.FAILED
    words = "Heat has not begun with it yet" if coming else in_words(standing.reason)
    return [Vnf(fleet, name, state, words) for name in sight.group.pending]


def _make_vnf(fleet: str, sight: Sight, member: Member) -> Vnf:
    server = sight.servers.get(member.server or "")
    state, words = _find_state(sight, member, server)
    return Vnf(
        fleet,
        own_name(member) if sight.autonomous else sight.group.name_of(member.name),
        state,
        words,
        server.id if server is not None else None,
        server.addresses if server is not None else (),
        _find_side(sight, member, "left"),
        _find_side(sight, member, "right"),
        autonomous=sight.autonomous,
    )


def _find_state(sight: Sight, member: Member, server: Server | None) -> tuple[VnfState, str]:
    stack, own = sight.stack.standing, member.standing
    busy = sight.autonomous or stack.status is Status.IN_PROGRESS
    if own.action is Action.DELETE or stack.action is Action.DELETE or (busy and member.name in sight.going):
        return _describe_leaving(stack, own)
    if own.status is Status.FAILED and own.action is not Action.UPDATE:
        return VnfState.FAILED, in_words(own.reason)
    if own.action is Action.INIT or (own.action is Action.CREATE and own.status is Status.IN_PROGRESS):
        if not busy:
            return VnfState.FAILED, in_words(stack.reason) or "Heat gave up before it was there"
        return VnfState.COMING, f"{member.done} of {member.parts} parts of it are there"
    return _describe_server(server)


def _describe_leaving(stack: Standing, own: Standing) -> tuple[VnfState, str]:
    failed = own if own.status is Status.FAILED else stack
    if failed.status is Status.FAILED:
        return VnfState.FAILED, f"it could not be deleted: {in_words(failed.reason)}"
    return VnfState.LEAVING, "Heat is deleting it"


def _describe_server(server: Server | None) -> tuple[VnfState, str]:
    if server is None:
        return VnfState.FAILED, "its virtual machine is gone, and not by Heat"
    if server.status in _BROKEN:
        return VnfState.FAILED, f"its virtual machine is {server.status}{': ' + server.fault if server.fault else ''}"
    if server.status == "BUILD":
        return VnfState.COMING, "its virtual machine is being built"
    said = "runs" if server.status == "ACTIVE" else f"is in state {server.status}"
    return VnfState.RUNNING, f"its virtual machine {said}"


def _find_side(sight: Sight, member: Member, side: str) -> Side | None:
    port = sight.ports.get(member.ports.get(side, ""))
    return Side(sight.links.get(side) or device_of(port.id), port.mac) if port is not None else None


def look(
    openstack: OpenStack,
    stack: Stack,
    found: Sequence[Member],
    group: Group,
    *,
    autonomous: bool = False,
    links: Mapping[str, str],
) -> Sight:
    """Read a stack whose members are known.

    Raises as `OpenStack` does, so that nothing is read in part.
    """
    servers = openstack.servers(stack.name) if found else {}
    ports = openstack.ports([port for member in found for port in member.ports.values()])
    going = frozenset(filter(None, stack.parameters.get("removed", "").split(",")))
    return Sight(stack, found, group, servers, ports, going, autonomous, links)


def as_named_by_heat(name: str, found: Sequence[Member]) -> Group:
    """Name the members of a stack that is not ours: the stack's name and Heat's."""
    live = {member.name: f"{name}-{member.name}" for member in found}
    return Group(frozenset(live), frozenset(), live)
