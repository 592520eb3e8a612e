"""The suite: what is measured, in which order, and where."""

from __future__ import annotations

from contextlib import ExitStack

from orchestrator.bench.firewall_server import general, growth, lookup, sixes, streams, updates
from orchestrator.bench.firewall_server.growth import Growth
from orchestrator.bench.firewall_server.lookup import NO_SET
from orchestrator.bench.firewall_server.pairs import HashSet
from orchestrator.bench.firewall_server.serveroutcome import conclude_growth, conclude_lookups, conclude_streams
from orchestrator.bench.firewall_server.serversizes import Sizes
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Results
from orchestrator.bench.traffic.site import site
from orchestrator.errors import Missing, Refused
from orchestrator.lab.layout import Layout
from orchestrator.lab.router import Router


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite. `quick` takes fewer rounds of fewer sizes."""
    return measure(Sizes.quick() if quick else Sizes.full(), progress)


def measure(sizes: Sizes, progress: Progress, layout: Layout | None = None) -> Results:
    """Run the suite with these sizes.

    Raises Missing where a tool is not installed, Drifted where a set decides wrongly.
    """
    settings = {"counts": list(sizes.counts), "rounds": sizes.rounds, "lookups": sizes.lookups, "loads": sizes.loads}
    results = Results("firewall-server", settings)
    steps = Steps(progress, _count_steps(sizes))
    with site(layout) as place:
        _sets(results, sizes, steps, place)
        sixes.record(results, sixes.measure(place, sizes, steps.next), sizes)
        conclude_streams(results, streams.measure(place, sizes, steps.next), sizes.counts)
        _general(results, sizes, steps, place)
        updates.record(results, updates.measure(place, sizes, steps.next), sizes)
    results.notes += _NOTES
    return results


def _count_steps(sizes: Sizes) -> int:
    sets = sizes.loads * len(sizes.counts) + len(sizes.intervals) + sizes.lookups + 1
    return sets + sixes.steps(sizes) + streams.steps(sizes) + general.steps(sizes.rounds) + updates.STEPS


def _general(results: Results, sizes: Sizes, steps: Steps, place: Layout) -> None:
    """Rules that are no pairs, where this machine can run the classifier."""
    try:
        rates = general.measure(place, sizes.general, sizes.rounds, sizes.seconds, steps.next)
    except (Missing, Refused) as error:
        general.absent(results, sizes.general, error)
    else:
        general.record(results, rates)


def _sets(results: Results, sizes: Sizes, steps: Steps, place: Layout) -> None:
    """Measure sets as they grow and are searched, each in a router of its own."""
    hashed: dict[int, list[Growth]] = {count: [] for count in sizes.counts}
    with ExitStack() as stack:

        def open_router(name: str) -> Router:
            return stack.enter_context(Router(f"{place.prefix}{name}-"))

        routers = {NO_SET: open_router("none"), **{count: open_router(f"hash{count}") for count in sizes.counts}}
        sets = {count: HashSet() for count in sizes.counts}
        for turn in range(sizes.loads):
            for count in sizes.counts:
                steps.next(f"load {turn + 1} of {sizes.loads}: hash set of {count:,}")
                hashed[count].append(growth.hash_set(routers[count], sets[count], count, sizes))
        ranged, grown = {}, {}
        for count in sizes.intervals:
            steps.next(f"interval set of {count:,}")
            ranged[count] = open_router(f"ranges{count}")
            grown[count] = growth.interval_set(ranged[count], count, sizes)
        for count in sizes.counts:
            lookup.check(routers[count], count)
        found = lookup.measure(routers, ranged, sizes.lookups, sizes.spread, steps.next)
    conclude_growth(results, hashed, grown)
    conclude_lookups(results, found, sizes.counts)


_NOTES = (
    "one stream goes through the middle of three namespaces, segments neither joined nor split; CPU nanoseconds an "
    "octet are of all that takes part (qperf at both ends, the kernel's forwarding, the gateways of the tunnel), the "
    "share of busy processors is mpstat's and counts neighbours on the machine too",
    "the tunnel is strongSwan in user space (AES-128-GCM), for this kernel has no ESP: a kernel's own would cost less, "
    "so the ratio says what this machine can show and not what hardware with AES offload would",
    "lookup_cpu is a packet's whole way through a router by the clock of the thread that sends it, with the same "
    "packets in every set; lookup_ns is what the set adds. Between few pairs, as in the paper's stream, they are in "
    "the processor's caches; spread over a set they are not, and misses are what a large set costs",
    "memory is what the kernel's slabs and large arrays grow by while a set is loaded, machine-wide",
)
