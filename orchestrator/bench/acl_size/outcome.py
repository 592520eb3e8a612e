"""From measured values to figures, lines of plots and notes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.bench.acl_size.ways import LAST_MATCH, VNF_ACL, VNF_ACL_AF_XDP, VNF_ACL_LIBC, Way
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.traffic.gauges import Metric
from orchestrator.bench.traffic.measured import Measured, ratios

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
            results.figures[f"{_word(way)}_no_rules_{metric.name.lower()}"] = Figure.of(values, metric.unit)
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

    def packets(way: Way, rules: int) -> Sequence[float]:
        return curves.of(way.name_of_run(rules), rules, Metric.PACKETS)

    ours, theirs = Way(VNF_ACL), LAST_MATCH
    kept = {way: ratios(packets(way, most), packets(way, 0)) for way in (ours, theirs)}
    against = Figure.of(ratios(kept[ours], kept[theirs]), "ratio", _TEN_TIMES)
    results.figures[f"vnf_acl_vs_iptables_last_{most}"] = against
    for way, name in ((ours, "vnf_acl"), (theirs, "iptables_last")):
        results.figures[f"{name}_pps_{most}_vs_no_rules"] = Figure.of(kept[way], "ratio")


def _beside_the_paper(results: Results, curves: Measured, most: int) -> None:
    """Record the paper's three headlines at the longest list: VNF-ACL against iptables' last match."""
    for metric, name in ((Metric.PACKETS, "packets"), (Metric.REQUESTS, "requests"), (Metric.RTT, "rtt")):
        found = ratios(curves.of(VNF_ACL, most, metric), curves.of(str(LAST_MATCH), most, metric))
        results.figures[f"{name}_vnf_acl_vs_iptables_last_{most}_as_measured"] = Figure.of(found, "ratio")


def _word(way: str) -> str:
    return way.lower().replace(" ", "_").replace("-", "_")
