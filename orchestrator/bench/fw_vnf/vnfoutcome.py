"""From measured values to lines of plots, the capacity model, figures and notes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from orchestrator.bench.fw_vnf.alone import Rates
from orchestrator.bench.fw_vnf.vnfsizes import PAPER_OCTETS, Sizes
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.bench.traffic.measured import ratios
from orchestrator.scaling.capacity import CapacityModel, Measured, fit
from orchestrator.wire.firewalls import Plane

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
