"""From measured values to figures. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.traffic.addresses import TENANT, Clients
from orchestrator.bench.traffic.gauges import Metric
from orchestrator.bench.traffic.measured import Measured, ratios
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


_GAINS = (
    ("requests", Metric.REQUESTS, Target(1.50, at_most=False)),
    ("rtt", Metric.CONNECTION, Target(0.65)),
    ("cpu", Metric.CPU, Target(0.60)),
    ("packets", Metric.PACKETS, None),
    ("rtt_new_flow", Metric.FIRST_RTT, None),
    ("rtt_known_flow", Metric.RTT, None),
)
"""What is compared: the figure's first word, the metric, and what many clients' ratio must reach."""

_FEW_UPCALLS = Target(0.001)
_LIFT_MS = Target(5.0)


@dataclass(slots=True)
class Lifts:
    """Milliseconds of the first lift, of each later one, and of taking each down."""

    first: float
    up: list[float] = field(default_factory=list)
    down: list[float] = field(default_factory=list)


def conclude(results: Results, values: Measured, most: int) -> None:
    """Record everything that traffic showed; figures are of lists of `most` rules."""
    results.series += values.series()
    many = Way(SYSTEM)
    _gains(results, values, most, many, "")
    _upcalls(results, values, most)
    _gains(results, values, most, Way(SYSTEM, clients=Clients.ONE), "_one_client")
    _gains(results, values, most, Way(SYSTEM, clients=Clients.INSIDE), "_inside_other_tenants")
    _gains(results, values, most, Way(SYSTEM, clients=Clients.NEIGHBOURS), "_inside_neighbours_tenants")
    _gains(results, values, most, Way(SYSTEM, kind=Kind.FEW_SOURCE_PORTS), "_few_source_ports")
    _gains(results, values, most, Way(SYSTEM, kind=Kind.NO_SOURCES), "_no_sources")
    _gains(results, values, most, Way(AF_XDP), "_af_xdp")
    for metric, name in ((Metric.REQUESTS, "requests"), (Metric.PACKETS, "packets"), (Metric.RTT, "rtt_known_flow")):
        pairs = values.of(str(many.with_lift()), most, metric), values.of(FIRST_MATCH, most, metric)
        results.figures[f"{name}_lifted_vs_iptables_first"] = Figure.of(ratios(*pairs), "ratio")


def lifts(results: Results, found: Lifts) -> None:
    """Record how long lifting one rule took."""
    results.figures["lift_one_rule_ms"] = Figure.of(found.up, "ms", _LIFT_MS)
    results.figures["first_lift_of_a_list_ms"] = Figure.of([found.first], "ms")
    results.figures["lower_one_rule_ms"] = Figure.of(found.down, "ms")


def _gains(results: Results, values: Measured, rules: int, way: Way, ending: str) -> None:
    """Lifted against unlifted, round by round; only the first comparison has targets."""
    for name, metric, target in _GAINS:
        before, after = values.of(str(way), rules, metric), values.of(str(way.with_lift()), rules, metric)
        if before and after:
            figure = Figure.of(ratios(after, before), "ratio", None if ending else target)
            results.figures[f"{name}_lifted_vs_not{ending}"] = figure


def _upcalls(results: Results, values: Measured, rules: int) -> None:
    """Record upcalls a connection, lifted and not.

    Those of the clients that cause more of them; of neighbours apart.
    """
    ways = [Way(SYSTEM, clients=clients) for clients in (Clients.OUTSIDE, Clients.INSIDE)]
    for ending, each in (("lifted", [way.with_lift() for way in ways]), ("unlifted", ways)):
        found = [values.of(str(way), rules, Metric.UPCALLS) for way in each]
        worst = [max(pair) for pair in zip(*found, strict=True)]
        target = _FEW_UPCALLS if ending == "lifted" else None
        results.figures[f"upcalls_per_connection_{ending}"] = Figure.of(worst, "1", target)
    neighbours = Way(SYSTEM, clients=Clients.NEIGHBOURS)
    for ending, way in (("lifted", neighbours.with_lift()), ("unlifted", neighbours)):
        name = f"upcalls_per_connection_{ending}_inside_neighbours_tenants"
        results.figures[name] = Figure.of(values.of(str(way), rules, Metric.UPCALLS), "1")
        results.figures[f"{name}_later"] = Figure.of(values.of(str(way), rules, Metric.LATER_UPCALLS), "1")
