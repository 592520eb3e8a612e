"""The suite: a small and a large domain in turns, and their cost ratios.

The ratio says how many times as much the same change costs in the large one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Self

from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.scale.world import Cost, Size, measure_apart

_FEW_TENANTS, _FEW_HOSTS, _FEW_AGENTS = 100, 10, 10
_RULES = 10
_CHANGES = 5


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the large domains are, and how often each pair is measured."""

    rounds: int
    tenants: int
    hosts: int
    agents: int
    start: Size

    @classmethod
    def quick(cls) -> Self:
        return cls(2, 1_000, 300, 300, Size(500, 100, 2, 0))

    @classmethod
    def full(cls) -> Self:
        return cls(5, 10_000, 1_000, 1_000, Size(10_000, 100, 2, 0))


def run(*, quick: bool, progress: Progress) -> Results:
    """Measure. `quick` takes smaller domains and fewer rounds; its figures bear their sizes."""
    return measure(Sizes.quick() if quick else Sizes.full(), progress)


def measure(sizes: Sizes, progress: Progress) -> Results:
    """Measure. Raises Unreachable where a world cannot be measured."""
    results = Results("scale", {**asdict(sizes), "few_tenants": _FEW_TENANTS, "rules": _RULES, "changes": _CHANGES})
    steps = Steps(progress, 6 * sizes.rounds + 1)
    small = Size(_FEW_TENANTS, _RULES, _FEW_HOSTS, 0)
    _compare(results, steps, sizes.rounds, small, Size(sizes.tenants, _RULES, _FEW_HOSTS, 0), _TENANTS)
    _compare(results, steps, sizes.rounds, small, Size(_FEW_TENANTS, _RULES, sizes.hosts, 0), _HOSTS)
    few, many = (Size(1, _RULES, 0, agents) for agents in (_FEW_AGENTS, sizes.agents))
    _compare(results, steps, sizes.rounds, few, many, _agent_parts(sizes.agents))
    steps.next(f"a start with {sizes.start.tenants * sizes.start.rules:,} rules")
    _add_start(results, measure_apart(sizes.start, 1), sizes.start)
    results.absent |= _ABSENT
    results.notes += _NOTES
    return results


@dataclass(frozen=True, slots=True)
class _Part:
    """One kind of change: its cost in a world, and the largest allowed ratio."""

    name: str
    of: Callable[[Cost], float]
    size: Callable[[Size], int]
    target: Target | None = None


_TENANTS = (
    _Part("cpu_add_tenant", lambda cost: cost.add_tenant, lambda size: size.tenants, Target(2.0)),
    _Part("cpu_add_endpoint", lambda cost: cost.add_endpoint, lambda size: size.tenants),
    _Part("cpu_one_rule_tenants", lambda cost: cost.one_rule, lambda size: size.tenants),
)
_HOSTS = (_Part("cpu_add_host", lambda cost: cost.add_host, lambda size: size.hosts, Target(2.0)),)


def _agent_parts(agents: int) -> tuple[_Part, ...]:
    linear = Target(agents / _FEW_AGENTS)
    return (
        _Part("cpu_one_rule_agents", lambda cost: cost.one_rule_reported, lambda size: size.agents, linear),
        _Part("cpu_said_again_agents", lambda cost: cost.said_again, lambda size: size.agents, linear),
    )


def _compare(results: Results, steps: Steps, rounds: int, small: Size, large: Size, parts: tuple[_Part, ...]) -> None:
    """Measure both sizes in turns; add each part's ratio and large-domain cost."""
    pairs: list[tuple[Cost, Cost]] = []
    for turn in range(rounds):
        costs: dict[Size, Cost] = {}
        for size in (small, large)[:: 1 if turn % 2 == 0 else -1]:
            steps.next(
                f"round {turn + 1} of {rounds}: {size.tenants} tenants, {size.hosts} hosts, {size.agents} agents"
            )
            costs[size] = measure_apart(size, _CHANGES)
        pairs.append((costs[small], costs[large]))
    for part in parts:
        name = f"{part.name}_at_{part.size(large)}_vs_{part.size(small)}"
        results.figures[name] = Figure.of([part.of(many) / part.of(few) for few, many in pairs], "", part.target)
        cost_ms = [part.of(many) * 1000 for _, many in pairs]
        results.figures[f"{part.name}_at_{part.size(large)}_ms"] = Figure.of(cost_ms, "ms of CPU")


def _add_start(results: Results, cost: Cost, size: Size) -> None:
    """Add what a start takes, and the memory in the end."""
    rules = size.tenants * size.rules
    name = "1m" if rules == 1_000_000 else f"{rules // 1000}k"
    results.figures[f"ready_s_{name}_rules"] = Figure.of([cost.ready_s], "s", Target(30.0))
    results.figures[f"rss_gib_{name}_rules"] = Figure.of([cost.peak_mib / 1024], "GiB", Target(2.5))


_ABSENT = {
    "write_cpu_two_services_vs_one": "every service compiles every domain: domains have no owner yet",
    "other_domain_p99_ms_during_bulk": "one lock is held for the writes of all domains",
}
_NOTES = [
    "Costs are CPU seconds of the service's own parts (store, control, publisher, reports) on SQLite, without HTTP and "
    "without what an enforcement point does; points are simulated and report at once.",
    "Each figure is the median of pairs of processes, one with the small and one with the large domain, in turns.",
    "`cpu_one_rule_agents` is one changed rule and a report of every agent; `cpu_said_again_agents` are reports that "
    "say nothing new.",
]
