"""Records of fleets, and their JSON form."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from orchestrator.compile.spreadprogram import Side
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Packet
from orchestrator.scaling.capacity import Measured
from orchestrator.scaling.decide import Limits
from orchestrator.scaling.lifecycle import Health, MemberState, Patience
from orchestrator.wire.firewalls import Load, Plane
from orchestrator.wire.points import PointState

_MOST_MEMBERS = 256


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """How a domain's fleet is to be. Raises BadInput with the field as its place.

    `size`: as many as an operator says; None: as many as the load needs, within `limits`. `spread`: an aclflow switch
    in front gives each VNF its share of the traffic, and is waited for; without, a VNF serves once it is proven.
    `alarms`: the cloud itself makes and takes away the VNFs, by its alarms or by webhooks, and they are adopted.
    `stateful`: the VNFs track connections, so both directions of one must meet the same VNF, and one that leaves is
    waited for until it tracks none.
    """

    plane: Plane = Plane.NFTABLES
    size: int | None = None
    alarms: bool = False
    spread: bool = True
    stateful: bool = False
    decide_every_s: float = 5.0
    limits: Limits = field(default_factory=Limits)
    patience: Patience = field(default_factory=Patience)

    def __post_init__(self) -> None:
        if self.alarms and self.size is not None:
            words = "the cloud's alarms decide how many there are: signal them (`aclflow openstack alarms grow`)"
            raise BadInput(words, place="size")
        if self.size is not None and not 0 <= self.size <= self.limits.most:
            raise BadInput(f"{self.size} VNFs, where at most {self.limits.most} are allowed", place="size")
        if self.limits.most > _MOST_MEMBERS:
            raise BadInput(f"{self.limits.most} VNFs, where {_MOST_MEMBERS} shares are", place="limits.most")
        if not 0.1 <= self.decide_every_s <= 3600:
            raise BadInput(f"{self.decide_every_s} is not in 0.1..3600", place="decide_every_s")

    def to_json(self) -> dict[str, Any]:
        """Return it as a document; `settings_from` reads it again."""
        return asdict(self) | {"plane": self.plane.value}

    def with_changes(self, changes: Mapping[str, Any]) -> FleetSettings:
        """Change some settings, of `limits` and `patience` too. Raises BadInput with the place."""
        said = dict(changes)
        for name in ("limits", "patience"):
            if name in said:
                try:
                    said[name] = replace(getattr(self, name), **said[name])
                except AclflowError as error:
                    raise error.within(name) from None
        if "plane" in said:
            said["plane"] = Plane(said["plane"])
        return replace(self, **said)


def settings_from(document: Mapping[str, Any]) -> FleetSettings:
    """Read the output of `FleetSettings.to_json`.

    A setting that did not exist then has its default.
    """
    return FleetSettings().with_changes(document)


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """A domain's fleet: versioned settings, and the last decision with its reason."""

    domain: str
    version: int
    settings: FleetSettings
    looked: dt.datetime | None
    size: int | None
    because: str
    model: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """The cloud's location of a VNF."""

    left: Side | None = None
    right: Side | None = None
    address: str | None = None
    capped: str | None = None

    def to_json(self) -> str:
        return orjson.dumps(self).decode()

    @classmethod
    def of(cls, text: str | None) -> Place:
        said = {} if text is None else orjson.loads(text)
        sides = {name: Side(**said[name]) for name in ("left", "right") if said.get(name) is not None}
        return cls(sides.get("left"), sides.get("right"), said.get("address"), said.get("capped"))


@dataclass(frozen=True, slots=True)
class TrialSheet:
    """Packets to try a VNF with, their expected verdicts, and the generation.

    `answer`: which came through, and at which generation the VNF was then; None before it has said.
    """

    generation: int
    packets: tuple[Packet, ...]
    expected: tuple[bool, ...]
    answer: tuple[bool, ...] | None = None
    held: int | None = None

    def to_json(self) -> str:
        packets = [asdict(packet) | {"family": packet.family.value} for packet in self.packets]
        return orjson.dumps(asdict(self) | {"packets": packets}).decode()

    @classmethod
    def of(cls, text: str) -> TrialSheet:
        said = orjson.loads(text)
        packets = tuple(Packet(**each | {"family": Family(each["family"])}) for each in said["packets"])
        answer = None if said["answer"] is None else tuple(said["answer"])
        return cls(said["generation"], packets, tuple(said["expected"]), answer, said["held"])


@dataclass(frozen=True, slots=True)
class Member:
    """One VNF of a fleet.

    `since`: in its state; `generation`: what it must hold to be loaded.
    """

    domain: str
    name: str
    number: int
    plane: Plane
    state: MemberState
    since: dt.datetime
    asked: dt.datetime
    generation: int
    because: str
    progress: str
    served: dt.datetime | None
    drained: dt.datetime | None
    failed: dt.datetime | None
    health: Health
    trial: TrialSheet | None
    place: Place


@dataclass(frozen=True, slots=True)
class MemberLook:
    """A member with its agent's last report: enrolment, generation read back, load, time."""

    member: Member
    enrolled: bool
    holds: int | None
    point: PointState | None
    error: str | None
    load: Load | None
    reported: dt.datetime | None


@dataclass(frozen=True, slots=True)
class FleetLook:
    """A fleet with its members that are not gone, by number."""

    record: FleetRecord
    members: tuple[MemberLook, ...]


@dataclass(frozen=True, slots=True)
class FleetTimes:
    """When members of a fleet were asked for, drained, and failed lately."""

    asked: tuple[dt.datetime, ...]
    drained: tuple[dt.datetime, ...]
    failed: tuple[dt.datetime, ...]


@dataclass(frozen=True, slots=True)
class CapacityRecord:
    """Measurements of one VNF's capacity; `source` names their origin."""

    version: int
    plane: Plane
    created: dt.datetime
    source: str
    measured: tuple[Measured, ...]
