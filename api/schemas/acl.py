"""Access lists, in the native form that `orchestrator.policy.formats.native` reads and writes.

The documents here are what OpenAPI shows; lists are not read through them but by the native reader, so that the command
line and this API say the same about the same fault.
"""

from __future__ import annotations

import datetime as dt
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from pydantic.json_schema import SkipJsonSchema

from api.schemas.common import NAME, Incoming, PrefixText, read_prefix
from orchestrator.policy.addresses import Prefix
from orchestrator.store.acls.grouprows import MOST_MEMBERS

ActionWord = Literal["permit", "deny"]
DirectionWord = Literal["ingress", "egress"]
Ports = int | str | list[int | str]


class _Document(BaseModel):
    """A document that the native reader takes: known fields only, and no nulls.

    A field that is not set is left out.
    """

    model_config = ConfigDict(extra="forbid")

    @model_serializer(mode="wrap")
    def _serialize_what_is_set(self, everything: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {name: value for name, value in everything(self).items() if name in self.model_fields_set}


class TcpFlagsDocument(_Document):
    """TCP flags that must be set, and that must not be."""

    set: list[str] = []
    clear: list[str] = []


class RuleDocument(_Document):
    """One line of an access list. A field that is left out matches everything."""

    id: str = Field(pattern=NAME)
    direction: DirectionWord = "ingress"
    action: ActionWord
    protocol: str | int = Field(default="any", description="a name or a number")
    source: str | list[str] = Field(default="any", description="any, prefixes, or @group")
    destination: str | list[str] = "any"
    source_ports: Ports = Field(default="any", description="80, 1024-65535, or a list of these")
    destination_ports: Ports = "any"
    icmp_type: int | SkipJsonSchema[None] = None
    icmp_code: int | SkipJsonSchema[None] = None
    established: bool = False
    tcp_flags: TcpFlagsDocument | SkipJsonSchema[None] = None
    fragments: bool = False
    dscp: Ports = Field(default="any", description="46, ef, 8-15, or a list of these")
    description: str = Field(default="", max_length=1024)
    owner: str = Field(default="", max_length=1024)
    expires: dt.datetime | SkipJsonSchema[None] = None
    log: bool = False
    stateless: bool = Field(default=False, description="decides by its own match, where the domain tracks connections")


class GroupDocument(_Document):
    """A named set of prefixes."""

    prefixes: list[str]
    description: str = ""


class TakenFromDocument(_Document):
    """The tenant and the version of its list that a document was made from."""

    tenant: str = Field(pattern=NAME)
    version: int = Field(ge=0)


class AclDocument(_Document):
    """A whole access list.

    In each direction the first rule that matches decides, else that direction's default.
    """

    version: Literal[1] = 1
    ingress_default: ActionWord = "deny"
    egress_default: ActionWord = "permit"
    groups: dict[str, GroupDocument] = {}
    taken_from: TakenFromDocument | SkipJsonSchema[None] = Field(
        default=None, description="in a PUT: refused unless the list is still at this version of this tenant"
    )
    rules: list[RuleDocument]


Members = list[PrefixText]


class MembersChange(Incoming):
    """Members that come and members that go, in one change."""

    add: Members = Field(default=[], max_length=MOST_MEMBERS, description="those that are there already stay")
    remove: Members = Field(default=[], max_length=MOST_MEMBERS, description="each must be there")

    def added_prefixes(self) -> tuple[Prefix, ...]:
        """Read the members to add. Raises BadInput with the place."""
        return tuple(read_prefix(text, f"add[{index}]") for index, text in enumerate(self.add))

    def removed_prefixes(self) -> tuple[Prefix, ...]:
        """Read the members to remove. Raises BadInput with the place."""
        return tuple(read_prefix(text, f"remove[{index}]") for index, text in enumerate(self.remove))
