"""Looking at access lists: packets, traces, findings, cost, difference."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.acl import ActionWord, DirectionWord, RuleDocument
from api.schemas.common import Incoming, Outgoing
from orchestrator.compile.cost import Cost, ListCost
from orchestrator.compile.pipeline import HIGHEST_RULE_PRIORITY, LOWEST_RULE_PRIORITY
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Family, format_address, parse_address
from orchestrator.policy.difference import Change, Difference
from orchestrator.policy.findings import Finding
from orchestrator.policy.model import Packet
from orchestrator.policy.oracle import Step
from orchestrator.policy.protocols import format_protocol, parse_protocol

AddressText = Annotated[str, Field(max_length=45, examples=["198.51.100.7", "2001:db8::7"])]
Byte = Annotated[int, Field(ge=0, le=255)]
Port = Annotated[int, Field(ge=0, le=65535)]


class PacketBody(Incoming):
    """The fields of a packet that a policy can look at. Ports, ICMP and flags are zero where a packet has none."""

    source: AddressText
    destination: AddressText
    protocol: Byte | Annotated[str, Field(max_length=32)]
    source_port: Port = 0
    destination_port: Port = 0
    icmp_type: Byte = 0
    icmp_code: Byte = 0
    tcp_flags: Byte = Field(default=0, description="FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128")
    later_fragment: bool = False

    def packet(self) -> Packet:
        """The packet. Raises BadInput."""
        family, source = _address(self.source, "source")
        other, destination = _address(self.destination, "destination")
        if family is not other:
            raise BadInput(f"it is not of the IP version of '{self.source}'", place="destination")
        return Packet(
            family=family,
            source=source,
            destination=destination,
            protocol=self._protocol(),
            source_port=self.source_port,
            destination_port=self.destination_port,
            icmp_type=self.icmp_type,
            icmp_code=self.icmp_code,
            tcp_flags=self.tcp_flags,
            later_fragment=self.later_fragment,
        )

    def _protocol(self) -> int:
        try:
            return self.protocol if isinstance(self.protocol, int) else parse_protocol(self.protocol)
        except AclflowError as error:
            raise error.within("protocol") from None

    @classmethod
    def of(cls, packet: Packet) -> PacketBody:
        return cls(
            source=format_address(packet.family, packet.source),
            destination=format_address(packet.family, packet.destination),
            protocol=format_protocol(packet.protocol),
            source_port=packet.source_port,
            destination_port=packet.destination_port,
            icmp_type=packet.icmp_type,
            icmp_code=packet.icmp_code,
            tcp_flags=packet.tcp_flags,
            later_fragment=packet.later_fragment,
        )


class StepBody(Outgoing):
    """One list's answer. `rule` is null where the list's default decided, `tenant` for operator rules."""

    tenant: str | None
    direction: DirectionWord | None
    action: ActionWord
    rule: str | None

    @classmethod
    def of(cls, step: Step) -> StepBody:
        return cls(
            tenant=step.tenant,
            direction=step.direction.value if step.direction else None,
            action=step.action.value,
            rule=step.rule,
        )


class TraceBody(Outgoing):
    """The fate of a packet and how it came about.

    For administrators in the whole domain. For a tenant only as far as its own lists and the operator's rules go:
    what other tenants permit is not shown.
    """

    scope: Literal["domain", "tenant"]
    action: ActionWord
    steps: list[StepBody]
    rule: RuleDocument | None = Field(description="the rule that decided; null where a default did")


class FindingBody(Outgoing):
    """One thing to look at in a list."""

    kind: Literal["never", "duplicate", "shadowed", "redundant", "conflict", "wide", "expired"]
    rules: list[str]
    witness: PacketBody | None
    explanation: str

    @classmethod
    def of(cls, finding: Finding) -> FindingBody:
        return cls(
            kind=finding.kind.value,
            rules=list(finding.rules),
            witness=PacketBody.of(finding.witness) if finding.witness else None,
            explanation=finding.explanation,
        )


class ChangeBody(Outgoing):
    """Packets whose fate would change: a packet to try it with, and the rules that decide them before and after."""

    direction: DirectionWord
    becomes: ActionWord
    before: list[str]
    after: list[str]
    witness: PacketBody

    @classmethod
    def of(cls, change: Change, becomes: ActionWord) -> ChangeBody:
        return cls(
            direction=change.direction.value,
            becomes=becomes,
            before=list(change.before),
            after=list(change.after),
            witness=PacketBody.of(change.box.witness()),
        )

    @classmethod
    def all_of(cls, difference: Difference) -> list[ChangeBody]:
        permitted = [cls.of(change, "permit") for change in difference.permitted]
        return permitted + [cls.of(change, "deny") for change in difference.denied]


class ListCostBody(Outgoing):
    """What one direction of a list costs on a switch, return traffic included."""

    rules: int
    flows: int = Field(description="flow entries")
    levels: int = Field(description="priorities that rules which overlap one another need")
    shapes: int = Field(description="hash tables that the first packet of a flow may be looked up in")

    @classmethod
    def of(cls, cost: ListCost) -> ListCostBody:
        return cls(rules=cost.rules, flows=cost.flows, levels=cost.levels, shapes=cost.shapes)


class CostBody(Outgoing):
    """What a list costs on a switch. A list of more than `most_levels` levels is refused when it is written."""

    ingress: ListCostBody
    egress: ListCostBody
    most_levels: int
    widest_rule: str | None = Field(description="the rule that needs the most flow entries")
    widest_rule_flows: int

    @classmethod
    def of(cls, cost: Cost) -> CostBody:
        return cls(
            ingress=ListCostBody.of(cost.ingress),
            egress=ListCostBody.of(cost.egress),
            most_levels=HIGHEST_RULE_PRIORITY - LOWEST_RULE_PRIORITY + 1,
            widest_rule=cost.widest_rule,
            widest_rule_flows=cost.widest_rule_flows,
        )


class ReviewBody(Outgoing):
    """A dry run of a list. `difference` is null where the list is too different from the one that is there."""

    findings: list[FindingBody]
    cost: CostBody
    difference: list[ChangeBody] | None


def _address(text: str, place: str) -> tuple[Family, int]:
    try:
        return parse_address(text)
    except AclflowError as error:
        raise error.within(place) from None
