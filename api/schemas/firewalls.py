"""Firewall VNFs of domains, how traffic is spread over them, and their fleets.

Bodies about fleets are settings, state, decisions, capacity and trials.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, create_model

from api.schemas.common import BIGGEST, Incoming, Line, Name, Outgoing
from api.schemas.inspection import PacketBody
from orchestrator.compile.spreadprogram import Member, MemberState, Side
from orchestrator.errors import AclflowError
from orchestrator.policy.model import Packet
from orchestrator.scaling.buckets import share
from orchestrator.scaling.capacity import Measured
from orchestrator.scaling.decide import Limits
from orchestrator.scaling.lifecycle import Patience
from orchestrator.store.firewalls.spreads import SpreadRecord
from orchestrator.store.records import FirewallRecord
from orchestrator.wire import firewalls as wire
from orchestrator.wire.firewalls import Plane, PlaneWord

Rate = Annotated[int, Field(ge=0, le=BIGGEST)]


class NewFirewall(Incoming):
    """A firewall VNF to be onboarded. Its agent enrols under the same name."""

    name: Name
    plane: PlaneWord = Field(description="what it filters with")

    def record(self) -> FirewallRecord:
        return FirewallRecord(self.name, Plane(self.plane))


class Load(Incoming):
    """An agent's account of its firewall."""

    packets_pps: Rate = Field(description="packets forwarded a second, over the agent's last period")
    bits_bps: Rate = Field(description="bits forwarded a second")
    cpu_permille: int = Field(ge=0, le=1000, description="share of the processors that is busy, in thousandths")
    connections: Rate = Field(description="connections that the kernel tracks")
    trouble: str | None = Field(default=None, max_length=1024, description="what is wrong, if anything is")

    def record(self) -> wire.Load:
        return wire.Load(**self.model_dump())


class SideBody(Incoming):
    """One of a firewall's two links to the spreading switch."""

    port: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$", description="the switch's interface")]
    mac: Annotated[str, Field(pattern=r"^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$", description="at the firewall's end")]

    def side(self) -> Side:
        return Side(self.port, int(self.mac.replace(":", ""), 16))

    @classmethod
    def of(cls, side: Side) -> SideBody:
        return cls(port=side.port, mac=side.mac.to_bytes(6, "big").hex(":"))


class Carrier(Incoming):
    """A firewall that traffic is spread over."""

    name: Name
    number: Annotated[int, Field(ge=0, lt=1 << 32, description="of its own in the domain")]
    left: SideBody = Field(description="towards clients")
    right: SideBody = Field(description="towards hosts")
    state: Literal["serving", "draining"] = Field(default="serving", description="draining: it gets nothing new")
    weight: Annotated[float, Field(gt=0, le=1e9)] = 1.0

    def member(self) -> Member:
        sides = self.left.side(), self.right.side()
        return Member(self.name, self.number, *sides, MemberState(self.state), self.weight)


class SpreadDocument(Incoming):
    """How a domain's traffic is to be spread."""

    firewalls: Annotated[list[Carrier], Field(max_length=256)]
    stateful: bool = Field(default=False, description="both directions of a connection go to the same firewall")
    synchronised: bool = Field(
        default=False,
        description="the firewalls share their connections; the switch itself passes over one that is down",
    )


class SpreadWritten(Outgoing):
    """The result of changing a spread.

    The spreading switch must be read back at `generation`.
    """

    generation: int


class Sharing(Outgoing):
    """A firewall and its share."""

    name: str
    number: int
    left: SideBody
    right: SideBody
    state: str = Field(description="serving, or draining: it gets nothing new")
    weight: float = Field(description="its capacity, compared with the others'")
    buckets: int = Field(description="of 256")
    given_up: bool = Field(
        description="the spreading switch hears nothing of it, and sends what it owns to others (synchronised)"
    )


class SpreadBody(Outgoing):
    """How a domain's traffic is spread."""

    generation: int = Field(description="grows with every change of who carries what; not the policy's")
    enforced: int = Field(description="the newest generation that the spreading switch was read back at; 0: none yet")
    stateful: bool = Field(description="both directions of a connection go to the same firewall")
    synchronised: bool = Field(description="the firewalls share their connections")
    firewalls: list[Sharing]
    trouble: str | None = Field(description="what is wrong with the spreading switch, if anything is")

    @classmethod
    def of(cls, record: SpreadRecord) -> SpreadBody:
        spread, held, given_up = record.spread, share(record.spread.owners), record.given_up
        firewalls = [
            Sharing(
                name=each.name,
                number=each.number,
                left=SideBody.of(each.left),
                right=SideBody.of(each.right),
                state=each.state.value,
                weight=each.weight,
                buckets=held.get(each.name, 0),
                given_up=each.name in given_up,
            )
            for each in spread.members
        ]
        return cls(
            generation=record.generation, enforced=record.enforced, stateful=spread.stateful,
            synchronised=spread.synchronised, firewalls=firewalls,
            trouble=record.trouble,
        )  # fmt: skip


class SpreadReport(Incoming):
    """State that a spreading switch's controller has read back."""

    generation: Annotated[int, Field(ge=0, le=BIGGEST)]
    trouble: str | None = Field(default=None, max_length=1024, description="what is wrong, if anything is")


class LinksReport(Incoming):
    """The interfaces that a spreading switch finds down."""

    down: Annotated[list[Annotated[str, Field(max_length=256)]], Field(max_length=4096)]


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
