"""The interface of a cloud: create, list and delete firewall VNFs by our names.

    create(orders)       ──▶ the cloud begins to build them          list(fleet) ──▶ what there is of ours, how far
    delete(fleet, names) ──▶ the cloud begins to take them away      list()      ──▶ the same of all fleets

Every call may be repeated: after an answer that was lost, after a crash, by another replica of the service. So a VNF is
known by its fleet and its name, which we choose before we ask: `create` of one that is there, or coming, changes
nothing, `delete` of one that is not there is fine. `list` tells the truth of the moment, and everything that this
installation ever asked for and that still costs anything is in it: what no row of the store owns is deleted. In it too
are VNFs that the cloud makes by itself (`autonomous`); those are adopted where a fleet wants that, and never orphans.

Faults are raised as errors of ours, sorted by what is to be done:

    TooLarge           over a quota: which one, how much of it is used, and what to ask the cloud's operator for
    Refused            the cloud said no, and would say so again: a wrong flavour, a template it does not take
    Unauthenticated    our credentials are not valid (any more);  Forbidden: they do not suffice
    TryAgain           it did not answer, or is at something else: it may have done it, or may still; ask again
    Missing            a program, a right or a file that this machine lacks

Each call answers within `PATIENCE_S`; what takes longer goes on in the cloud, and `list` tells how far it is.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.compile.spreadprogram import Side
from orchestrator.errors import BadInput
from orchestrator.policy.model import check_name
from orchestrator.wire.firewalls import Plane

PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class VnfOrder:
    """A VNF that there should be. Raises BadInput.

    `fleet` is the domain; `name` is unique in it, and its agent enrols under it. `number` counts the VNFs that were
    ever asked for in a fleet, from 0, and is never used again. `token` lets its agent enrol once at
    `url`; each try to create the VNF may bear another token, and all of them are good.
    """

    fleet: str
    name: str
    number: int
    plane: Plane
    url: str
    token: str = field(repr=False)

    def __post_init__(self) -> None:
        check_name(self.fleet, "a fleet's name", place="fleet")
        check_name(self.name, "a VNF's name", place="name")
        if self.number < 0:
            raise BadInput(f"{self.number} is not a VNF's number", place="number")


class VnfState(enum.Enum):
    """The cloud's progress with a VNF.

    A VNF that runs does not necessarily filter yet.
    """

    COMING = "coming"
    RUNNING = "running"
    FAILED = "failed"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class Vnf:
    """A VNF as its cloud sees it.

    `progress` says in a few words how far it is, or why it failed. `instance_id` and `addresses` are what the cloud
    knows it by, and what it speaks to the service from; `left` (towards clients) and `right` (towards tenants) say
    where it is plugged in, where the cloud knows. `capped` says by what its capacity is held down, if it is.
    `autonomous`: the cloud made it by its own decision, and takes it away by its own; nobody ordered it here.
    """

    fleet: str
    name: str
    state: VnfState
    progress: str = ""
    instance_id: str | None = None
    addresses: tuple[str, ...] = ()
    left: Side | None = None
    right: Side | None = None
    capped: str | None = None
    autonomous: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between two looks at a cloud.

    Raises BadInput with the field.

    While something is waited for, a look comes `first_s` after one that saw something move, then less and less often,
    at most `most_s` apart; while nothing is, every `most_s`. With 0 as the first it is always at once.
    """

    first_s: float = 0.0
    most_s: float = 5.0

    def __post_init__(self) -> None:
        if not 0 <= self.first_s <= self.most_s:
            raise BadInput(f"{self.first_s:g} s is not in 0..{self.most_s:g}", place="first_s")
        if not 0 < self.most_s <= 3600:
            raise BadInput(f"{self.most_s:g} s is not above 0 and at most an hour", place="most_s")


class Cloud(Protocol):
    """Where VNFs run. Safe between threads; raises as the module says."""

    @property
    def kind(self) -> str:
        """The kind of cloud: ``lab``, ``heat``."""
        ...

    @property
    def pace(self) -> Pace:
        """How often it wants to be looked at."""
        ...

    def create(self, orders: Sequence[VnfOrder]) -> None:
        """Begin to build the missing VNFs of one fleet: all, or none (TooLarge, Refused)."""
        ...

    def list(self, fleet: str | None = None) -> tuple[Vnf, ...]:
        """List the VNFs of a fleet, or of all fleets here, by fleet and name."""
        ...

    def delete(self, fleet: str, names: Sequence[str]) -> None:
        """Begin to take VNFs of a fleet away, with all that belongs to them."""
        ...

    def close(self) -> None:
        """Give connections back."""
        ...
