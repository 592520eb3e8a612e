"""The suite: what is measured, in which order, where, and the resulting figures.

Every round takes every way in turn, lifted and unlifted next to each other, each with its program installed afresh:
among flows of one priority a switch's order depends on what was there before, and so would its cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

from orchestrator.bench.acl_size.suite import PAPER_COUNTS
from orchestrator.bench.progress import Expected, Progress, Steps
from orchestrator.bench.promotion import drift, flowcache
from orchestrator.bench.promotion.drift import Drift, LiftBench
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.traffic.addresses import NEIGHBOURS_PORTS, TENANT, Clients, policy
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.gauges import Gauges, KernelPlane, Load, Plane, SwitchPlane
from orchestrator.bench.traffic.httperf import compile_library
from orchestrator.bench.traffic.journal import Journal
from orchestrator.bench.traffic.line import RIGHT, serve_line, site
from orchestrator.bench.traffic.measured import Measured, Metric, Sample, ratios
from orchestrator.bench.traffic.rules import TRAFFIC_RULES, Kind, Listed, Position
from orchestrator.bench.traffic.vnf import VnfAcl, vnf_acl
from orchestrator.errors import Missing, Refused, Unreachable
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import Ports
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import ReturnTraffic


def measure_lifts(vnf: VnfAcl, rules: int, turns: int) -> Lifts:
    """Lift one rule among many and lower it again, `turns` times after a first.

    The clock goes from the decision to the switch's barrier. It covers finding the form that changes nothing (hoist),
    compiling, proving the program's lifted part against the policy, and one bundle to the switch, with its barrier and
    with the rows read back that it brought. Each of the traffic's rules is lifted in turn, alone, and taken down again.
    The first lift of a list leaves results about the list that later lifts use, so it is counted apart.
    """
    bench = LiftBench(vnf, policy(Listed(rules).acl(), server_port=RIGHT))
    found = Lifts(bench.bring(LIFTED[:1]))
    bench.bring(())
    for turn in range(1, turns + 1):
        found.up.append(bench.bring((LIFTED[turn % len(LIFTED)],)))
        found.down.append(bench.bring(()))
    return found


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of rules (the largest gives the figures), rounds, single lifts, and the load."""

    counts: tuple[int, ...]
    rounds: int
    lifts: int
    load: Load
    drift: Drift
    step_s: float
    """The time of a measurement, with its list's loading and the checks of its verdicts, on two cores of 2025."""

    @classmethod
    def quick(cls) -> Self:
        load = Load(connections=4_096, at_once=64, seconds=1, trips=30, sources=20)
        drift = Drift(services=32, budget=8, rounds=9, connections=4_096, rules=2_000, exchanges=4)
        return cls((250, 2_000, 20_000), rounds=3, lifts=20, load=load, drift=drift, step_s=2.4)

    @classmethod
    def full(cls) -> Self:
        load = Load(connections=16_384, at_once=64, seconds=1, trips=100, sources=50)
        drift = Drift(services=32, budget=8, rounds=31, connections=16_384, rules=20_000, exchanges=4)
        return cls(PAPER_COUNTS, rounds=15, lifts=60, load=load, drift=drift, step_s=4.7)


_Planes = Mapping[tuple[str, bool], Plane]
"""By firewall, and whether it lifts."""


def run(*, quick: bool, progress: Progress, journal: Path | None = None) -> Results:
    """Run the suite.

    `quick` takes fewer rounds of fewer numbers of rules; a run continues from its `journal`.
    """
    return measure(Sizes.quick() if quick else Sizes.full(), progress, journal=journal)


def measure(sizes: Sizes, progress: Progress, layout: Layout | None = None, *, journal: Path | None = None) -> Results:
    """Run the suite with these sizes.

    Raises Missing where a tool is not installed, Drifted where a list is not enforced.
    """
    settings = {
        "rounds": sizes.rounds, "lifts": sizes.lifts, "counts": list(sizes.counts), "drift": asdict(sizes.drift),
    }  # fmt: skip
    results = Results("promotion", {**settings, "connections": sizes.load.connections, "at_once": sizes.load.at_once})
    most = max(sizes.counts)
    numbers = [*Metric.__members__, *sizes.drift.numbers()]
    kept = Journal(journal, {"suite": results.suite, **results.settings}, numbers)
    with site(layout) as place:
        bench = _Bench(
            sizes, Gauges(sizes.load, compile_library(place.run_dir)), Steps(progress, _count_steps(sizes)), kept
        )
        with ExitStack() as stack:
            kernel = stack.enter_context(serve_line(place, "first"))
            line = stack.enter_context(serve_line(place, "vnf"))
            vnf = stack.enter_context(vnf_acl(line, Ports.SYSTEM, neighbours=NEIGHBOURS_PORTS))
            first: _Planes = {(FIRST_MATCH, False): KernelPlane(kernel, Filter.IPTABLES_LEGACY)}
            planes = {**first, **_pair_planes(SYSTEM, SwitchPlane(line, vnf), SwitchPlane(line, vnf, LIFTED))}
            bench.values.join(bench.rounds(planes, _ways()))
            bench.steps.next(f"one rule among {most}, lifted and lowered")
            lifts(results, measure_lifts(vnf, most, sizes.lifts))
        measured = kept.row("drift", lambda: drift.measure(sizes.drift, place, bench.gauges.preload, bench.steps.next))
        drift.record(results, sizes.drift, measured)
        _measure_tracked(bench, place)
        _af_xdp(bench, place, results)
        _before_a_filter(bench, place, results)
    conclude(results, bench.values, most)
    results.notes += (*_NOTES, *drift.NOTES)
    return results


def _ways() -> tuple[Sequence[Way], Sequence[Way]]:
    """Return the ways measured at every size, and those at the largest only."""
    return (Way(FIRST_MATCH), *curves(SYSTEM)), besides(SYSTEM)


def expect_length(*, quick: bool) -> Expected:
    """How long a run is."""
    sizes = Sizes.quick() if quick else Sizes.full()
    return Expected(_count_steps(sizes), sizes.step_s)


def _count_steps(sizes: Sizes) -> int:
    every, largest = _ways()
    ways = len(every) * len(sizes.counts) + len(largest) + len(curves(TRACKED)) + len(curves(AF_XDP))
    return sizes.rounds * ways + 1 + sizes.drift.rounds + flowcache.count_steps(sizes.rounds)


def _pair_planes(firewall: str, plain: Plane, lifting: Plane) -> _Planes:
    return {(firewall, False): plain, (firewall, True): lifting}


def _measure_tracked(bench: _Bench, place: Layout) -> None:
    """Measure the largest number of rules in a domain that tracks connections.

    There a packet's connection is looked up before the lifted rows and before the list alike.
    """
    returns = ReturnTraffic.TRACKED
    with serve_line(place, "tracked") as line, vnf_acl(line, Ports.SYSTEM, tracks_prefixes=True) as vnf:
        plain, lifting = (SwitchPlane(line, vnf, lifted, returns) for lifted in ((), LIFTED))
        bench.values.join(bench.rounds(_pair_planes(TRACKED, plain, lifting), ((), curves(TRACKED))))


def _af_xdp(bench: _Bench, place: Layout, results: Results) -> None:
    """Measure the largest number of rules on AF_XDP ports, where this machine can."""
    try:
        with serve_line(place, "afxdp") as line, vnf_acl(line, Ports.AF_XDP) as vnf:
            planes = _pair_planes(AF_XDP, SwitchPlane(line, vnf), SwitchPlane(line, vnf, LIFTED))
            bench.values.join(bench.rounds(planes, ((), curves(AF_XDP))))
    except (Missing, Refused, Unreachable) as error:
        results.absent["requests_lifted_vs_not_af_xdp"] = f"AF_XDP ports do not work here: {error}"


def _before_a_filter(bench: _Bench, place: Layout, results: Results) -> None:
    """Measure popular rules in a flow cache before a filter, where possible."""
    try:
        rates = flowcache.measure(place, bench.sizes.rounds, bench.sizes.load.seconds, bench.steps.next)
    except (Missing, Refused) as error:
        results.absent["bpf_cache_vs_routing"] = str(error)
    else:
        flowcache.record(results, rates)


@dataclass(slots=True)
class _Bench:
    """The measurements so far, and their means."""

    sizes: Sizes
    gauges: Gauges
    steps: Steps
    journal: Journal
    values: Measured = field(default_factory=Measured)

    def rounds(self, planes: _Planes, ways: tuple[Sequence[Way], Sequence[Way]]) -> Measured:
        """Run all rounds: some ways at every number of rules, others at the largest."""
        found = Measured()
        every, largest = ways
        most = max(self.sizes.counts)
        turns = [(way, rules) for rules in self.sizes.counts for way in every] + [(way, most) for way in largest]
        for turn in range(self.sizes.rounds):
            for way, rules in turns:
                name = f"round {turn + 1} of {self.sizes.rounds}: {way}, {rules} rules"
                self.steps.next(name)
                plane = planes[way.firewall, way.lifted]
                found.add(str(way), rules, self.journal.sample(name, partial(self._sample, plane, way, rules)))
        return found

    def _sample(self, plane: Plane, way: Way, rules: int) -> Sample:
        """Measure one run; other clients matter only where the packets' owner does."""
        plane.load(way.load_list(rules))
        clients = way.clients
        http = self.gauges.requests(plane, clients)
        if clients is Clients.NEIGHBOURS and isinstance(plane, SwitchPlane):
            return {**http, **self.gauges.later_upcalls(plane, clients)}
        if clients is not Clients.OUTSIDE:
            return http
        return {**http, **self.gauges.packets(plane), **self.gauges.round_trips(plane, clients)}


_NOTES = (
    "lifted and unlifted programs are installed afresh before each measurement, their verdicts are checked and the "
    "switch's cache is emptied; the traffic's rules are the last of a list, behind four denies that are lifted with "
    "them",
    "rtt_lifted_vs_not is httperf's mean time of a connection under load; netcat's round trips, on an idle line, are "
    "rtt_new_flow and rtt_known_flow: there most of the time is netcat's and the kernel's own",
    "upcalls_per_connection_lifted is of those clients that cause more: many of nobody's, or many of which half are "
    "inside tenants whose endpoints are on other hosts. Where those tenants have endpoints on this very switch "
    "(neighbours), it has to tell answers to them from answers that leave, and keeps a cache entry for each block "
    "of addresses around an endpoint: a number that does not grow with connections, so as many further clients "
    "(..._later) find nearly all of them there",
    "lift_one_rule_ms: from the decision to the barrier behind the switch's bundle and what is read back of it, with "
    "hoist, compiler and proof; the traffic's four rules in turn, each alone, after the list's first lift",
    "..._stateful: the same list in a domain that tracks connections, lifted against unlifted: both look a packet's "
    "connection up first, and forget all connections before each measurement",
)


LIFTED = tuple(LiftedRule(TENANT, rule.id) for rule in TRAFFIC_RULES)
"""Every rule for the traffic, so that each tool's packets meet a lifted rule."""

FIRST_MATCH = "iptables-legacy, first match"
SYSTEM, AF_XDP, TRACKED = "VNF-ACL", "VNF-ACL on AF_XDP", "VNF-ACL that tracks connections"


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
"""The comparisons: the figure's first word, the metric, and the target of many clients' ratio."""

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
    _gains(results, values, most, Way(TRACKED), "_stateful")
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
    tracked = Way(TRACKED)
    for ending, way in (("lifted", tracked.with_lift()), ("unlifted", tracked)):
        upcalls = values.of(str(way), rules, Metric.UPCALLS)
        if upcalls:
            results.figures[f"upcalls_per_connection_{ending}_stateful"] = Figure.of(upcalls, "1")
