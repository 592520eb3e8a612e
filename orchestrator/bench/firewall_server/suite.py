"""The suite: what is measured, in which order, where, and the resulting figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar

from orchestrator.bench.firewall_server import general, growth, streams, updates
from orchestrator.bench.firewall_server.growth import NO_SET, Growth, Lookups, Pattern
from orchestrator.bench.firewall_server.pairs import HashSet
from orchestrator.bench.firewall_server.serversizes import Sizes
from orchestrator.bench.firewall_server.streams import ROUTING, TUNNEL, Streams, hash_set
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.bench.traffic.line import site
from orchestrator.bench.traffic.measured import ratios
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
        growth.record_sixes(results, growth.measure_sixes(place, sizes, steps.next), sizes)
        conclude_streams(results, streams.measure(place, sizes, steps.next), sizes.counts)
        _general(results, sizes, steps, place)
        updates.record(results, updates.measure(place, sizes, steps.next), sizes)
    results.notes += _NOTES
    return results


def _count_steps(sizes: Sizes) -> int:
    sets = sizes.loads * len(sizes.counts) + len(sizes.intervals) + sizes.lookups + 1
    return sets + growth.count_sixes_steps(sizes) + streams.steps(sizes) + general.steps(sizes.rounds) + updates.STEPS


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
            growth.check_lookups(routers[count], count)
        found = growth.measure_lookups(routers, ranged, sizes.lookups, sizes.spread, steps.next)
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


Value = TypeVar("Value")

_ELEMENTS = "elements"
_ADDING = "figure 15 time to add one (ms)"
_GB, _ONE_US, _LOADED_S = Target(1.0), Target(20.0), Target(60.0)
_SAME_AT_ANY_SIZE, _A_TENTH = Target(1.05), Target(0.1)


def conclude_growth(results: Results, hashed: Mapping[int, Sequence[Growth]], ranged: Mapping[int, Growth]) -> None:
    """Figures 14 and 15: memory, and the time to add one."""
    most = max(hashed)
    largest = hashed[most]
    results.figures[f"gb_{most}"] = Figure.of([(each.memory_bytes or 0.0) / 1e9 for each in largest], "GB", _GB)
    results.figures[f"octets_an_element_{most}"] = Figure.of(
        [(each.memory_bytes or 0.0) / most for each in largest], "octets"
    )
    results.figures[f"load_s_{most}"] = Figure.of([each.load_s for each in largest], "s", _LOADED_S)
    for count, runs in hashed.items():
        target = _ONE_US if count == most else None
        results.figures[f"add_one_us_{count}"] = Figure.of([each.one_us or 0.0 for each in runs], "us", target)
    results.figures[f"add_batch_us_an_element_{most}"] = Figure.of([each.batch_us or 0.0 for each in largest], "us")
    for count, each in ranged.items():
        results.figures[f"interval_set_add_one_ms_{count}"] = Figure.of([each.typed_ms], "ms")
    results.series += [
        _line("hash set", hashed, "figure 14 memory (GB)", lambda each: (each.memory_bytes or 0.0) / 1e9),
        _line("hash set, our messages", hashed, _ADDING, lambda each: (each.one_us or 0) / 1e3),
        _line("hash set, the nft command", hashed, _ADDING, lambda each: each.typed_ms),
        _line(
            "interval set, the nft command",
            {count: [each] for count, each in ranged.items()},
            _ADDING,
            lambda each: each.typed_ms,
        ),
        _line("hash set, our messages", hashed, "time to load (s)", lambda each: each.load_s),
    ]  # fmt: skip


def conclude_lookups(results: Results, found: Lookups, counts: Sequence[int]) -> None:
    """CPU a packet against the number of elements."""
    least, most = min(counts), max(counts)
    for pattern, ending, target in ((Pattern.FEW, "", _SAME_AT_ANY_SIZE), (Pattern.THOUSAND, "_thousand_pairs", None)):
        same = ratios(found.of(most, pattern), found.of(least, pattern))
        results.figures[f"lookup_cpu_{most}_vs_{least}{ending}"] = Figure.of(same, "ratio", target)
        for count in (least, most):
            extra = _beyond(found.of(count, pattern), found.of(NO_SET, pattern))
            results.figures[f"lookup_ns_{count}{ending}"] = Figure.of(extra, "ns")
    spread = _beyond(found.of(most, Pattern.SPREAD), found.of(NO_SET, Pattern.SPREAD))
    results.figures[f"lookup_ns_{most}_spread"] = Figure.of(spread, "ns")
    label = "CPU time a packet (ns)"
    for pattern in (Pattern.FEW, Pattern.THOUSAND):
        runs = {count: found.of(count, pattern) for count in counts}
        results.series.append(_line(f"hash set, {pattern.value}", runs, label, float))
    if found.ranged:
        results.series.append(_line("interval set, 16 addresses", found.ranged, label, float))


def conclude_streams(results: Results, found: Streams, counts: Sequence[int]) -> None:
    """Figures 11 to 13, and the tunnel beside the largest set."""
    most = max(counts)
    flat = [way for way in (ROUTING, TUNNEL) if way in found.bandwidth]
    for way in (*flat, hash_set(most)):
        name = way.lower().replace(" ", "_").replace(",", "")
        runs = found.bandwidth[way]
        results.figures[f"{name}_mbit_s"] = Figure.of([each.octets_s * 8 / 1e6 for each in runs], "Mb/s")
        results.figures[f"{name}_cpu_ns_an_octet"] = Figure.of([each.cpu_ns_an_octet for each in runs], "ns")
        results.figures[f"{name}_latency_us"] = Figure.of(found.latency_us[way], "us")
    if found.absent is None:
        ours, theirs = found.bandwidth[hash_set(most)], found.bandwidth[TUNNEL]
        costs = ratios([each.cpu_ns_an_octet for each in ours], [each.cpu_ns_an_octet for each in theirs])
        results.figures["cpu_per_byte_vs_ipsec"] = Figure.of(costs, "ratio", _A_TENTH)
    else:
        results.absent["cpu_per_byte_vs_ipsec"] = found.absent
    for label, values in _panels(found).items():
        by_size = {count: values[hash_set(count)] for count in counts}
        results.series.append(_line("hash set", by_size, label, float))
        for way in flat:
            results.series.append(_line(way, dict.fromkeys((min(counts), most), values[way]), label, float))


def _panels(found: Streams) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """Return the values of each plot, by way."""
    return {
        "figure 11 processors busy during a stream (%)": {
            way: [100 * each.busy_share for each in runs] for way, runs in found.bandwidth.items()
        },
        "CPU time an octet (ns)": {
            way: [each.cpu_ns_an_octet for each in runs] for way, runs in found.bandwidth.items()
        },
        "figure 12 bandwidth of a stream (Mb-s)": {
            way: [each.octets_s * 8 / 1e6 for each in runs] for way, runs in found.bandwidth.items()
        },
        "figure 13 latency (us)": found.latency_us,
    }


def _beyond(values: Sequence[float], bare: Sequence[float]) -> list[float]:
    """Return the excess over a router without a set, round by round."""
    return [mine - none for mine, none in zip(values, bare, strict=True)]


def _line(name: str, runs: Mapping[int, Sequence[Value]], label: str, value: Callable[[Value], float]) -> Series:
    """Medians against the number of elements."""
    medians = tuple(statistics.median(value(each) for each in values) for values in runs.values())
    return Series(name, tuple(map(float, runs)), medians, _ELEMENTS, label, x_log=True)
