"""Security domains: hosts, endpoints, generations."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from api.schemas.acl import RuleDocument
from api.schemas.common import Incoming, Name, Outgoing, PrefixText, read_prefixes
from orchestrator.policy.model import HIGHEST_PATH_MTU_RATE, PATH_MTU_RATE, Endpoint, TenantId
from orchestrator.store.records import HostRecord
from orchestrator.wire.domains import PATH_MTU_LIMIT, RETURN_TRAFFIC, ReturnTrafficWord

Interface = Annotated[str, Field(min_length=1, max_length=15, description="an interface's name")]
DatapathId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="16 hexadecimal digits")]
PathMtuRate = Annotated[int, Field(ge=1, le=HIGHEST_PATH_MTU_RATE, description=PATH_MTU_LIMIT)]
Mac = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$", examples=["0a:00:00:00:00:01"])]


class NewDomain(Incoming):
    """A domain to be made."""

    id: Name
    return_traffic: ReturnTrafficWord = Field("established", description=RETURN_TRAFFIC)
    path_mtu_rate: PathMtuRate = PATH_MTU_RATE


class DomainChange(Incoming):
    """A change of a domain: at least one setting. Others stay as they are."""

    return_traffic: ReturnTrafficWord | None = Field(None, description=RETURN_TRAFFIC)
    path_mtu_rate: PathMtuRate | None = None

    @model_validator(mode="after")
    def _check_that_it_changes(self) -> DomainChange:
        if not self.said():
            raise ValueError("say `return_traffic`, `path_mtu_rate` or both")
        return self

    def said(self) -> dict[str, str | int]:
        """Return the settings that it speaks of."""
        return self.model_dump(exclude_none=True)


class Host(Incoming):
    """A host: its switch, and the interface towards the edge."""

    name: Name
    datapath_id: DatapathId
    uplink: Interface

    def record(self) -> HostRecord:
        """Return it as the store's value."""
        return HostRecord(self.name, int(self.datapath_id, 16), self.uplink)

    @classmethod
    def of(cls, record: HostRecord) -> Host:
        return cls(name=record.name, datapath_id=f"{record.datapath_id:016x}", uplink=record.uplink)


class EndpointPut(Incoming):
    """A tenant's network port.

    It is the interface on its host's switch, and the addresses that it may use. Behind a shared interface several live,
    told apart by MAC address and address: each must say so.
    """

    tenant: Name
    port: Interface
    mac: Mac
    prefixes: list[PrefixText] = Field(max_length=1000)
    shared: bool = False

    def endpoint(self, name: str) -> Endpoint:
        """Return it as an endpoint of the policy, under this name."""
        mac = int(self.mac.replace(":", ""), 16)
        return Endpoint(name, TenantId(self.tenant), self.port, mac, read_prefixes(self.prefixes), self.shared)


class OperatorRulesDocument(Outgoing):
    """The rules above all tenants of a domain, in order."""

    rules: list[RuleDocument]
