"""Looking at access lists: packets, traces, findings, cost, difference."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from api.schemas.acl import ActionWord, DirectionWord, RuleDocument
from api.schemas.common import Incoming, Line, Name, Outgoing
from orchestrator.errors import AclflowError, BadInput
from orchestrator.policy.addresses import Family, format_address, parse_address
from orchestrator.policy.describe import box_json, box_text
from orchestrator.policy.difference import Change, Difference, Fate
from orchestrator.policy.dscp import HIGHEST_CODE_POINT
from orchestrator.policy.findings import Finding, Subject
from orchestrator.policy.model import Packet, Rule
from orchestrator.policy.oracle import Step
from orchestrator.policy.protocols import format_protocol, parse_protocol
from orchestrator.wire.costs import Cost
from orchestrator.wire.lists import FindingKind, SeverityWord, Waiver

AddressText = Annotated[str, Field(max_length=45, examples=["198.51.100.7", "2001:db8::7"])]
Byte = Annotated[int, Field(ge=0, le=255)]
CodePoint = Annotated[int, Field(ge=0, le=HIGHEST_CODE_POINT)]
KindWord = FindingKind | Literal["expiring"]
SeverityCounts = dict[SeverityWord, int]
PartWord = Literal["difference", "findings", "cost", "firewall"]
"""The parts of a report on a list; `firewall` is its cost with that of a firewall VNF, which takes longest."""
Port = Annotated[int, Field(ge=0, le=65535)]


class PacketBody(Incoming):
    """The fields of a packet that a policy can look at.

    Ports, ICMP and flags are zero where a packet has none.
    """

    source: AddressText
    destination: AddressText
    protocol: Byte | Annotated[str, Field(max_length=32)]
    source_port: Port = 0
    destination_port: Port = 0
    icmp_type: Byte = 0
    icmp_code: Byte = 0
    tcp_flags: Byte = Field(default=0, description="FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128")
    dscp: CodePoint = 0
    later_fragment: bool = False

    def packet(self) -> Packet:
        """The packet. Raises BadInput."""
        family, source = _read_address(self.source, "source")
        other, destination = _read_address(self.destination, "destination")
        if family is not other:
            raise BadInput(f"it is not of the IP version of '{self.source}'", place="destination")
        return Packet(
            family=family,
            source=source,
            destination=destination,
            protocol=self._read_protocol(),
            source_port=self.source_port,
            destination_port=self.destination_port,
            icmp_type=self.icmp_type,
            icmp_code=self.icmp_code,
            tcp_flags=self.tcp_flags,
            dscp=self.dscp,
            later_fragment=self.later_fragment,
        )

    def _read_protocol(self) -> int:
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
            dscp=packet.dscp,
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
    tier: Literal["server", "host"] = Field(
        description="where the packet's fate is settled first; a tenant is told it as of a packet from outside"
    )
    server: str | None = Field(description="for administrators: the firewall that drops it, where it is one alone")
    lifted: bool = Field(description="the rule is decided ahead of its list")
    heavy: bool = Field(description="the rule is a heavy hitter: its packets go past the firewall servers")


class FindingBody(Outgoing):
    """One thing to look at in a list."""

    kind: KindWord
    rules: list[str]
    witness: PacketBody | None
    explanation: str
    severity: SeverityWord
    reason: str = Field(description="why it is of that severity")
    group: str | None = Field(default=None, description="the address group that is meant, where it is one")
    waiver: Waiver | None = Field(default=None, description="who took responsibility for it, until when and why")

    @classmethod
    def of(cls, finding: Finding, waiver: Waiver | None = None) -> FindingBody:
        return cls(
            kind=finding.kind.value,
            rules=list(finding.rules),
            witness=PacketBody.of(finding.witness) if finding.witness else None,
            explanation=finding.explanation,
            severity=finding.severity.value,
            reason=finding.weight.reason,
            waiver=waiver,
            group=finding.group,
        )

    @classmethod
    def expiring(cls, rule: Rule) -> FindingBody:
        """A rule whose time will soon be over."""
        until = rule.expires.isoformat() if rule.expires else "never"
        return cls(
            kind="expiring",
            rules=[rule.id],
            witness=None,
            explanation=f"'{rule.id}' holds until {until} only",
            severity="note",
            reason="so that its end surprises nobody",
        )


class WaiverRequest(Incoming):
    """A finding to waive, with the reason and the end.

    It is named by its kind, and its rule (both of a conflict) or group.
    """

    kind: FindingKind
    rules: Annotated[tuple[Name, ...], Field(strict=False, max_length=2)] = ()
    group: Name | None = None
    reason: Line
    ends: Annotated[AwareDatetime, Field(strict=False)]

    def subject(self) -> Subject:
        """Return the subject of the finding that is waived.

        Raises BadInput for a number of rules that no finding of the kind has.
        """
        wanted = 0 if self.kind == "group" else 2 if self.kind == "conflict" else 1
        if len(self.rules) != wanted or (self.group is not None) != (self.kind == "group"):
            names = {0: "an address group", 1: "one rule", 2: "two rules"}[wanted]
            raise BadInput(f"a finding of kind {self.kind} is about {names}", place="rules" if wanted else "group")
        return Subject.subject_named(self.kind, self.rules, self.group)


class ChangeBody(Outgoing):
    """Packets that a change decides otherwise, with an example and the deciding rules.

    The rules are those that decide before and after. The packets are those of `packets`, without what the rules
    `less_before` of the list before and `less_after` of the list after match. `summary` says the same for people, cut
    where it is long.
    """

    direction: DirectionWord
    becomes: Fate = Field(
        description="`stateless`: decided by a stateless rule, by their connections no more; `tracked`: the reverse"
    )
    before: list[str]
    after: list[str]
    packets: dict[str, object] = Field(description="an axis that holds every value is null")
    less_before: list[str]
    less_after: list[str]
    summary: str
    witness: PacketBody

    @classmethod
    def of(cls, change: Change, becomes: Fate) -> ChangeBody:
        return cls(
            direction=change.direction.value,
            becomes=becomes,
            before=list(change.before),
            after=list(change.after),
            packets=box_json(change.box),
            less_before=list(change.less_before),
            less_after=list(change.less_after),
            summary=box_text(change.box),
            witness=PacketBody.of(change.witness),
        )

    @classmethod
    def all_of(cls, difference: Difference) -> list[ChangeBody]:
        return [cls.of(change, fate) for fate, changes in difference.by_fate for change in changes]


class ToldBody(Outgoing):
    """Findings about a list, and those that the compared list has not.

    Null: not asked for. Findings that are waived are in `waived` and nowhere else; `severities` count the others, the
    worst first.
    """

    findings: list[FindingBody] | None = None
    counts: dict[KindWord, int] | None = None
    severities: SeverityCounts | None = None
    waived: list[FindingBody] | None = None
    brought: list[FindingBody] | None = None
    brought_counts: dict[KindWord, int] | None = None
    brought_severities: SeverityCounts | None = None


class ReviewBody(ToldBody):
    """The review of a list that changes nothing.

    `difference` is null where the list is too different from the one that is there. `findings`, and those that the
    change brings, are the first thousand; the counts are of all. Parts that were not asked for are null.
    """

    cost: Cost | None
    difference: list[ChangeBody] | None


class StandingBody(Outgoing):
    """Findings about a list as it is, and its costs.

    `findings` are the first of each kind; `counts` says how many there are of each. Parts that were not asked for are
    null.
    """

    version: int
    findings: list[FindingBody] | None
    counts: dict[KindWord, int] | None
    severities: SeverityCounts | None
    waived: list[FindingBody] | None
    cost: Cost | None


def _read_address(text: str, place: str) -> tuple[Family, int]:
    try:
        return parse_address(text)
    except AclflowError as error:
        raise error.within(place) from None
