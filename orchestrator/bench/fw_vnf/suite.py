"""The suite: what is measured, in which order, where, and the resulting figures.

Every round takes every number of rules at every size and rate, then every number of firewalls, so that all meet the
machine at all times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial

from orchestrator.bench.fw_vnf.manyfirewalls import MEGABIT, PAPER_OCTETS, STREAMS, Sizes, filter_text, run_firewalls
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.bench.traffic import filters, iperf
from orchestrator.bench.traffic.addresses import THROUGHPUT
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.line import SERVER, Line, site, until_listening
from orchestrator.bench.traffic.measured import ratios
from orchestrator.lab import processes
from orchestrator.lab.layout import Layout
from orchestrator.scaling.capacity import CapacityModel, Measured, fit
from orchestrator.wire.firewalls import Plane

_OVER = 1.6
"""The load offered where firewalls are to be full, in shares of their capacity: buckets are not quite equal."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates: sent and arrived in Mb/s of datagrams, and packets a second that arrived."""

    sent: float
    arrived: float
    pps: float


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite. `quick` takes fewer rounds of fewer numbers of everything."""
    return measure(Sizes.quick() if quick else Sizes.full(), progress)


def measure(sizes: Sizes, progress: Progress, layout: Layout | None = None) -> Results:
    """Run the suite with these sizes.

    Raises Missing where a tool is not installed, Drifted where the switch spreads otherwise.
    """
    results = Results(
        "fw-vnf",
        {"rounds": sizes.rounds, "rules": list(sizes.rules), "octets": list(sizes.lengths), "rates": list(sizes.rates),
         "vnfs": list(sizes.vnfs), "cap_mbps": sizes.cap, "offered": list(sizes.offered), "seconds": sizes.seconds},
    )  # fmt: skip
    values, steps = Values(), Steps(progress, _count_steps(sizes))
    with site(layout) as place:
        with _run_alone(place) as line:
            for turn in range(sizes.rounds):
                for rules in sizes.rules:
                    steps.next(f"round {turn + 1} of {sizes.rounds}: one VNF, {rules} rules")
                    _load(line, rules)
                    for length in sizes.lengths:
                        found = _measure_firewall(line, size=length, seconds=sizes.seconds)
                        values.by_size.setdefault((rules, length), []).append(found)
                    for rate in sizes.rates:
                        found = _measure_firewall(line, size=PAPER_OCTETS, seconds=sizes.seconds, rate=rate)
                        values.by_rate.setdefault((rules, rate), []).append(found)
                for rules in sizes.lists:
                    steps.next(f"round {turn + 1} of {sizes.rounds}: one VNF with nftables, {rules} rules")
                    _load(line, rules, Filter.NFTABLES)
                    for length in sizes.lengths:
                        found = _measure_firewall(line, size=length, seconds=sizes.seconds)
                        values.nftables.setdefault((rules, length), []).append(found)
        with run_firewalls(place, max(sizes.vnfs)) as several:
            several.load(max(sizes.rules), sizes.cap)
            for turn in range(sizes.rounds):
                for count in sizes.vnfs:
                    steps.next(f"round {turn + 1} of {sizes.rounds}: {count} VNFs")
                    several.spread(count)
                    for rate in sizes.offered:
                        carried = several.measure_carried(count, rate, sizes.seconds)
                        values.together.setdefault((count, rate), []).append(carried)
                    full = several.measure_carried(count, round(count * sizes.cap * _OVER), sizes.seconds)
                    values.full.setdefault(count, []).append(full)
    conclude(results, values, sizes)
    results.notes += _write_notes(sizes)
    return results


def _count_steps(sizes: Sizes) -> int:
    return sizes.rounds * (len(sizes.rules) + len(sizes.lists) + len(sizes.vnfs))


def _write_notes(sizes: Sizes) -> list[str]:
    return [
        "one VNF: iptables (legacy backend), stateless, one line a rule, only the last of them permits; iperf3 sends "
        "UDP datagrams, what arrives is counted at the receiver's interface; rates are of datagrams without headers",
        "offloads are off on every link: with them forty packets pass the rules as one",
        "on a veth pair the sender's own time pays for forwarding: a slow firewall slows the generator down, where the "
        "paper's, on another machine, lost packets; so transmission falls with the rules here, and with it reception",
        f"several VNFs: each link is capped at {sizes.cap} Mb/s (tbf), for two cores cannot run five firewalls beside "
        f"generators and receivers; with {max(sizes.rules)} rules; so five against one tests how well traffic is "
        f"spread. As many generators as VNFs, {STREAMS} flows each; at saturation {_OVER} times the caps is offered; "
        f"the switch goes before all others on the processors (priority {processes.FIRST})",
        "one VNF with nftables: the same list as aclflow writes it for the agents of a fleet, whose rules are looked "
        "up, not gone through; datagrams as fast as the generator can",
        "capacity, of either filter: times of a packet fitted to the medians by rules and size; its error is the 90th "
        "percentile of predicting each measurement from the others",
    ]


@contextmanager
def _run_alone(layout: Layout) -> Iterator[Line]:
    """A line whose middle is the firewall, and whose server receives."""
    with Line(layout, "alone") as line:
        line.start(SERVER, "iperf3", "--server", "--port", str(THROUGHPUT))
        line.inside(SERVER, partial(until_listening, THROUGHPUT))
        yield line


def _load(line: Line, rules: int, kind: Filter = Filter.IPTABLES_LEGACY) -> None:
    """Have the firewall hold the worst-case list; without rules, no filter at all."""
    _unload(line)
    if rules:
        filters.load(line, kind, filter_text(rules, kind))


def _unload(line: Line) -> None:
    """Have the firewall forward everything, whichever filter held a list."""
    for kind in (Filter.IPTABLES_LEGACY, Filter.NFTABLES):
        filters.clear(line, kind)


def _measure_firewall(line: Line, *, size: int, seconds: int, rate: int = 0) -> Rates:
    """Send datagrams of a size at `rate` Mb/s, or at full speed."""
    found = iperf.flood(line, seconds=seconds, size=size, bits_per_s=rate * MEGABIT)
    bits = size * 8 / found.seconds / MEGABIT
    return Rates(found.sent * bits, found.arrived * bits, found.per_s)


_FIVE = 5
_SPREADS_WELL = Target(4.5, at_most=False)
_NANO = 1e9


@dataclass(slots=True)
class Values:
    """All values in the order of the rounds.

    One VNF by (rules, bytes), by (rules, Mb/s offered), with nftables by (rules, bytes); several of them by (how many,
    Mb/s offered), and at saturation by how many, in Mb/s.
    """

    by_size: dict[tuple[int, int], list[Rates]] = field(default_factory=dict)
    by_rate: dict[tuple[int, int], list[Rates]] = field(default_factory=dict)
    nftables: dict[tuple[int, int], list[Rates]] = field(default_factory=dict)
    together: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    full: dict[int, list[float]] = field(default_factory=dict)


def conclude(results: Results, values: Values, sizes: Sizes) -> None:
    """Record all figures of the suite."""
    results.series += _by_size(values, sizes, "transmission rate of one VNF (Mb/s)", lambda rates: rates.sent)
    results.series += _by_size(values, sizes, "reception rate of one VNF (Mb/s)", lambda rates: rates.arrived)
    results.series += _by_rate(values, sizes)
    results.series += _together(values, sizes)
    _record_one_vnf(results, values, sizes)
    _record_spread(results, values, sizes)
    _capacity(results, values)


def _by_size(values: Values, sizes: Sizes, label: str, of: Callable[[Rates], float]) -> list[Series]:
    """The paper's figures 1 and 2."""
    return [
        _make_series(f"{rules} rules", sizes.lengths, [[of(each) for each in values.by_size[rules, length]]
              for length in sizes.lengths], "octets of a datagram", label)
        for rules in sizes.rules
    ]  # fmt: skip


def _by_rate(values: Values, sizes: Sizes) -> list[Series]:
    """The paper's figure 3."""
    return [
        _make_series(f"{rules} rules", sizes.rates, [[each.arrived for each in values.by_rate[rules, rate]]
              for rate in sizes.rates], "offered (Mb/s)", f"reception rate of one VNF at {PAPER_OCTETS} octets (Mb/s)")
        for rules in sizes.rules
    ]  # fmt: skip


def _together(values: Values, sizes: Sizes) -> list[Series]:
    """The paper's figure 4, for several numbers of VNFs."""
    label = f"reception rate of VNFs of {sizes.cap} Mb/s each (Mb/s)"
    return [
        _make_series(f"{count} VNFs", sizes.offered, [values.together[count, rate] for rate in sizes.offered],
              "offered (Mb/s)", label)
        for count in sizes.vnfs
    ]  # fmt: skip


def _make_series(name: str, x: Sequence[int], values: Sequence[Sequence[float]], x_label: str, y_label: str) -> Series:
    figures = [Figure.of(each, "") for each in values]
    return Series(
        name, tuple(map(float, x)), tuple(each.median for each in figures), x_label, y_label,
        low=tuple(each.low for each in figures), high=tuple(each.high for each in figures),
    )  # fmt: skip


def _record_one_vnf(results: Results, values: Values, sizes: Sizes) -> None:
    most, length = max(sizes.rules), _find_nearest(sizes.lengths, PAPER_OCTETS)
    with_rules = [each.arrived for each in values.by_size[most, length]]
    without = [each.arrived for each in values.by_size[0, length]]
    results.figures[f"one_vnf_mbps_{most}_rules"] = Figure.of(with_rules, "Mb/s")
    results.figures["one_vnf_mbps_no_rules"] = Figure.of(without, "Mb/s")
    results.figures[f"reception_{most}_rules_vs_none"] = Figure.of(ratios(with_rules, without), "ratio")
    looked_up = [each.arrived for each in values.nftables[most, length]]
    results.figures[f"one_vnf_nftables_mbps_{most}_rules"] = Figure.of(looked_up, "Mb/s")
    results.figures[f"reception_nftables_{most}_rules_vs_none"] = Figure.of(ratios(looked_up, without), "ratio")


def _record_spread(results: Results, values: Values, sizes: Sizes) -> None:
    words = {2: "two", 3: "three", _FIVE: "five"}
    for count in sizes.vnfs:
        if count in words:
            found = Figure.of(
                ratios(values.full[count], values.full[1]), "ratio", _SPREADS_WELL if count == _FIVE else None
            )
            results.figures[f"{words[count]}_vnfs_vs_one"] = found


def _capacity(results: Results, values: Values) -> None:
    """Fit a model of each filter to the medians, and say how well it predicts."""
    kept = {}
    for plane, prefix, found in (
        (Plane.IPTABLES, "capacity", values.by_size),
        (Plane.NFTABLES, "capacity_nftables", values.nftables),
    ):
        measured = [
            Measured(rules, length, Figure.of([each.pps for each in rates], "").median)
            for (rules, length), rates in found.items()
        ]
        kept[plane.value] = [asdict(each) for each in measured]
        model = fit(measured, version=1)
        for name, value in _model_figures(prefix, model).items():
            results.figures[name] = Figure(value, value, value, 1, "ratio" if name.endswith("error") else "ns")
        if model.error is None:
            results.absent[f"{prefix}_prediction_error"] = "fewer than four measurements"
    results.settings = {**results.settings, "capacity": kept}


def _model_figures(prefix: str, model: CapacityModel) -> Mapping[str, float]:
    times = {"base": model.base_s, "per_rule": model.per_rule_s, "per_octet": model.per_octet_s}
    found = {f"{prefix}_{name}_ns": seconds * _NANO for name, seconds in times.items()}
    return found if model.error is None else {**found, f"{prefix}_prediction_error": model.error}


def _find_nearest(options: Sequence[int], wanted: int) -> int:
    return min(options, key=lambda option: abs(option - wanted))
