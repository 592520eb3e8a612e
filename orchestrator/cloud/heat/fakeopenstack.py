"""An OpenStack in memory with the real rules: member names, failed members, quotas.

Time goes on by a moment whenever somebody asks for a stack; a change takes `slow` of them. As with the real one, a
change that is asked for while another is under way is taken, and the later one wins; what failed is tried again by the
next change that does not take it out; a name that was removed is never given again; a signal that cannot be followed
is dropped without a word.

`before` and `after` hold what the next calls of a verb raise, in order: before anything is done, or after it was.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.cloud.endpoints import MachinePort
from orchestrator.cloud.heat.api import Action, Member, Port, Quota, Server, Stack, Standing, Status
from orchestrator.errors import AclflowError, Busy, NotFound

_MADE = Standing(Action.CREATE, Status.COMPLETE, "state changed")
_COMING = Standing(Action.CREATE, Status.IN_PROGRESS, "state changed")
_GOING = Standing(Action.DELETE, Status.IN_PROGRESS, "state changed")
_FULL = "Quota exceeded for instances: Requested 1, but already used {used} of {limit} instances (HTTP 403)"
_NO_HOST = 'ResourceInError: resources.server: Went to status ERROR due to "No valid host was found. ", Code: 500'
_SCALING = "firewall-autoscaling.yaml"


@dataclass(slots=True)
class _Kept:
    """One stack as it is kept here."""

    stack: Stack
    template: str
    tag: str
    members: dict[str, Member] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    left: int = 0


@dataclass
class FakeOpenStack:
    """An OpenStack in memory with at most `limit` virtual machines.

    Members named in `unbuildable` find no host.
    """

    slow: int = 1
    limit: int = 100
    unbuildable: set[str] = field(default_factory=set)
    before: dict[str, list[AclflowError]] = field(default_factory=dict)
    after: dict[str, list[AclflowError]] = field(default_factory=dict)
    machines: dict[str, Server] = field(default_factory=dict)
    """Nova's own, by id: a test may break or delete one behind Heat's back."""
    tenants: dict[str, list[MachinePort]] = field(default_factory=dict)
    """Ports of the virtual machines of each project."""
    networks: dict[str, set[str]] = field(default_factory=dict)
    """The ids of the ports of each network."""

    def __post_init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()

    def stack(self, name: str) -> Stack | None:
        """See `OpenStack`."""
        with self._carry_out("stack"):
            for kept in list(self._kept.values()):
                self._moment(kept)
            return self._kept[name].stack if name in self._kept else None

    def stacks(self, tag: str) -> tuple[Stack, ...]:
        """See `OpenStack`."""
        with self._carry_out("stacks"):
            return tuple(replace(kept.stack, parameters={}) for kept in self._kept.values() if kept.tag == tag)

    def create_stack(self, name: str, template: str, parameters: Mapping[str, object], tag: str) -> None:
        """See `OpenStack`."""
        with self._carry_out("create_stack"):
            if name in self._kept:
                raise Busy(f"the stack ({name}) already exists")
            stack = Stack(f"stack-{next(self._numbers)}", name, _COMING, _shown(parameters))
            self._kept[name] = kept = _Kept(stack, template, tag)
            self._aim(kept, _wanted_names(kept, kept.stack.parameters.get("count", "1")), Action.CREATE)

    def update_stack(self, stack: Stack, parameters: Mapping[str, object]) -> None:
        """See `OpenStack`."""
        with self._carry_out("update_stack"):
            kept = self._find_kept(stack)
            kept.stack = replace(kept.stack, parameters={**kept.stack.parameters, **_shown(parameters)})
            named = set(filter(None, kept.stack.parameters.get("removed", "").split(",")))
            kept.removed |= named & (set(kept.members) | kept.removed)
            self._aim(kept, _wanted_names(kept, kept.stack.parameters["count"]), Action.UPDATE)

    def delete_stack(self, stack: Stack) -> None:
        """See `OpenStack`."""
        with self._carry_out("delete_stack"):
            if stack.name in self._kept:
                self._aim(self._kept[stack.name], [], Action.DELETE)

    def members(self, stack: Stack) -> tuple[Member, ...]:
        """See `OpenStack`."""
        with self._carry_out("members"):
            return tuple(self._kept[stack.name].members.values()) if stack.name in self._kept else ()

    def removed_members(self, stack: Stack) -> frozenset[str]:
        """See `OpenStack`."""
        with self._carry_out("removed"):
            return frozenset(self._find_kept(stack).removed)

    def servers(self, stack_name: str) -> Mapping[str, Server]:
        """See `OpenStack`."""
        with self._carry_out("servers"):
            kept = self._kept.get(stack_name)
            ids = [member.server for member in kept.members.values() if member.server] if kept else []
            return {each: self.machines[each] for each in ids if each in self.machines}

    def ports(self, ids: Sequence[str]) -> Mapping[str, Port]:
        """See `OpenStack`."""
        with self._carry_out("ports"):
            return {each: Port(each, int(each.rpartition("-")[2])) for each in ids}

    def machine_ports(self, project: str, network: str | None = None) -> tuple[MachinePort, ...]:
        """See `OpenStack`."""
        with self._carry_out("machine_ports"):
            if project not in self.tenants:
                raise NotFound(f"there is no project '{project}', or these credentials do not see it")
            ports = self.tenants[project]
            if network is None:
                return tuple(ports)
            if network not in self.networks:
                raise NotFound(f"there is no network '{network}', or these credentials do not see it")
            return tuple(each for each in ports if each.id in self.networks[network])

    def quotas(self, flavor: str, there: int) -> tuple[Quota, ...]:
        """See `OpenStack`: here every flavor is the same."""
        del flavor
        with self._carry_out("quotas"):
            return (Quota("instances", self.limit, len(self.machines), 1), Quota("members of a group", None, there, 1))

    def signal(self, stack: Stack, resource: str) -> None:
        """See `OpenStack`."""
        with self._carry_out("signal"):
            kept = self._find_kept(stack)
            if kept.stack.standing.status is Status.IN_PROGRESS or kept.left:
                return
            sizes = {name: int(kept.stack.parameters[name]) for name in ("fewest", "most")}
            good = sum(member.standing.status is not Status.FAILED for member in kept.members.values())
            size = min(sizes["most"], max(sizes["fewest"], good + {"grow": 1, "shrink": -1}[resource]))
            if size == good:
                return
            oldest = sorted(kept.members, key=lambda name: kept.members[name].standing.status is not Status.FAILED)
            names = oldest[-size:] if size else []
            names += [f"m{next(self._numbers)}" for _ in range(size - len(names))]
            self._aim(kept, names, None)

    def webhook(self, stack: Stack, resource: str) -> str:
        """See `OpenStack`."""
        with self._carry_out("webhook"):
            return f"http://heat.invalid/v1/signal/{self._find_kept(stack).stack.id}/{resource}"

    def post(self, url: str) -> None:
        """Call a webhook, as a caller who knows its address does."""
        stack_id, _, resource = url.rpartition("/signal/")[2].partition("/")
        self.signal(next(kept.stack for kept in self._kept.values() if kept.stack.id == stack_id), resource)

    def is_scaling(self, stack: Stack) -> bool:
        """See `OpenStack`."""
        with self._carry_out("is_scaling"):
            return self._find_kept(stack).left > 0

    def mark_unhealthy(self, stack: Stack, member: str, because: str) -> None:
        """See `OpenStack`."""
        with self._carry_out("mark_unhealthy"):
            kept = self._find_kept(stack)
            marked = Standing(Action.OTHER, Status.FAILED, because)
            kept.members[member] = replace(kept.members[member], standing=marked)

    def validate(self, template: str) -> Mapping[str, Any]:
        """See `OpenStack`: any template will do."""
        with self._carry_out("validate"):
            return {"Description": template, "Parameters": {}}

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def fail(self, stack: Stack, lacking: set[str], reason: str) -> None:
        """Fail a stack's operation before its group made some members, which stay ordered."""
        kept = self._find_kept(stack)
        for name in lacking:
            kept.members.pop(name, None)
        kept.left = 0
        kept.stack = replace(kept.stack, standing=Standing(kept.stack.standing.action, Status.FAILED, reason))

    # -------------------------------------------------------------------------------------------------------- steps

    @contextmanager
    def _carry_out(self, verb: str) -> Iterator[None]:
        with self._lock:
            _raise_next(self.before, verb)
            yield
            _raise_next(self.after, verb)

    def _find_kept(self, stack: Stack) -> _Kept:
        if stack.name not in self._kept:
            raise NotFound(f"The Stack ({stack.name}) could not be found.")
        return self._kept[stack.name]

    def _aim(self, kept: _Kept, wanted: Sequence[str], action: Action | None) -> None:
        """Begin to change the members to the wanted ones.

        With action None the group itself does, and the stack keeps its status.
        """
        for name, member in list(kept.members.items()):
            if name not in wanted:
                kept.members[name] = replace(member, standing=_GOING)
            elif member.standing.status is Status.FAILED:
                self.machines.pop(member.server or "", None)
                kept.members[name] = Member(name, _COMING, parts=4)
        for name in wanted:
            kept.members.setdefault(name, Member(name, _COMING, parts=4))
        kept.left = self.slow + 1
        if action is not None:
            kept.stack = replace(kept.stack, standing=Standing(action, Status.IN_PROGRESS, "started"))

    def _moment(self, kept: _Kept) -> None:
        """Let a moment go by for a stack: what was begun comes about."""
        if not kept.left:
            return
        kept.left -= 1
        if kept.left:
            return
        reasons = [reason for name in list(kept.members) if (reason := self._finish(kept, name))]
        standing = kept.stack.standing
        if standing.action is Action.DELETE:
            del self._kept[kept.stack.name]
        elif standing.status is Status.IN_PROGRESS:
            status = Status.FAILED if reasons else Status.COMPLETE
            reason = f"Resource CREATE failed: {reasons[0]}" if reasons else "completed successfully"
            kept.stack = replace(kept.stack, standing=Standing(standing.action, status, reason))

    def _finish(self, kept: _Kept, name: str) -> str | None:
        """Complete a member's operation; return the reason if it fails."""
        member = kept.members[name]
        if member.standing is _GOING:
            self.machines.pop(member.server or "", None)
            del kept.members[name]
            return None
        if member.standing is not _COMING:
            return None
        full = len(self.machines) >= self.limit
        reason = _FULL.format(used=self.limit, limit=self.limit) if full else _NO_HOST
        if full or name in self.unbuildable:
            failed = Standing(Action.CREATE, Status.FAILED, reason)
            kept.members[name] = replace(member, standing=failed, done=3)
            return reason
        number = next(self._numbers)
        machine = Server(f"{number:08x}-server", "ACTIVE", (f"10.91.{number >> 8 & 255}.{number & 255}",))
        self.machines[machine.id] = machine
        ports = {"left": f"port-{2 * number}", "right": f"port-{2 * number + 1}"}
        kept.members[name] = Member(name, _MADE, machine.id, ports, 4, 4)
        return None


def _wanted_names(kept: _Kept, count: str) -> list[str]:
    """Heat's names: the first natural numbers that were not removed; an AutoScalingGroup's are anything."""
    if kept.template == _SCALING:
        return [f"m{number}" for number in range(int(kept.stack.parameters["fewest"]))]
    free = (name for name in map(str, itertools.count()) if name not in kept.removed)
    return list(itertools.islice(free, int(count)))


def _shown(parameters: Mapping[str, object]) -> dict[str, str]:
    """Show parameters as Heat does: a map as JSON, a hidden one as stars."""
    shown = {
        name: str(value) if isinstance(value, (str, bool)) else json.dumps(value) for name, value in parameters.items()
    }
    return {**shown, **({"enrol_token": "******"} if "enrol_token" in shown else {})}


def _raise_next(prepared: dict[str, list[AclflowError]], verb: str) -> None:
    if prepared.get(verb):
        raise prepared[verb].pop(0)
