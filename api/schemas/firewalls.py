"""Firewall VNFs: what they are and what they say of their load."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.schemas.common import BIGGEST, Incoming, Name
from orchestrator.compile.filters.rows import Plane
from orchestrator.store.records import FirewallRecord
from orchestrator.wire import firewalls as wire
from orchestrator.wire.firewalls import PlaneWord

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
