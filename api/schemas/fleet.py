"""Bodies about fleets of firewall VNFs: settings, state, decisions, capacity, trials."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model

from api.schemas.common import BIGGEST, Incoming, Line, Outgoing
from api.schemas.inspection import PacketBody
from orchestrator.errors import AclflowError
from orchestrator.policy.model import Packet
from orchestrator.scaling.capacity import Measured
from orchestrator.scaling.decide import Limits
from orchestrator.scaling.lifecycle import Patience
from orchestrator.wire.firewalls import PlaneWord

Count = Annotated[int, Field(ge=0, le=BIGGEST)]


def _changes(name: str, of: type, says: str) -> type[BaseModel]:
    """Every setting of a dataclass of numbers, none of which has to be said."""
    known: dict[str, Any] = {
        each.name: (int if each.type == "int" else float, Field(default=each.default)) for each in fields(of)
    }
    return create_model(name, __base__=Incoming, __doc__=says, **known)


LimitsChange = _changes("LimitsChange", Limits, "What the fleet keeps to; what is left out stays as it is.")
PatienceChange = _changes("PatienceChange", Patience, "How long a VNF may take; what is left out stays as it is.")


class FleetChanges(Incoming):
    """New settings of a fleet.

    A setting that is left out stays as it is.
    """

    plane: PlaneWord = Field(default="nftables", description="what VNFs asked for from now on filter with")
    size: Count | None = Field(default=None, description="so many VNFs; null: as many as the load needs")
    alarms: bool = Field(
        default=False, description="the cloud's alarms make and take away the VNFs, and size and limits say nothing"
    )
    spread: bool = Field(default=True, description="an aclflow switch in front gives each its share, and is waited for")
    stateful: bool = Field(default=False, description="both directions of a connection meet the same VNF")
    decide_every_s: float = 5.0
    limits: LimitsChange = Field(default_factory=LimitsChange)  # type: ignore[valid-type]
    patience: PatienceChange = Field(default_factory=PatienceChange)  # type: ignore[valid-type]

    def changes(self) -> dict[str, Any]:
        """The fields that were given, and nothing else."""
        return self.model_dump(exclude_unset=True)


class MeasuredBody(Incoming):
    """The highest packet rate that a VNF carried, with rules and packet size.

    `octets` is the size of each packet.
    """

    rules: Count
    octets: Annotated[int, Field(gt=0, le=65535)]
    pps: Annotated[float, Field(ge=1, le=1e12)]


class NewCapacity(Incoming):
    """Measurements of what one VNF carries, which count for its plane from now on."""

    plane: PlaneWord
    source: Line = Field(description="where they come from")
    measured: Annotated[list[MeasuredBody], Field(min_length=1, max_length=10_000)]

    def measurements(self) -> list[Measured]:
        """Return the measurements for a capacity model. Raises BadInput."""
        found = []
        for index, each in enumerate(self.measured):
            try:
                found.append(Measured(each.rules, each.octets, each.pps))
            except AclflowError as error:
                raise error.within(f"measured[{index}]") from None
        return found


class TrialBody(Outgoing):
    """Packets that a VNF is to be tried with.

    Which of them should come through is not said.
    """

    generation: int
    packets: list[PacketBody]

    @classmethod
    def of(cls, generation: int, packets: tuple[Packet, ...]) -> TrialBody:
        return cls(generation=generation, packets=[*map(PacketBody.of, packets)])


class TrialAnswer(Incoming):
    """Which packets came through, in their order, and which generation the VNF held then."""

    generation: Count
    came: Annotated[list[bool], Field(max_length=16)]
    held: Count
