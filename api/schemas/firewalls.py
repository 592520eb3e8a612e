"""Firewall VNFs: what they are and what they say of their load."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import Field

from api.schemas.common import BIGGEST, Incoming, Name, Outgoing
from orchestrator.compile.filters.rows import Plane
from orchestrator.store.records import FirewallLoad, FirewallRecord, FirewallSeen

PlaneWord = Literal["nftables", "iptables"]
Rate = Annotated[int, Field(ge=0, le=BIGGEST)]


class NewFirewall(Incoming):
    """A firewall VNF to be onboarded. Its agent enrols under the same name."""

    name: Name
    plane: PlaneWord = Field(description="what it filters with")

    def record(self) -> FirewallRecord:
        return FirewallRecord(self.name, Plane(self.plane))


class WrittenFirewall(Outgoing):
    """A firewall just onboarded, and the generation that it must reach."""

    name: str
    plane: PlaneWord
    generation: int


class Load(Incoming):
    """What a firewall's agent says of it."""

    packets_pps: Rate = Field(description="packets forwarded a second, over the agent's last period")
    bits_bps: Rate = Field(description="bits forwarded a second")
    cpu_permille: int = Field(ge=0, le=1000, description="share of the processors that is busy, in thousandths")
    connections: Rate = Field(description="connections that the kernel tracks")
    trouble: str | None = Field(default=None, max_length=1024, description="what is wrong, if anything is")

    def record(self) -> FirewallLoad:
        return FirewallLoad(**self.model_dump())


class SeenLoad(Outgoing):
    """The latest load, and when it came."""

    packets_pps: int
    bits_bps: int
    cpu_permille: int
    connections: int
    trouble: str | None
    reported: dt.datetime


class FirewallBody(Outgoing):
    """A firewall VNF. What it was read back to hold is told by the domain's generations."""

    name: str
    plane: PlaneWord
    load: SeenLoad | None

    @classmethod
    def of(cls, seen: FirewallSeen) -> FirewallBody:
        load = None
        if seen.load is not None and seen.reported is not None:
            load = SeenLoad(
                packets_pps=seen.load.packets_pps,
                bits_bps=seen.load.bits_bps,
                cpu_permille=seen.load.cpu_permille,
                connections=seen.load.connections,
                trouble=seen.load.trouble,
                reported=seen.reported,
            )
        return cls(name=seen.firewall.name, plane=seen.firewall.plane.value, load=load)
