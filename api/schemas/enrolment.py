"""How enforcement points enrol, and how machines become hosts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.common import Incoming, Name
from api.schemas.domains import DatapathId, Interface
from orchestrator.hosts.request import Machine, Onboarding
from orchestrator.hosts.switch import HOST_TLS, Datapath, Wanted
from orchestrator.identity.requests import LONGEST_REQUEST
from orchestrator.wire.domains import MAX_IDLE_MS

_LONGEST_S = 30 * 86400
_MOST_HOSTS = 1000

Request = Annotated[str, Field(max_length=LONGEST_REQUEST, description="certificate request (PKCS #10) in PEM")]


class NewInvitation(Incoming):
    """A request for an enrolment token: its lifetime, and its user if known."""

    lasts_s: int = Field(default=3600, ge=1, le=_LONGEST_S)
    name: Name | None = None
    kind: Name | None = None
    hosts: list[Name] = Field(
        default=[], max_length=_MOST_HOSTS, description="a controller's: it speaks for these switches alone"
    )


class NewGroup(Incoming):
    """A request for a group's enrolment token: the group, and the token's lifetime.

    The group is one of machines in the domain's cloud.
    """

    group: Name
    kind: Name
    lasts_s: int = Field(default=86400, ge=1, le=366 * 86400)


class Enrol(Incoming):
    """The use of an enrolment token.

    `csr` is needed where the service has an authority, `instance` for a group's.
    """

    token: str = Field(max_length=200)
    name: Name
    kind: Name
    csr: Request | None = None
    instance: Name | None = None


class EnrolSwitch(Incoming):
    """The use of an enrolment token of the kind `switch`.

    It is for the switch of the host that is named.
    """

    token: str = Field(max_length=200)
    name: Name
    csr: Request


class Signing(Incoming):
    """A key to be certified."""

    csr: Request


class SwitchSigning(Signing):
    """A key of an Open vSwitch to be certified.

    It may be the switch of several hosts.
    """

    also: list[Name] = Field(default=[], max_length=64, description="further hosts that it is the switch of")


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
    max_idle_ms: Annotated[int, Field(ge=1, le=86_400_000)] = MAX_IDLE_MS
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
