"""One line of an access list: what it looks at and what it does with what it matches."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.errors import BadInput, BadPolicy
from orchestrator.policy.addresses import ANY, Addresses
from orchestrator.policy.model.names import RuleId, check_name
from orchestrator.policy.ports import EVERY_PORT, PortRange, normalised
from orchestrator.policy.protocols import ICMP, ICMPV6, TCP, WITH_PORTS
from orchestrator.policy.tcpflags import ESTABLISHED, FlagMatch

_LONGEST_TEXT = 1024

SIDES = ("source", "destination")
"""The sides of a rule by name."""


class Action(enum.Enum):
    """What becomes of a packet."""

    PERMIT = "permit"
    DENY = "deny"


class Direction(enum.Enum):
    """Seen from the tenant: ingress is traffic to its endpoints."""

    INGRESS = "ingress"
    EGRESS = "egress"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an access list. Everything left out matches every value.

    `fragments` restricts the rule to later fragments (as the Cisco keyword). A rule that looks at ports, ICMP types
    or TCP flags never matches a later fragment, which carries none of them.
    """

    id: RuleId
    action: Action
    direction: Direction = Direction.INGRESS
    protocol: int | None = None
    source: Addresses = ANY
    destination: Addresses = ANY
    source_ports: tuple[PortRange, ...] = EVERY_PORT
    destination_ports: tuple[PortRange, ...] = EVERY_PORT
    icmp_type: int | None = None
    icmp_code: int | None = None
    established: bool = False
    tcp_flags: FlagMatch | None = None
    fragments: bool = False
    description: str = ""
    owner: str = ""
    expires: dt.datetime | None = None
    log: bool = False

    def __post_init__(self) -> None:
        check_name(self.id, "a rule id", place="id")
        if self.protocol is not None and not 0 <= self.protocol <= 255:
            raise BadInput(f"protocol {self.protocol} is not in 0..255", place="protocol")
        self._check_ports()
        self._check_icmp()
        self._check_tcp()
        if self.fragments and self.looks_past_the_ip_header:
            raise BadPolicy("later fragments carry no ports, ICMP types or TCP flags to match", place="fragments")
        for name in ("description", "owner"):
            if len(getattr(self, name)) > _LONGEST_TEXT:
                raise BadInput(f"longer than {_LONGEST_TEXT} characters", place=name)
        if self.expires is not None and self.expires.tzinfo is None:
            raise BadInput("a time needs its zone, as in 2030-01-31T12:00:00Z", place="expires")

    def _check_ports(self) -> None:
        for name in ("source_ports", "destination_ports"):
            ports: tuple[PortRange, ...] = getattr(self, name)
            if ports is EVERY_PORT:
                continue
            if not ports:
                raise BadInput("an empty list of ports matches nothing; leave it out to match every port", place=name)
            if self.protocol not in WITH_PORTS:
                raise BadPolicy("only tcp, udp and sctp have ports: name one of them as the protocol", place=name)
            if len(ports) > 1:
                object.__setattr__(self, name, normalised(ports))

    def _check_icmp(self) -> None:
        for name, value in (("icmp_type", self.icmp_type), ("icmp_code", self.icmp_code)):
            if value is None:
                continue
            if self.protocol not in (ICMP, ICMPV6):
                raise BadPolicy("only icmp and icmpv6 have types and codes", place=name)
            if not 0 <= value <= 255:
                raise BadInput(f"{value} is not in 0..255", place=name)
        if self.icmp_code is not None and self.icmp_type is None:
            raise BadPolicy("a code means nothing without its type", place="icmp_code")

    def _check_tcp(self) -> None:
        if self.established and self.tcp_flags is not None:
            raise BadPolicy("`established` already says which flags", place="tcp_flags")
        if (self.established or self.tcp_flags is not None) and self.protocol != TCP:
            place = "established" if self.established else "tcp_flags"
            raise BadPolicy("only tcp has flags: name tcp as the protocol", place=place)

    @property
    def looks_past_the_ip_header(self) -> bool:
        """Whether the rule needs a transport header, which later fragments do not carry."""
        return (
            self.source_ports != EVERY_PORT
            or self.destination_ports != EVERY_PORT
            or self.icmp_type is not None
            or bool(self.flag_matches)
        )

    @property
    def flag_matches(self) -> tuple[FlagMatch, ...]:
        """The TCP flags the rule asks for: any one of these disjoint matches; empty means it does not look."""
        if self.established:
            return ESTABLISHED
        return (self.tcp_flags,) if self.tcp_flags is not None else ()

    def own_side(self) -> Addresses:
        """The addresses on the tenant's side: the destination of ingress, the source of egress."""
        return self.destination if self.direction is Direction.INGRESS else self.source


def with_sides(rule: Rule, sides: Mapping[str, Addresses]) -> Rule:
    """The rule with other addresses on some of its `SIDES`."""
    source, destination = sides.get("source", rule.source), sides.get("destination", rule.destination)
    return replace(rule, source=source, destination=destination)
