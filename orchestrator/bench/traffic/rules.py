"""The measured lists: rules for the traffic at one place, and others.

A public service has a few networks shut out and is open to everybody else, so right before its rules stand denies that
must stay above them, also when they are lifted.

The others are of `bench.rulesets`, their destinations inside the tenant's network as those of a tenant's list must be,
and none matches what the rules for the traffic do. So a linear list decides at the place that was asked for, and a
classifier that caches has to look at every field that could have made a difference. Which fields these are depends on
the list's rules, so there are several kinds of lists.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace

from orchestrator.bench.rulesets import synthetic
from orchestrator.bench.traffic.addresses import ECHO, EXCLUDED, OWNED, SERVER, THROUGHPUT, UNSERVED, WEB
from orchestrator.policy.addresses import ANY, Addresses, Prefix
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.ports import EVERY_PORT, HIGHEST_PORT, PortRange
from orchestrator.policy.protocols import TCP, UDP

WEB_RULE = RuleId("web")
_LOWEST_NAMED, _STRIDE = 1_024, 40_503
"""Source ports that rules name are not well-known ones, and far from each other."""
_TO_SERVER = Addresses((SERVER,))
_TRAFFIC = (
    (WEB_RULE, TCP, WEB),
    (RuleId("throughput"), UDP, THROUGHPUT),
    (RuleId("echo"), UDP, ECHO),
    (RuleId("iperf3-control"), TCP, THROUGHPUT),
)
_PORTS = (*((protocol, port) for _, protocol, port in _TRAFFIC), (UDP, UNSERVED))
_SHUT_OUT = (EXCLUDED, *(Prefix(EXCLUDED.family, EXCLUDED.network + (2 * index << 8), 24) for index in (1, 2, 3)))
_DENIES = tuple(
    Rule(RuleId(f"not-{index}"), Action.DENY, source=Addresses((prefix,)), destination=_TO_SERVER)
    for index, prefix in enumerate(_SHUT_OUT)
)
TRAFFIC_RULES = tuple(
    Rule(name, Action.PERMIT, protocol=protocol, destination=_TO_SERVER, destination_ports=(PortRange(port, port),))
    for name, protocol, port in _TRAFFIC
)
"""A rule for each kind of traffic; the popular one first."""

NO_RULES = Acl(ingress_default=Action.PERMIT)
"""The list that a family's own speed is measured with."""


class Position(enum.Enum):
    """Where in the list the rules for the traffic stand."""

    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"


class Kind(enum.Enum):
    """The matches of the other rules besides destinations."""

    FIVE_TUPLES = "five-tuples"
    """Source addresses, and every other rule names one source port, as stateless lists do for what comes back."""
    FEW_SOURCE_PORTS = "few source ports"
    """Source addresses, and a source port in one rule of five."""
    NO_SOURCES = "no sources"
    """Neither."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list: `rules` in all (0: everything passes), the traffic's at `position`."""

    rules: int
    position: Position = Position.LAST
    kind: Kind = Kind.FIVE_TUPLES

    def acl(self) -> Acl:
        """Make the list, the same every time."""
        if not self.rules:
            return NO_RULES
        own = (*_DENIES, *TRAFFIC_RULES)
        others = list(_others(self.rules - len(own), self.kind))
        place = {Position.FIRST: 0, Position.MIDDLE: len(others) // 2, Position.LAST: len(others)}[self.position]
        return Acl((*others[:place], *own, *others[place:]))


def _others(how_many: int, kind: Kind) -> Iterator[Rule]:
    """Yield seeded rules that no traffic meets; longer lists begin like shorter ones."""
    drawn, left = how_many, how_many
    while left:
        for index, rule in enumerate(synthetic(drawn).rules[drawn - left :], drawn - left):
            made = _adapt_to_kind(replace(rule, destination=_move_into(rule.destination, OWNED)), kind, index)
            if not _meets_traffic(made):
                how_many -= 1
                yield made
        drawn, left = drawn + how_many, how_many


def _adapt_to_kind(rule: Rule, kind: Kind, index: int) -> Rule:
    if kind is Kind.NO_SOURCES:
        return replace(rule, source=ANY, source_ports=EVERY_PORT)
    if kind is Kind.FIVE_TUPLES and index % 2:
        port = _LOWEST_NAMED + index * _STRIDE % (HIGHEST_PORT - _LOWEST_NAMED + 1)
        return replace(rule, source_ports=(PortRange(port, port),))
    return rule


def _move_into(addresses: Addresses, network: Prefix) -> Addresses:
    """A prefix of the same length inside a network, or all of it."""
    (prefix,) = addresses.prefixes
    length = max(prefix.length, network.length)
    address = network.network | prefix.network & ~network.mask
    return Addresses((Prefix(prefix.family, address >> (32 - length) << (32 - length), length),))


def _meets_traffic(rule: Rule) -> bool:
    """Return whether a rule may match packets to a served or refused port."""
    return any(each.overlaps(SERVER) for each in rule.destination.prefixes) and any(
        rule.protocol == protocol and any(each.low <= port <= each.high for each in rule.destination_ports)
        for protocol, port in _PORTS
    )
