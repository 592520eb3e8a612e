"""Security domains: hosts, endpoints, generations."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

from pydantic import Field

from api.schemas.acl import RuleDocument
from api.schemas.common import Incoming, Name, Outgoing, PrefixText, read_prefixes
from orchestrator.policy.model import Endpoint, TenantId
from orchestrator.store.points.records import EnforcedState, Laggard
from orchestrator.store.records import DomainRecord, EndpointRecord, HostRecord

Interface = Annotated[str, Field(min_length=1, max_length=15, description="an interface's name")]
DatapathId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="16 hexadecimal digits")]
Mac = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$", examples=["0a:00:00:00:00:01"])]
ReturnTrafficWord = Literal["established", "explicit"]


class NewDomain(Incoming):
    """A domain to be made."""

    id: Name
    return_traffic: ReturnTrafficWord = "established"


class DomainChange(Incoming):
    """What may be changed of a domain."""

    return_traffic: ReturnTrafficWord


class DomainBody(Outgoing):
    """A security domain: hosts that hold the same rules."""

    id: str
    return_traffic: ReturnTrafficWord
    generation: int
    version: int
    created: dt.datetime

    @classmethod
    def of(cls, record: DomainRecord) -> DomainBody:
        return cls(
            id=record.id,
            return_traffic=record.return_traffic.value,
            generation=record.generation,
            version=record.version,
            created=record.created,
        )


class Host(Incoming):
    """A host: its switch, and the interface towards the edge."""

    name: Name
    datapath_id: DatapathId
    uplink: Interface

    def record(self) -> HostRecord:
        return HostRecord(self.name, int(self.datapath_id, 16), self.uplink)

    @classmethod
    def of(cls, record: HostRecord) -> Host:
        return cls(name=record.name, datapath_id=f"{record.datapath_id:016x}", uplink=record.uplink)


class WrittenHost(Outgoing):
    """A host just onboarded, and the generation that it must reach."""

    name: str
    datapath_id: str
    uplink: str
    generation: int


class EndpointPut(Incoming):
    """A tenant's network port: the interface on its host's switch, and the addresses it may use."""

    tenant: Name
    port: Interface
    mac: Mac
    prefixes: list[PrefixText] = Field(max_length=1000)

    def endpoint(self, name: str) -> Endpoint:
        mac = int(self.mac.replace(":", ""), 16)
        return Endpoint(name, TenantId(self.tenant), self.port, mac, read_prefixes(self.prefixes))


class EndpointBody(Outgoing):
    """An endpoint."""

    name: str
    tenant: str
    port: str
    mac: str
    prefixes: list[str]
    version: int

    @classmethod
    def of(cls, record: EndpointRecord) -> EndpointBody:
        endpoint = record.endpoint
        return cls(
            name=endpoint.name,
            tenant=endpoint.tenant,
            port=endpoint.port,
            mac=endpoint.mac.to_bytes(6, "big").hex(":"),
            prefixes=list(map(str, endpoint.prefixes)),
            version=record.version,
        )


class OperatorRulesDocument(Outgoing):
    """The rules above all tenants of a domain, in order."""

    rules: list[RuleDocument]


class LaggardBody(Outgoing):
    """A host that does not hold a generation yet. Tenants are not told which, nor why."""

    host: str | None
    generation: int | None
    state: str | None
    error: str | None

    @classmethod
    def of(cls, laggard: Laggard, *, named: bool) -> LaggardBody:
        report = laggard.point.report if laggard.point else None
        return cls(
            host=laggard.host if named else None,
            generation=report.generation if report else None,
            state=report.state.value if report else None,
            error=report.error if report and named else None,
        )


class GenerationBody(Outgoing):
    """How far a generation has got: enforced when every host was read back at it or at a later one."""

    domain: str
    generation: int
    state: Literal["enforced", "pending"]
    hosts: int
    laggards: list[LaggardBody]

    @classmethod
    def of(cls, domain: str, state: EnforcedState, *, named: bool) -> GenerationBody:
        return cls(
            domain=domain,
            generation=state.generation,
            state="enforced" if state.done else "pending",
            hosts=state.hosts,
            laggards=[LaggardBody.of(each, named=named) for each in state.laggards],
        )
