"""The compared ways: with and without the lift, and their baselines."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.bench.traffic.addresses import TENANT, Clients
from orchestrator.bench.traffic.rules import TRAFFIC_RULES, Kind, Listed, Position
from orchestrator.placement.lifting import LiftedRule

LIFTED = tuple(LiftedRule(TENANT, rule.id) for rule in TRAFFIC_RULES)
"""Every rule for the traffic, so that each tool's packets meet a lifted rule."""

FIRST_MATCH = "iptables-legacy, first match"
SYSTEM, AF_XDP = "VNF-ACL", "VNF-ACL on AF_XDP"


@dataclass(frozen=True, slots=True)
class Way:
    """A firewall, whether the rules are lifted, whose connections, and the kind of list."""

    firewall: str
    lifted: bool = False
    clients: Clients = Clients.OUTSIDE
    kind: Kind = Kind.FIVE_TUPLES

    def __str__(self) -> str:
        words = [self.firewall, "lifted" if self.lifted else "", _WORDS[self.clients]]
        return ", ".join(filter(None, [*words, "" if self.kind is Kind.FIVE_TUPLES else self.kind.value]))

    def load_list(self, rules: int) -> Listed:
        position = Position.FIRST if self.firewall == FIRST_MATCH else Position.LAST
        return Listed(rules, position, self.kind)

    def with_lift(self) -> Way:
        return replace(self, lifted=True)


_WORDS = {
    Clients.ONE: "one client",
    Clients.OUTSIDE: "",
    Clients.INSIDE: "clients inside other tenants",
    Clients.NEIGHBOURS: "clients inside neighbours' tenants",
}


def curves(firewall: str) -> tuple[Way, ...]:
    """Return the ways measured at every number of rules."""
    way = Way(firewall)
    return (way, way.with_lift())


def besides(firewall: str) -> tuple[Way, ...]:
    """Return the ways measured at the largest number only: other clients and lists."""
    plain = (
        Way(firewall, clients=Clients.ONE),
        Way(firewall, clients=Clients.INSIDE),
        Way(firewall, clients=Clients.NEIGHBOURS),
        Way(firewall, kind=Kind.FEW_SOURCE_PORTS),
        Way(firewall, kind=Kind.NO_SOURCES),
    )
    return tuple(each for way in plain for each in (way, way.with_lift()))
