"""Machines that are to become hosts, over SSH or on the service's own machine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.common import Incoming, Name
from api.schemas.domains import DatapathId, Interface
from orchestrator.hosts.request import Machine, Onboarding
from orchestrator.hosts.switch import HOST_TLS, Datapath, Wanted

Address = Annotated[str, Field(min_length=1, max_length=253, description="a name or an address")]
Target = Annotated[str, Field(max_length=80, description="tcp:ADDRESS:PORT or ssl:ADDRESS:PORT")]


class MachineBody(Incoming):
    """How to log in to a machine. `local` stands for the service's own."""

    address: Address
    user: Annotated[str, Field(min_length=1, max_length=32)] = "root"
    port: Annotated[int, Field(ge=1, le=65535)] = 22

    def machine(self) -> Machine:
        return Machine(self.address, self.user, self.port)


class EssentialServices(Incoming):
    """Addresses of servers that every endpoint may reach, whatever its list says."""

    dhcp: list[str] = Field(default=[], max_length=16)
    dns: list[str] = Field(default=[], max_length=16)
    ntp: list[str] = Field(default=[], max_length=16)


class NewHost(Incoming):
    """A host with a configured switch, or a machine that is to become one.

    The latter has `machine`. Without a machine the datapath id must be said, and nothing else may be. With one it may
    be left out: it then follows from the names of domain and host, so that a machine that is replaced is known again.
    """

    name: Name
    uplink: Interface
    datapath_id: DatapathId | None = None
    machine: MachineBody | None = None
    controllers: list[Target] = Field(default=[], max_length=8)
    controller: MachineBody | None = None
    essential_services: EssentialServices = EssentialServices()
    bridge: Interface = "br-aclflow"
    datapath: Literal["system", "netdev"] = "system"
    max_idle_ms: Annotated[int, Field(ge=1, le=86_400_000)] = 60_000
    tls: bool = False
    adopt: bool = False

    def onboarding(self, domain: str) -> Onboarding:
        """The machine that is asked for. Raises BadInput. Only where there is a machine."""
        assert self.machine is not None
        targets = tuple(self.controllers)
        if self.controller is not None and not targets:
            targets = (f"{'ssl' if self.tls else 'tcp'}:{self.controller.address}:6653",)
        switch = Wanted(
            domain,
            self.name,
            self.uplink,
            targets,
            bridge=self.bridge,
            datapath_id=int(self.datapath_id or "0", 16),
            datapath=Datapath(self.datapath),
            max_idle_ms=self.max_idle_ms,
            tls=HOST_TLS if self.tls else None,
            adopt=self.adopt,
        )
        essential = {name: tuple(found) for name, found in self.essential_services.model_dump().items() if found}
        controller = self.controller.machine() if self.controller else None
        return Onboarding(self.machine.machine(), switch, controller, essential)
