"""The suite: what is measured, in which order, and where.

Every round takes every way in turn, lifted and unlifted next to each other, each with its program installed afresh:
among flows of one priority a switch's order depends on what was there before, and so would its cache.

How much is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from orchestrator.bench import flow_cache
from orchestrator.bench.acl_size.aclsizes import PAPER_COUNTS
from orchestrator.bench.progress import Expected, Progress, Steps
from orchestrator.bench.promotion import drift
from orchestrator.bench.promotion.drift import Drift, LiftBench
from orchestrator.bench.promotion.outcome import (
    AF_XDP,
    FIRST_MATCH,
    LIFTED,
    SYSTEM,
    Lifts,
    Way,
    besides,
    conclude,
    curves,
    lifts,
)
from orchestrator.bench.results import Results
from orchestrator.bench.traffic.addresses import NEIGHBOURS_PORTS, Clients, policy
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.gauges import Gauges, KernelPlane, Load, Metric, Plane, Sample, SwitchPlane
from orchestrator.bench.traffic.httperf import compile_library
from orchestrator.bench.traffic.journal import Journal
from orchestrator.bench.traffic.line import RIGHT
from orchestrator.bench.traffic.measured import Measured
from orchestrator.bench.traffic.rules import Listed
from orchestrator.bench.traffic.site import serve_line, site
from orchestrator.bench.traffic.vnf import Ports, VnfAcl, vnf_acl
from orchestrator.errors import Missing, Refused, Unreachable
from orchestrator.lab.layout import Layout


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
    """What a measurement takes, with its list's loading and the checks of its verdicts, on two cores of 2025."""

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
    ways = len(every) * len(sizes.counts) + len(largest) + len(curves(AF_XDP))
    return sizes.rounds * ways + 1 + sizes.drift.rounds + flow_cache.steps(sizes.rounds)


def _pair_planes(firewall: str, plain: Plane, lifting: Plane) -> _Planes:
    return {(firewall, False): plain, (firewall, True): lifting}


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
        rates = flow_cache.measure(place, bench.sizes.rounds, bench.sizes.load.seconds, bench.steps.next)
    except (Missing, Refused) as error:
        results.absent["bpf_cache_vs_routing"] = str(error)
    else:
        flow_cache.record(results, rates)


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
)
