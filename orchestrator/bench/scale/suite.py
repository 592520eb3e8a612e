"""The suite: a small and a large domain in turns, and their cost ratios.

The ratio says how many times as much the same change costs in the large one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Self

from orchestrator.bench.progress import Expected, Progress, Steps
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.scale import domains, services, wholeservices
from orchestrator.bench.scale.domains import DATABASE, Latency, Load
from orchestrator.bench.scale.scaledomain import Cost, Size, measure_apart
from orchestrator.bench.scale.services import Share
from orchestrator.bench.scale.wholeservices import WholeShare
from orchestrator.bench.traffic.journal import Journal

_FEW_TENANTS, _FEW_HOSTS, _FEW_AGENTS = 100, 10, 10
_RULES = 10
_CHANGES = 5
_OTHER_DOMAIN = "other_domain_p99_ms_during_bulk"
_TWO_SERVICES = "write_cpu_two_services_vs_one"
_WHOLE_SERVICES = "write_cpu_two_whole_services_vs_one"
_SHARED_DOMAINS = 10
_EACH_S = {True: 40.0, False: 240.0}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the large domains are, and how often each pair is measured."""

    rounds: int
    tenants: int
    hosts: int
    agents: int
    start: Size
    load: Load

    @classmethod
    def quick(cls) -> Self:
        return cls(2, 1_000, 300, 300, Size(500, 100, 2, 0), Load(200, 1_000))

    @classmethod
    def full(cls) -> Self:
        return cls(5, 10_000, 1_000, 1_000, Size(10_000, 100, 2, 0), Load(1_000, 5_000))


def run(*, quick: bool, progress: Progress, journal: Path | None = None) -> Results:
    """Run the suite. `quick` takes smaller domains and fewer rounds; its figures bear their sizes.

    A run continues from its `journal`.
    """
    return measure(Sizes.quick() if quick else Sizes.full(), progress, journal=journal)


def expect_length(*, quick: bool) -> Expected:
    """How long a run is."""
    sizes = Sizes.quick() if quick else Sizes.full()
    return Expected(_count_worlds(sizes), _EACH_S[quick])


def _count_worlds(sizes: Sizes) -> int:
    return 6 * sizes.rounds + 1


def measure(sizes: Sizes, progress: Progress, *, journal: Path | None = None) -> Results:
    """Measure what the journal has not. Raises Unreachable where a world cannot be measured."""
    results = Results("scale", {**asdict(sizes), "few_tenants": _FEW_TENANTS, "rules": _RULES, "changes": _CHANGES})
    numbers = [each.name for kind in (Cost, Latency, Share, WholeShare) for each in fields(kind)]
    kept = Journal(journal, {"suite": results.suite, **results.settings}, numbers)
    steps = Steps(progress, _count_worlds(sizes))
    measured = partial(_measure_once, kept)
    small = Size(_FEW_TENANTS, _RULES, _FEW_HOSTS, 0)
    _compare(results, steps, sizes.rounds, small, Size(sizes.tenants, _RULES, _FEW_HOSTS, 0), _TENANTS, measured)
    _compare(results, steps, sizes.rounds, small, Size(_FEW_TENANTS, _RULES, sizes.hosts, 0), _HOSTS, measured)
    few, many = (Size(1, _RULES, 0, agents) for agents in (_FEW_AGENTS, sizes.agents))
    _compare(results, steps, sizes.rounds, few, many, _list_agent_parts(sizes.agents), measured)
    steps.next(f"a start with {sizes.start.tenants * sizes.start.rules:,} rules")
    _add_start(results, measured("start", sizes.start, 1), sizes.start)
    _add_domains(results, kept, sizes.load)
    _add_services(results, kept, sizes)
    _add_whole_services(results, kept, sizes)
    results.notes += _NOTES
    return results


def _measure_once(journal: Journal, name: str, size: Size, changes: int) -> Cost:
    """Return a world's costs that the journal has, or measure them."""
    return Cost(**journal.row(name, lambda: asdict(measure_apart(size, changes))))


def _add_domains(results: Results, journal: Journal, load: Load) -> None:
    """Add the time of one rule while another domain is filled, given a database."""
    url = os.environ.get(DATABASE)
    if url is None and not journal.has(_OTHER_DOMAIN):
        results.absent[_OTHER_DOMAIN] = f"{DATABASE} names no empty database of PostgreSQL"
        return
    found = Latency(**journal.row(_OTHER_DOMAIN, lambda: asdict(domains.measure(url or "", load))))
    results.figures[_OTHER_DOMAIN] = Figure.of([found.bulk_p99_ms], "ms")
    ratio = Figure.of([found.bulk_p99_ms / found.quiet_p99_ms], "", Target(3.0))
    results.figures["other_domain_p99_during_bulk_vs_quiet"] = ratio


def _add_services(results: Results, journal: Journal, sizes: Sizes) -> None:
    """Add the CPU time of changes with two services, and with an idle one.

    It is measured where there is a database for it.
    """
    shares = [Share(**row) for row in _measure_rounds(results, journal, sizes, _TWO_SERVICES, services.measure)]
    if not shares:
        return
    results.figures["write_cpu_one_service_ms"] = Figure.of([each.one_ms for each in shares], "ms of CPU")
    for name, ratios, target in (
        (_TWO_SERVICES, [each.mixed_ms / each.one_ms for each in shares], Target(1.1)),
        ("write_cpu_two_services_apart_vs_one", [each.own_ms / each.one_ms for each in shares], None),
        ("write_cpu_idle_replica_vs_one", [each.idle_ms / each.one_ms for each in shares], Target(0.1)),
    ):
        results.figures[name] = Figure.of(ratios, "", target)


def _add_whole_services(results: Results, journal: Journal, sizes: Sizes) -> None:
    """Add the CPU time of changes over HTTPS, with one and with two services."""
    rows = _measure_rounds(results, journal, sizes, _WHOLE_SERVICES, wholeservices.measure)
    shares = [WholeShare(**row) for row in rows]
    if not shares:
        return
    results.figures["write_cpu_one_whole_service_ms"] = Figure.of([each.one_ms for each in shares], "ms of CPU")
    results.figures[_WHOLE_SERVICES] = Figure.of([each.mixed_ms / each.one_ms for each in shares], "")


def _measure_rounds(
    results: Results, journal: Journal, sizes: Sizes, figure: str, measure_round: Callable[..., Share | WholeShare]
) -> list[Mapping[str, float]]:
    """Return a row a round, from the journal or measured.

    Without a database it returns none, and notes the reason.
    """
    url = os.environ.get(DATABASE)
    rounds = {f"{figure} {turn}": turn for turn in range(sizes.rounds)}
    if url is None and not all(map(journal.has, rounds)):
        results.absent[figure] = f"{DATABASE} names no empty database of PostgreSQL"
        return []
    measured = partial(measure_round, url or "", domains=_SHARED_DOMAINS, changes=sizes.load.changes)
    return [journal.row(name, lambda at=turn: asdict(measured(turn=at))) for name, turn in rounds.items()]  # type: ignore[misc]


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


def _list_agent_parts(agents: int) -> tuple[_Part, ...]:
    linear = Target(agents / _FEW_AGENTS)
    return (
        _Part("cpu_one_rule_agents", lambda cost: cost.one_rule_reported, lambda size: size.agents, linear),
        _Part("cpu_said_again_agents", lambda cost: cost.said_again, lambda size: size.agents, linear),
    )


def _compare(
    results: Results,
    steps: Steps,
    rounds: int,
    small: Size,
    large: Size,
    parts: tuple[_Part, ...],
    measured: Callable[[str, Size, int], Cost],
) -> None:
    """Measure both sizes in turns; add each part's ratio and large-domain cost."""
    pairs: list[tuple[Cost, Cost]] = []
    for turn in range(rounds):
        costs: dict[Size, Cost] = {}
        for size in (small, large)[:: 1 if turn % 2 == 0 else -1]:
            world = f"{size.tenants} tenants, {size.hosts} hosts, {size.agents} agents"
            steps.next(f"round {turn + 1} of {rounds}: {world}")
            costs[size] = measured(f"{parts[0].name} {turn}: {world}", size, _CHANGES)
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
    results.figures[f"ready_s_{name}_rules"] = Figure.of([cost.ready_again_s], "s", Target(30.0))
    results.figures[f"ready_cpu_s_{name}_rules"] = Figure.of([cost.ready_again_cpu_s], "s of CPU")
    results.figures[f"ready_cold_s_{name}_rules"] = Figure.of([cost.ready_s], "s")
    results.figures[f"ready_cold_cpu_s_{name}_rules"] = Figure.of([cost.ready_cpu_s], "s of CPU")
    results.figures[f"rss_gib_{name}_rules"] = Figure.of([cost.peak_mib / 1024], "GiB", Target(2.5))


_NOTES = [
    "Costs are CPU seconds of the service's own parts (store, control, publisher, reports) on SQLite, without HTTP and "
    "without what an enforcement point does; points are simulated and report at once.",
    "Each figure is the median of pairs of processes, one with the small and one with the large domain, in turns.",
    "`cpu_one_rule_agents` is one changed rule and a report of every agent; `cpu_said_again_agents` are reports that "
    "say nothing new.",
    "`ready_...` is a start from the domain's kept program, with one list changed since; `ready_cold_...` one that "
    "finds no program kept, as the first of a service or of a new version, and compiles every list.",
    "`write_cpu_two_services_vs_one` sends each domain's changes to both services in turn, as a plain balancer does: "
    "the other one's point is to hold each before the next is sent. `..._apart_...` sends them to the service that the "
    "domain's points follow. Work that is put off until a domain is at rest is counted.",
    "`write_cpu_two_whole_services_vs_one` does the same over HTTPS, with processes of the product: what a write costs "
    "there besides compiling does not depend on the number of services, so the ratio is smaller.",
]
