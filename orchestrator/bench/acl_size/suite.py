"""The suite: what is measured, in which order, and where.

Every round takes every way at every number of rules, so that all meet the machine at all times; each time the list is
installed afresh and its verdicts are checked. AF_XDP comes in rounds of its own, for its polling thread takes a core
from whatever else is measured beside it.

From measured values to figures, lines of plots and notes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

from orchestrator.bench.progress import Expected, Progress, Steps
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.traffic.addresses import Clients
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.gauges import Gauges, KernelPlane, Load, Plane, SwitchPlane
from orchestrator.bench.traffic.httperf import compile_library
from orchestrator.bench.traffic.journal import Journal
from orchestrator.bench.traffic.line import serve_line, site
from orchestrator.bench.traffic.measured import Measured, Metric, Sample, ratios
from orchestrator.bench.traffic.rules import Listed, Position
from orchestrator.bench.traffic.vnf import vnf_acl
from orchestrator.errors import Missing, Refused, Unreachable
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import Allocator, Ports

PAPER_COUNTS = (250, 500, *range(1_000, 20_001, 1_000))
"""The paper's 22 numbers of rules."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of rules, rounds of everything, and the load.

    `pairs` are further turns of the shortest and the longest list alone, `libc_pairs` such of a switch that allocates
    with the C library.
    """

    counts: tuple[int, ...]
    rounds: int
    pairs: int
    libc_pairs: int
    load: Load
    step_s: float
    """The time of a measurement, with its list's loading and the checks of its verdicts, on two cores of 2025."""

    @classmethod
    def quick(cls) -> Self:
        load = Load(connections=1_024, at_once=64, seconds=1, trips=30, sources=10)
        return cls((250, 2_000, 20_000), rounds=3, pairs=15, libc_pairs=5, load=load, step_s=2.7)

    @classmethod
    def full(cls) -> Self:
        load = Load(connections=4_096, at_once=64, seconds=1, trips=100, sources=30)
        return cls(PAPER_COUNTS, rounds=15, pairs=30, libc_pairs=15, load=load, step_s=4.7)


@dataclass(frozen=True, slots=True)
class Way:
    """A way: its family (same speed without rules), the deciding rule's place, the requests."""

    family: str
    position: Position = Position.LAST
    clients: Clients = Clients.ONE

    def __str__(self) -> str:
        if self.family in LINEAR:
            return f"{self.family}, {self.position.value} match"
        return self.family if self.clients is Clients.ONE else f"{self.family}, many clients"

    def load_list(self, rules: int) -> Listed:
        return Listed(rules, self.position)

    def name_of_run(self, rules: int) -> str:
        """Name a run in the results; without rules there is no position to name."""
        return str(self) if rules else self.family


LINEAR = (Filter.IPTABLES_LEGACY.value, Filter.IPTABLES_NFT.value)
MAPS = "nftables maps"
VNF_ACL, VNF_ACL_AF_XDP, VNF_ACL_LIBC = "VNF-ACL", "VNF-ACL on AF_XDP", "VNF-ACL with the C library's malloc"

FAMILIES = {
    Filter.IPTABLES_LEGACY: Filter.IPTABLES_LEGACY.value,
    Filter.IPTABLES_NFT: Filter.IPTABLES_NFT.value,
    Filter.NFTABLES: MAPS,
}
KERNEL_WAYS = (*(Way(family, position) for position in Position for family in LINEAR), Way(MAPS))
SWITCH_WAYS = (Way(VNF_ACL), Way(VNF_ACL, clients=Clients.OUTSIDE))
AF_XDP_WAYS = (Way(VNF_ACL_AF_XDP), Way(VNF_ACL_AF_XDP, clients=Clients.OUTSIDE))

LAST_MATCH = Way(LINEAR[0])
"""The paper's worst case, in the faster of iptables' two backends."""


_SAME_AT_ANY_SIZE = Target(0.95, at_most=False)
_TEN_TIMES = Target(10.0, at_most=False)


def conclude(results: Results, curves: Measured, pairs: Measured, counts: Sequence[int]) -> None:
    """Record all figures.

    `pairs` holds the rounds in which only the shortest and the longest list took turns.
    """
    results.series += curves.series()
    least, most = min(counts), max(counts)
    _same_at_any_size(results, pairs, least, most)
    _against_itself(results, curves, most)
    if curves.of(VNF_ACL_AF_XDP, most, Metric.PACKETS):
        found = ratios(
            curves.of(VNF_ACL_AF_XDP, most, Metric.PACKETS), curves.of(VNF_ACL_AF_XDP, least, Metric.PACKETS)
        )
        results.figures[f"vnf_acl_af_xdp_pps_{most}_vs_{least}"] = Figure.of(found, "ratio")
    for (way, rules, metric), values in curves.values.items():
        if not rules and metric in {Metric.REQUESTS, Metric.PACKETS, Metric.RTT}:
            results.figures[f"{_make_word(way)}_no_rules_{metric.name.lower()}"] = Figure.of(values, metric.unit)
    _beside_the_paper(results, curves, most)


def _same_at_any_size(results: Results, pairs: Measured, least: int, most: int) -> None:
    """Compare the longest list with the shortest, with our allocator and the C library's."""
    for way, ending in ((VNF_ACL, ""), (VNF_ACL_LIBC, "_libc_malloc")):
        for metric, name in ((Metric.PACKETS, "pps"), (Metric.PACKET_CPU, "cpu_per_packet")):
            found = ratios(pairs.of(way, most, metric), pairs.of(way, least, metric))
            target = _SAME_AT_ANY_SIZE if (way, metric) == (VNF_ACL, Metric.PACKETS) else None
            results.figures[f"vnf_acl_{name}_{most}_vs_{least}{ending}"] = Figure.of(found, "ratio", target)


def _against_itself(results: Results, curves: Measured, most: int) -> None:
    """The VNF-ACL against iptables' last match, each relative to its own speed without rules."""

    def measure_packets(way: Way, rules: int) -> Sequence[float]:
        return curves.of(way.name_of_run(rules), rules, Metric.PACKETS)

    ours, theirs = Way(VNF_ACL), LAST_MATCH
    kept = {way: ratios(measure_packets(way, most), measure_packets(way, 0)) for way in (ours, theirs)}
    against = Figure.of(ratios(kept[ours], kept[theirs]), "ratio", _TEN_TIMES)
    results.figures[f"vnf_acl_vs_iptables_last_{most}"] = against
    for way, name in ((ours, "vnf_acl"), (theirs, "iptables_last")):
        results.figures[f"{name}_pps_{most}_vs_no_rules"] = Figure.of(kept[way], "ratio")


def _beside_the_paper(results: Results, curves: Measured, most: int) -> None:
    """Record the paper's three headlines at the longest list: VNF-ACL against iptables' last match."""
    for metric, name in ((Metric.PACKETS, "packets"), (Metric.REQUESTS, "requests"), (Metric.RTT, "rtt")):
        found = ratios(curves.of(VNF_ACL, most, metric), curves.of(str(LAST_MATCH), most, metric))
        results.figures[f"{name}_vnf_acl_vs_iptables_last_{most}_as_measured"] = Figure.of(found, "ratio")


def _make_word(way: str) -> str:
    return way.lower().replace(" ", "_").replace("-", "_")


def run(*, quick: bool, progress: Progress, journal: Path | None = None) -> Results:
    """Run the suite.

    `quick` takes fewer rounds of fewer numbers of rules; a run continues from its `journal`.
    """
    return measure(Sizes.quick() if quick else Sizes.full(), progress, journal=journal)


def measure(sizes: Sizes, progress: Progress, layout: Layout | None = None, *, journal: Path | None = None) -> Results:
    """Run the suite with these sizes.

    Raises Missing where a tool is not installed, Drifted where a list is not enforced.
    """
    settings = {"rounds": sizes.rounds, "pairs": sizes.pairs, "counts": list(sizes.counts)}
    results = Results("acl-size", {**settings, "connections": sizes.load.connections, "at_once": sizes.load.at_once})
    kept = Journal(journal, {"suite": results.suite, **results.settings})
    with site(layout) as place:
        gauges, steps = Gauges(sizes.load, compile_library(place.run_dir)), Steps(progress, _count_steps(sizes))
        bench = _Bench(place, sizes, gauges, steps, kept)
        bench.kernel_and_switch()
        bench.libc_malloc()
        bench.af_xdp(results)
    conclude(results, bench.curves, bench.pairs, sizes.counts)
    results.notes += _NOTES
    return results


def expect_length(*, quick: bool) -> Expected:
    """How long a run is."""
    sizes = Sizes.quick() if quick else Sizes.full()
    return Expected(_count_steps(sizes), sizes.step_s)


def _count_steps(sizes: Sizes) -> int:
    ways = (*KERNEL_WAYS, *SWITCH_WAYS, *AF_XDP_WAYS)
    families = {way.family for way in ways}
    return sizes.rounds * (len(ways) * len(sizes.counts) + len(families)) + (sizes.pairs + sizes.libc_pairs) * 2


def _pair(sizes: Sizes, turn: int) -> tuple[int, int]:
    """Return the headline's two numbers of rules, in alternating order."""
    least, most = min(sizes.counts), max(sizes.counts)
    return (most, least) if turn % 2 else (least, most)


@dataclass(slots=True)
class _Bench:
    """The measurements so far, and their means."""

    place: Layout
    sizes: Sizes
    gauges: Gauges
    steps: Steps
    journal: Journal
    curves: Measured = field(default_factory=Measured)
    pairs: Measured = field(default_factory=Measured)

    def kernel_and_switch(self) -> None:
        """Packet filters and the VNF-ACL on system ports, in turns."""
        with ExitStack() as stack:
            planes: dict[str, Plane] = {
                family: KernelPlane(stack.enter_context(serve_line(self.place, kind.value)), kind)
                for kind, family in FAMILIES.items()
            }
            planes[VNF_ACL] = stack.enter_context(_serve_switch(self.place, Ports.SYSTEM))
            self.curves.join(self._rounds(planes, (*KERNEL_WAYS, *SWITCH_WAYS)))
            self._pairs(planes[VNF_ACL], Way(VNF_ACL), self.sizes.pairs)

    def libc_malloc(self) -> None:
        """Measure the headline's pair with the C library's allocator."""
        with _serve_switch(self.place, Ports.SYSTEM, Allocator.LIBC) as plane:
            self._pairs(plane, Way(VNF_ACL_LIBC), self.sizes.libc_pairs)

    def af_xdp(self, results: Results) -> None:
        """The VNF-ACL on AF_XDP ports, where this machine can do it."""
        try:
            with _serve_switch(self.place, Ports.AF_XDP) as plane:
                self.curves.join(self._rounds({VNF_ACL_AF_XDP: plane}, AF_XDP_WAYS))
        except (Missing, Refused, Unreachable) as error:
            figure = f"vnf_acl_af_xdp_pps_{max(self.sizes.counts)}_vs_{min(self.sizes.counts)}"
            results.absent[figure] = f"AF_XDP ports do not work here: {error}"

    def _pairs(self, plane: Plane, way: Way, pairs: int) -> None:
        """The shortest and the longest list in turns."""
        for turn in range(pairs):
            for rules in _pair(self.sizes, turn):
                name = f"headline, round {turn + 1} of {pairs}: {way}, {rules} rules"
                self.steps.next(name)
                sample = self.journal.sample(name, partial(self._measure_steady, plane, way, rules))
                self.pairs.add(way.name_of_run(rules), rules, sample)

    def _rounds(self, planes: Mapping[str, Plane], ways: Sequence[Way]) -> Measured:
        """Every round: each family without rules, then each way at every number of rules."""
        found = Measured()
        turns = [(Way(family), 0) for family in planes] + [(way, rules) for rules in self.sizes.counts for way in ways]
        for turn in range(self.sizes.rounds):
            for way, rules in turns:
                name = f"round {turn + 1} of {self.sizes.rounds}: {way.name_of_run(rules)}, {rules} rules"
                self.steps.next(name)
                sample = self.journal.sample(name, partial(self._sample, planes[way.family], way, rules))
                found.add(way.name_of_run(rules), rules, sample)
        return found

    def _measure_steady(self, plane: Plane, way: Way, rules: int) -> Sample:
        plane.load(way.load_list(rules))
        return self.gauges.steady_packets(plane)

    def _sample(self, plane: Plane, way: Way, rules: int) -> Sample:
        """Measure one run; many clients matter only where the packets' owner does."""
        plane.load(way.load_list(rules))
        http = self.gauges.requests(plane, way.clients)
        if way.clients is not Clients.ONE:
            return http
        return {**http, **self.gauges.packets(plane), **self.gauges.round_trips(plane, Clients.OUTSIDE)}


@contextmanager
def _serve_switch(place: Layout, ports: Ports, allocator: Allocator = Allocator.JEMALLOC) -> Iterator[SwitchPlane]:
    name = f"vnf-{ports.value}-{allocator.name.lower()}"
    with serve_line(place, name) as line, vnf_acl(line, ports, allocator=allocator) as vnf:
        yield SwitchPlane(line, vnf)


_NOTES = (
    "the clock covers traffic only: every list is installed afresh before each measurement, its verdicts are checked, "
    "and a switch's cache is emptied",
    "requests: httperf in a closed loop, one request a connection, a page of one byte from lighttpd; packets: UDP "
    "datagrams of 1472 bytes by iperf3 as fast as it can, counted at the server's interface; round trips: netcat "
    "against a UDP echo",
    "vnf_acl_pps_*_vs_*: pairs of their own, of which the longer list comes first in every other; after a second that "
    "does not count the best of three, for what else the machine does only takes away; cpu_per_packet is the switch's "
    "CPU time for a packet in the same seconds",
    "..._libc_malloc: the same of a switch whose buffers come from the C library's allocator and not from jemalloc: "
    "freed flows scatter them over the heap, and a packet costs more the longer the lists were",
    "iptables forwards in the kernel, in the sender's own time; the VNF-ACL is Open vSwitch in user space (the paper's "
    "had the kernel's module), so a family is compared with its own speed without rules",
    "ratios to iptables' last match belong to a processor: a packet's walk through 20,000 rules is as fast as its "
    "caches are, and ratios five times as small as another processor's were seen",
    "client, firewall and server share this machine's cores: on two of them the rates of a firewall alone cannot be "
    "seen, and neighbours' load moves all rates",
)
