"""The requests to OpenStack, and the values of its answers.

Two things have these verbs: `openstack.OpenStackClient` and `fake.FakeOpenStack`. Both raise errors of ours alone:

    Unreachable      no answer, or 500 and above: whatever was asked may have been done
    Busy             409: somebody else is at it
    Refused          400: what was asked is wrong, and would be tomorrow
    TooLarge         over a quota
    Unauthenticated  401 again after signing in anew;  Forbidden  403
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.cloud.endpoints import MachinePort


class Action(enum.Enum):
    """Heat's last or current action on a stack or resource."""

    INIT = "INIT"
    """Nothing yet."""
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    ROLLBACK = "ROLLBACK"
    OTHER = "OTHER"
    """Check, suspend and what else there is."""


class Status(enum.Enum):
    """How far it is."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Standing:
    """The status of a stack or a resource, with OpenStack's reason."""

    action: Action
    status: Status
    reason: str = ""

    @classmethod
    def read(cls, text: str, reason: str | None) -> Standing:
        """Read Heat's ``CREATE_COMPLETE``; what is not said in full is under way."""
        action, _, status = text.partition("_")
        known = Action(action) if action in Action.__members__ else Action.OTHER
        return cls(known, Status(status) if status in Status.__members__ else Status.IN_PROGRESS, reason or "")


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack. `parameters` are as Heat shows them: text, hidden ones as stars."""

    id: str
    name: str
    standing: Standing
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group, by Heat's name.

    `ports` are ids by side; `done` of `parts` resources are complete.
    """

    name: str
    standing: Standing
    server: str | None = None
    ports: Mapping[str, str] = field(default_factory=dict)
    done: int = 0
    parts: int = 0


@dataclass(frozen=True, slots=True)
class Server:
    """A virtual machine as Nova sees it: ``ACTIVE``, ``ERROR`` with its fault, ..."""

    id: str
    status: str
    addresses: tuple[str, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Port:
    """A network port."""

    id: str
    mac: int


@dataclass(frozen=True, slots=True)
class Quota:
    """A project's limit (None: unlimited), its use, and the need of `each` VNF."""

    what: str
    limit: int | None
    used: int
    each: int


class OpenStack(Protocol):
    """One project of one cloud. Safe between threads."""

    def stack(self, name: str) -> Stack | None:
        """Return the stack of a name; None where there is none, or it is gone."""
        ...

    def stacks(self, tag: str) -> tuple[Stack, ...]:
        """Return the stacks with a tag, without their parameters."""
        ...

    def create_stack(self, name: str, template: str, parameters: Mapping[str, object], tag: str) -> None:
        """Begin to create one; what fails of it stays, to be seen."""
        ...

    def update_stack(self, stack: Stack, parameters: Mapping[str, object]) -> None:
        """Begin to change some parameters; template and all others stay."""
        ...

    def delete_stack(self, stack: Stack) -> None:
        """Begin to delete; fine where it is gone."""
        ...

    def members(self, stack: Stack) -> tuple[Member, ...]:
        """Return the members of the stack's group."""
        ...

    def removed_members(self, stack: Stack) -> frozenset[str]:
        """Names of members of its ResourceGroup that will never be given again."""
        ...

    def servers(self, stack_name: str) -> Mapping[str, Server]:
        """The virtual machines whose names begin with the stack's, by id."""
        ...

    def ports(self, ids: Sequence[str]) -> Mapping[str, Port]:
        """Return those of some ports that are there, by id."""
        ...

    def machine_ports(self, project: str, network: str | None = None) -> tuple[MachinePort, ...]:
        """Return the ports of a project's virtual machines, of one network or of all.

        Project and network are named by name or id. Raises NotFound.
        """
        ...

    def quotas(self, flavor: str, there: int) -> tuple[Quota, ...]:
        """Return the quotas that VNFs of a flavor use, in a fleet of `there` VNFs."""
        ...

    def signal(self, stack: Stack, resource: str) -> None:
        """Let a scaling policy act; that it cannot is not told."""
        ...

    def webhook(self, stack: Stack, resource: str) -> str:
        """The URL that lets a scaling policy act, without a token."""
        ...

    def is_scaling(self, stack: Stack) -> bool:
        """Whether its AutoScalingGroup is at it."""
        ...

    def mark_unhealthy(self, stack: Stack, member: str, because: str) -> None:
        """Have a member of its AutoScalingGroup counted as failed: the next growing replaces it."""
        ...

    def validate(self, template: str) -> Mapping[str, Any]:
        """Return the parameters of a template, as Heat reads it.

        Raises Refused where Heat refuses it.
        """
        ...

    def close(self) -> None:
        """Give connections back."""
        ...
