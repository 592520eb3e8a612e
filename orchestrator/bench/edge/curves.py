"""The paper's figures 7 to 10 from the planner: its reading and ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from orchestrator.bench.results import Series
from orchestrator.edge.planner import Cloud, Load, Tcam, filters_of, paper, plan

PAPERS_CHUNK, LARGER_CHUNK = 1 << 14, 1 << 16
"""The paper's 16,384 addresses (a /18), and the /16 that its section 6.1 speaks of."""

_SHARES = (0.0001, 0.001, 0.005, 0.01, 0.02, *(step / 20 for step in range(1, 20)))
_DECADES = (7, 14)
_RATES = tuple(step / 20 for step in range(21))
_ATTACKS_GBPS = {"100 Gb/s": 100.0, "2.5 Tb/s": 2_500.0}
_SHARE = "share of the free TCAM for heavy hitters"
_ROUND = 24
"""Cloud sizes are this many to a factor of a thousand, so that lines are smooth."""


def papers_figures(cloud: Cloud, tcam: Tcam, load: Load) -> list[Series]:
    """All four, for one cloud and router; figure 10 varies the cloud's size."""
    return [*wan(load), *bypass(cloud, tcam, load), *by_share(cloud, tcam), *by_size(cloud, tcam)]


def wan(load: Load) -> list[Series]:
    """Plot what false positives of an attack take of the WAN (figure 7)."""
    return [
        Series(
            f"{name} attack",
            _RATES,
            tuple(100 * rate * attack / load.wan_gbps for rate in _RATES),
            "rate of false matches",
            "figure 7 WAN used by false matches (% of its capacity)",
        )
        for name, attack in _ATTACKS_GBPS.items()
    ]


def bypass(cloud: Cloud, tcam: Tcam, load: Load) -> list[Series]:
    """Plot traffic past the servers, by popularity curve (figure 8)."""
    return [
        Series(
            name,
            _SHARES,
            tuple(
                plan(
                    cloud, LARGER_CHUNK, replace(tcam, heavy_share=share), replace(load, shared=shared)
                ).bypass
                for share in _SHARES
            ),
            _SHARE,
            "figure 8 traffic that bypasses the servers (share)",
        )
        for name, shared in (("one list for all (the paper's reading)", True), ("each tenant's own list", False))
    ]  # fmt: skip


def by_share(cloud: Cloud, tcam: Tcam) -> list[Series]:
    """Plot rates of false matches against the heavy hitters' share (figure 9)."""
    return _plot_rates(
        _SHARES,
        lambda share: (cloud, replace(tcam, heavy_share=share)),
        _SHARE,
        "figure 9 false matches by heavy hitters (rate)",
        x_log=False,
    )


def by_size(cloud: Cloud, tcam: Tcam) -> list[Series]:
    """Plot false-match rates against the number of VMs (figure 10)."""
    low, high = _DECADES
    steps = (high - low) * _ROUND // 3
    sizes = [round(10 ** (low + (high - low) * step / steps)) for step in range(steps + 1)]
    counts = [float(size) for size in sizes if size >= cloud.tenants * cloud.blocks_a_tenant]
    return _plot_rates(
        counts,
        lambda vms: (replace(cloud, vms=round(vms)), tcam),
        "VMs",
        "figure 10 false matches by cloud size (rate)",
        x_log=True,
    )


def _plot_rates(
    x: Sequence[float], case: Callable[[float], tuple[Cloud, Tcam]], x_label: str, y_label: str, *, x_log: bool
) -> list[Series]:
    def rate_of_paper(at: float) -> float:
        return paper(*_add_chunk_size(case(at), PAPERS_CHUNK))[2]

    def rate_of_union(size: int) -> Callable[[float], float]:
        return lambda at: filters_of(*_add_chunk_size(case(at), size)).union_rate

    ways = {
        "one line, the paper's formula, /18": rate_of_paper,
        "any line, exactly, /18": rate_of_union(PAPERS_CHUNK),
        "any line, exactly, /16": rate_of_union(LARGER_CHUNK),
    }
    return [_positive(name, x, [way(at) for at in x], x_label, y_label, x_log=x_log) for name, way in ways.items()]


def _add_chunk_size(case: tuple[Cloud, Tcam], size: int) -> tuple[Cloud, int, Tcam]:
    return case[0], size, case[1]


_LEAST = 1e-60


def _positive(name: str, x: Sequence[float], y: Sequence[float], x_label: str, y_label: str, *, x_log: bool) -> Series:
    """Return a series on a log axis; values below 1e-60 are drawn there."""
    return Series(name, tuple(x), tuple(max(value, _LEAST) for value in y), x_label, y_label, x_log=x_log, y_log=True)
