"""One line of an access list: its match and its action."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from orchestrator.errors import BadInput, BadPolicy
from orchestrator.policy.addresses import ANY, Addresses
from orchestrator.policy.dscp import EVERY_CODE_POINT
from orchestrator.policy.fields import CARRIED, Kind, MatchField
from orchestrator.policy.model.givennames import RuleId, check_name
from orchestrator.policy.ports import EVERY_PORT, PortRange, normalise_ranges
from orchestrator.policy.tcpflags import ESTABLISHED, FlagMatch

_LONGEST_TEXT = 1024
_OF_HEADERS = attrgetter(*(field.attribute for field in CARRIED))
_EVERY = tuple(field.every for field in CARRIED)
"""The attributes of `CARRIED` in a rule that looks at none of them."""

SIDES = ("source", "destination")
"""The sides of a rule by name."""


class Action(enum.Enum):
    """The action on a packet."""

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
    or TCP flags never matches a later fragment, which carries none of them. `dscp` is a set of code points
    (`policy/dscp.py`).

    Where the domain tracks connections, a `stateless` rule alone decides the packets that match it first, without a
    connection (`policy/connections.py`). Elsewhere all rules are stateless, and the mark has no effect.
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
    dscp: int | None = None
    description: str = ""
    owner: str = ""
    expires: dt.datetime | None = None
    log: bool = False
    stateless: bool = False

    def __post_init__(self) -> None:
        check_name(self.id, "a rule id", place="id")
        if self.protocol is not None and not 0 <= self.protocol <= 255:
            raise BadInput(f"protocol {self.protocol} is not in 0..255", place="protocol")
        if self.established and self.tcp_flags is not None:
            raise BadPolicy("`established` already says which flags", place="tcp_flags")
        for field in CARRIED:
            asked = getattr(self, field.attribute)
            if asked is not field.every:
                self._check(field, asked)
        if self.fragments and self.looks_past_the_ip_header:
            raise BadPolicy("later fragments carry no ports, ICMP types or TCP flags to match", place="fragments")
        if self.dscp is not None:
            self._check_dscp(self.dscp)
        for name in ("description", "owner"):
            if len(getattr(self, name)) > _LONGEST_TEXT:
                raise BadInput(f"longer than {_LONGEST_TEXT} characters", place=name)
        if self.expires is not None:
            object.__setattr__(self, "expires", _in_utc(self.expires))

    def _check(self, field: MatchField, asked: Any) -> None:
        """Raise unless the rule may match this upper-layer field; put ranges in order."""
        place = field.attribute if field.kind is not Kind.BITS else "established" if self.established else "tcp_flags"
        if field.kind is Kind.RANGES and not asked:
            raise BadInput("an empty list of ports matches nothing; leave it out to match every port", place=place)
        if not any(self.protocol in protocols for protocols in (field.carriers or {}).values()):
            raise BadPolicy(field.only, place=place)
        if field.kind is Kind.NUMBER and not 0 <= asked <= 255:
            raise BadInput(f"{asked} is not in 0..255", place=place)
        if field.needs is not None and getattr(self, field.needs.attribute) is None:
            raise BadPolicy(f"a {field.label} means nothing without its {field.needs.label}", place=place)
        if field.kind is Kind.RANGES and len(asked) > 1:
            object.__setattr__(self, field.attribute, normalise_ranges(asked))

    def _check_dscp(self, asked: int) -> None:
        """Raise unless it is a set of code points; all of them are None."""
        if not 0 < asked <= EVERY_CODE_POINT:
            raise BadInput("an empty set of DSCP values matches nothing; leave it out to match every one", place="dscp")
        if asked == EVERY_CODE_POINT:
            object.__setattr__(self, "dscp", None)

    @property
    def looks_past_the_ip_header(self) -> bool:
        """Whether the rule needs a transport header, which later fragments do not carry."""
        return bool(_OF_HEADERS(self) != _EVERY)

    @property
    def icmp(self) -> tuple[int, ...]:
        """The ICMP type and code asked for: none, the type alone, or both."""
        return tuple(asked for asked in (self.icmp_type, self.icmp_code) if asked is not None)

    @property
    def flag_matches(self) -> tuple[FlagMatch, ...]:
        """The rule's TCP flag matches, disjoint alternatives; empty matches all."""
        if self.established:
            return ESTABLISHED
        return (self.tcp_flags,) if self.tcp_flags is not None else ()

    def own_side(self) -> Addresses:
        """The addresses on the tenant's side: the destination of ingress, the source of egress."""
        return self.destination if self.direction is Direction.INGRESS else self.source


def _in_utc(time: dt.datetime) -> dt.datetime:
    """Return a time in UTC.

    Beyond the calendar it is the calendar's first or last time. Raises BadInput for a time without a zone.
    """
    if time.tzinfo is None:
        raise BadInput("a time needs its zone, as in 2030-01-31T12:00:00Z", place="expires")
    try:
        return time.astimezone(dt.UTC)
    except OverflowError:
        nearest = dt.datetime.min if time.year == dt.MINYEAR else dt.datetime.max
        return nearest.replace(tzinfo=dt.UTC)


def with_sides(rule: Rule, sides: Mapping[str, Addresses]) -> Rule:
    """The rule with other addresses on some of its `SIDES`."""
    source, destination = sides.get("source", rule.source), sides.get("destination", rule.destination)
    return replace(rule, source=source, destination=destination)
