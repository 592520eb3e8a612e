"""Fleets of firewall VNFs: how they are to be, what they are, what was decided; capacity; trials."""

from __future__ import annotations

import datetime as dt
from dataclasses import fields
from typing import Annotated, Any

from pydantic import BaseModel, Field, create_model

from api.schemas.common import BIGGEST, Incoming, Line, Outgoing
from api.schemas.firewalls import PlaneWord
from api.schemas.inspection import PacketBody
from orchestrator.control.fleet.prediction import Prediction
from orchestrator.errors import AclflowError
from orchestrator.policy.model import Packet
from orchestrator.scaling.capacity import CapacityModel, Measured
from orchestrator.scaling.decide import Limits
from orchestrator.scaling.lifecycle import Patience
from orchestrator.store.firewalls.records import CapacityRecord, FleetDecision, FleetLook, FleetSample, MemberLook

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
    """How a fleet is to be from now on; what is left out stays as it is."""

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
        """What was said, and nothing else."""
        return self.model_dump(exclude_unset=True)


class MemberBody(Outgoing):
    """A VNF of a fleet. `since`: in its state; the numbers are what its agent told last, null before it has."""

    name: str
    number: int
    state: str
    since: dt.datetime
    asked: dt.datetime
    because: str
    progress: str
    well: bool
    served: dt.datetime | None
    address: str | None
    capped: str | None = Field(description="by what its capacity is held down, where something does")
    packets_pps: int | None
    bits_bps: int | None
    cpu_permille: int | None
    connections: int | None
    trouble: str | None

    @classmethod
    def of(cls, look: MemberLook) -> MemberBody:
        member, load = look.member, look.load
        told = ("packets_pps", "bits_bps", "cpu_permille", "connections", "trouble")
        numbers: dict[str, Any] = {name: None if load is None else getattr(load, name) for name in told}
        return cls(
            name=member.name,
            number=member.number,
            state=member.state.value,
            since=member.since,
            asked=member.asked,
            because=member.because,
            progress=member.progress,
            well=member.health.is_well,
            served=member.served,
            address=member.place.address,
            capped=member.place.capped,
            **numbers,
        )


class PredictionBody(Outgoing):
    """Shares of a VNF's processors, means over those that serve."""

    busy: float = Field(description="in use")
    predicted: float = Field(description="needed for what they carry, by the capacity model")
    error: float | None = Field(description="predicted / busy - 1; null: too idle to tell")

    @classmethod
    def of(cls, prediction: Prediction) -> PredictionBody:
        return cls(busy=prediction.busy, predicted=prediction.predicted, error=prediction.error)


class FleetBody(Outgoing):
    """A domain's fleet with its VNFs that are not gone. `wanted` and `because` are of the last decision."""

    domain: str
    version: int
    settings: dict[str, Any]
    wanted: int | None
    because: str
    looked: dt.datetime | None
    model: int | None = Field(description="the version of the capacity model that it was decided by")
    prediction: PredictionBody | None = Field(
        description="whether the capacity model that counts now holds; null: there is none, or no VNF serves"
    )
    cloud: str | None = Field(description="what sort of cloud makes its VNFs; null: this service has none")
    members: list[MemberBody]

    @classmethod
    def of(cls, look: FleetLook, prediction: Prediction | None, cloud: str | None) -> FleetBody:
        record = look.record
        return cls(
            **{name: getattr(record, name) for name in ("domain", "version", "because", "looked", "model")},
            settings=record.settings.to_json(),
            wanted=record.size,
            prediction=None if prediction is None else PredictionBody.of(prediction),
            cloud=cloud,
            members=[*map(MemberBody.of, look.members)],
        )


class DecisionBody(Outgoing):
    """A change of a fleet's size."""

    id: int
    at: dt.datetime
    before: int
    size: int
    because: str
    by: str

    @classmethod
    def of(cls, decision: FleetDecision) -> DecisionBody:
        return cls(**{name: getattr(decision, name) for name in FleetDecision.__slots__})


class SampleBody(Outgoing):
    """What a fleet carried at a moment: all that serve together; `most_pps` is the busiest's."""

    at: dt.datetime
    packets_pps: int
    bits_bps: int
    connections: int
    serving: int
    most_pps: int
    rules: int

    @classmethod
    def of(cls, sample: FleetSample) -> SampleBody:
        return cls(**{name: getattr(sample, name) for name in FleetSample.__slots__})


class Samples(Outgoing):
    """The last hour's."""

    items: list[SampleBody]


class MeasuredBody(Incoming):
    """A VNF with so many rules carried so many packets a second, at most, of so many octets each."""

    rules: Count
    octets: Annotated[int, Field(gt=0, le=65535)]
    pps: Annotated[float, Field(ge=1, le=1e12)]


class NewCapacity(Incoming):
    """Measurements of what one VNF carries, which count for its plane from now on."""

    plane: PlaneWord
    source: Line = Field(description="where they come from")
    measured: Annotated[list[MeasuredBody], Field(min_length=1, max_length=10_000)]

    def measurements(self) -> list[Measured]:
        """Raises BadInput."""
        found = []
        for index, each in enumerate(self.measured):
            try:
                found.append(Measured(each.rules, each.octets, each.pps))
            except AclflowError as error:
                raise error.within(f"measured[{index}]") from None
        return found


class CapacityBody(Outgoing):
    """A version of what one VNF carries: a packet takes `base_s + per_rule_s * rules + per_octet_s * octets`."""

    version: int
    plane: PlaneWord
    created: dt.datetime
    source: str
    measurements: int
    base_s: float
    per_rule_s: float
    per_octet_s: float
    error: float | None = Field(
        description="relative error of a prediction, 90th percentile, each measurement predicted by the others"
    )
    most_rules: int
    current: bool = Field(description="whether it counts for its plane")

    @classmethod
    def of(cls, record: CapacityRecord, model: CapacityModel, *, current: bool) -> CapacityBody:
        return cls(
            version=record.version,
            plane=record.plane.value,
            created=record.created,
            source=record.source,
            measurements=len(record.measured),
            **{name: getattr(model, name) for name in ("base_s", "per_rule_s", "per_octet_s", "error", "most_rules")},
            current=current,
        )


class CapacityList(Outgoing):
    """Every version, the newest first."""

    items: list[CapacityBody]


class TrialBody(Outgoing):
    """Packets that a VNF is to be tried with. Which of them should come through is not said."""

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
