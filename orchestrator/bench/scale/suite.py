"""The suite: a small and a large domain in turns, and their cost ratios.

The ratio says how many times as much the same change costs in the large one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from orchestrator.bench.progress import Expected, Progress, Steps
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.scale import domains, kills, listpages, services, wholeservices
from orchestrator.bench.scale.domains import DATABASE, Latency, Load
from orchestrator.bench.scale.kills import KillCost
from orchestrator.bench.scale.listpages import PageCost
from orchestrator.bench.scale.scaledomain import Cost, Size, measure_apart, measure_in
from orchestrator.bench.scale.services import Share
from orchestrator.bench.scale.wholeservices import WholeShare
from orchestrator.bench.traffic.journal import Journal

_FEW_TENANTS, _FEW_HOSTS, _FEW_AGENTS = 100, 10, 10
_RULES = 10
_CHANGES = 5
_OTHER_DOMAIN = "other_domain_p99_ms_during_bulk"
_TWO_SERVICES = "write_cpu_two_services_vs_one"
_WHOLE_SERVICES = "write_cpu_two_whole_services_vs_one"
_KILLS = "lost_writes_kill_service"
_SHARED_DOMAINS = 10
_KILL_DOMAINS = 9
_KILLED = {"service": None, "controller": Target(5.0, whole=True), "connections": None}
"""The parts that are killed, with the target of when switches are read back again."""
_LOOKS, _LISTED = ("page", "search"), ("lists", "hits", "events")
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
    """How long a run is; it is longer where there is a database."""
    sizes = Sizes.quick() if quick else Sizes.full()
    return Expected(_count_steps(sizes, shared=DATABASE in os.environ), _EACH_S[quick])


def _count_steps(sizes: Sizes, *, shared: bool) -> int:
    """Return how many measurements there are: worlds, and those of services that share a database."""
    worlds = 6 * sizes.rounds + 1
    return worlds + 1 + 3 * sizes.rounds if shared else worlds


def measure(sizes: Sizes, progress: Progress, *, journal: Path | None = None) -> Results:
    """Measure what the journal has not. Raises Unreachable where a world cannot be measured."""
    few_numbers = {"few_tenants": _FEW_TENANTS, "rules": _RULES, "changes": _CHANGES, "kill_domains": _KILL_DOMAINS}
    results = Results("scale", {**asdict(sizes), **few_numbers})
    kinds = (Cost, PageCost, Latency, Share, WholeShare, KillCost)
    numbers = [each.name for kind in kinds for each in fields(kind)]
    kept = Journal(journal, {"suite": results.suite, **results.settings}, numbers)
    steps = Steps(progress, _count_steps(sizes, shared=DATABASE in os.environ or kept.has(_OTHER_DOMAIN)))
    measured = partial(_measure_once, kept)
    small = Size(_FEW_TENANTS, _RULES, _FEW_HOSTS, 0)
    _compare(results, steps, sizes.rounds, small, Size(sizes.tenants, _RULES, _FEW_HOSTS, 0), _TENANTS, measured)
    _compare(results, steps, sizes.rounds, small, Size(_FEW_TENANTS, _RULES, sizes.hosts, 0), _HOSTS, measured)
    few, many = (Size(1, _RULES, 0, agents) for agents in (_FEW_AGENTS, sizes.agents))
    costs = _compare(results, steps, sizes.rounds, few, many, _list_agent_parts(sizes.agents), measured)
    enforced = Figure.of([each.all_enforced_s for each in costs], "s", Target(3.0))
    results.figures[f"all_enforced_{sizes.agents}_agents_s"] = enforced
    steps.next(f"a start with {sizes.start.tenants * sizes.start.rules:,} rules, and pages of its lists")
    _add_start(results, kept.row("start", lambda: _measure_start(sizes.start)), sizes.start)
    _add_domains(results, kept, steps, sizes.load)
    _add_services(results, kept, steps, sizes)
    _add_whole_services(results, kept, steps, sizes)
    _add_kills(results, kept, steps, sizes)
    results.notes += _NOTES
    return results


def _measure_once(journal: Journal, name: str, size: Size, changes: int) -> Cost:
    """Return a world's costs that the journal has, or measure them."""
    return Cost(**journal.row(name, lambda: asdict(measure_apart(size, changes))))


def _measure_start(size: Size) -> Mapping[str, float]:
    """Measure a world and, on its database, a whole service's pages: one row."""
    with TemporaryDirectory(prefix="aclflow-scale-") as folder:
        cost = measure_in(Path(folder), size, 1)
        return {**asdict(cost), **asdict(listpages.measure(Path(folder), size))}


def _add_domains(results: Results, journal: Journal, steps: Steps, load: Load) -> None:
    """Add the time of one rule while another domain is filled, given a database."""
    url = os.environ.get(DATABASE)
    if url is None and not journal.has(_OTHER_DOMAIN):
        results.absent[_OTHER_DOMAIN] = f"{DATABASE} names no empty database of PostgreSQL"
        return
    steps.next("one rule while another domain is filled")
    found = Latency(**journal.row(_OTHER_DOMAIN, lambda: asdict(domains.measure(url or "", load))))
    results.figures[_OTHER_DOMAIN] = Figure.of([found.bulk_p99_ms], "ms")
    ratio = Figure.of([found.bulk_p99_ms / found.quiet_p99_ms], "", Target(3.0))
    results.figures["other_domain_p99_during_bulk_vs_quiet"] = ratio


def _add_services(results: Results, journal: Journal, steps: Steps, sizes: Sizes) -> None:
    """Add the CPU time of changes with two services, and with an idle one.

    It is measured where there is a database for it.
    """
    measured = partial(services.measure, domains=_SHARED_DOMAINS, changes=sizes.load.changes)
    shares = [Share(**row) for row in _measure_rounds(results, journal, steps, sizes.rounds, _TWO_SERVICES, measured)]
    if not shares:
        return
    results.figures["write_cpu_one_service_ms"] = Figure.of([each.one_ms for each in shares], "ms of CPU")
    for name, ratios, target in (
        (_TWO_SERVICES, [each.mixed_ms / each.one_ms for each in shares], Target(1.1)),
        ("write_cpu_two_services_apart_vs_one", [each.own_ms / each.one_ms for each in shares], None),
        ("write_cpu_idle_replica_vs_one", [each.idle_ms / each.one_ms for each in shares], Target(0.1)),
    ):
        results.figures[name] = Figure.of(ratios, "", target)


def _add_whole_services(results: Results, journal: Journal, steps: Steps, sizes: Sizes) -> None:
    """Add the CPU time of changes over HTTPS, with one and with two services."""
    measured = partial(wholeservices.measure, domains=_SHARED_DOMAINS, changes=sizes.load.changes)
    rows = _measure_rounds(results, journal, steps, sizes.rounds, _WHOLE_SERVICES, measured)
    shares = [WholeShare(**row) for row in rows]
    if not shares:
        return
    results.figures["write_cpu_one_whole_service_ms"] = Figure.of([each.one_ms for each in shares], "ms of CPU")
    results.figures[_WHOLE_SERVICES] = Figure.of([each.mixed_ms / each.one_ms for each in shares], "")


def _add_kills(results: Results, journal: Journal, steps: Steps, sizes: Sizes) -> None:
    """Add what killing parts loses of writes, and how soon these go on."""
    measured = partial(kills.measure, domains=_KILL_DOMAINS)
    rows = _measure_rounds(results, journal, steps, sizes.rounds, _KILLS, measured)
    if not rows:
        for part in _KILLED:
            for figure in ("lost_writes_kill", "publish_s_after_kill", "enforced_s_after_kill"):
                results.absent[f"{figure}_{part}"] = results.absent[_KILLS]
        return
    results.figures["acknowledged_writes_around_kills"] = Figure.of([sum(each["written"] for each in rows)], "writes")
    for part, enforced in _KILLED.items():
        lost = Figure.of([sum(each[f"lost_{part}"] for each in rows)], "writes", Target(0.0))
        published = Figure.of([each[f"published_{part}_s"] for each in rows], "s", Target(2.0, whole=True))
        results.figures[f"lost_writes_kill_{part}"] = lost
        results.figures[f"publish_s_after_kill_{part}"] = published
        results.figures[f"enforced_s_after_kill_{part}"] = Figure.of(
            [each[f"enforced_{part}_s"] for each in rows], "s", enforced
        )


def _measure_rounds(
    results: Results,
    journal: Journal,
    steps: Steps,
    number: int,
    figure: str,
    measure_round: Callable[..., Share | WholeShare | KillCost],
) -> list[Mapping[str, float]]:
    """Return a row a round, from the journal or measured.

    Without a database it returns none, and notes the reason.
    """
    url = os.environ.get(DATABASE)
    rounds = {f"{figure} {turn}": turn for turn in range(number)}
    if url is None and not all(map(journal.has, rounds)):
        results.absent[figure] = f"{DATABASE} names no empty database of PostgreSQL"
        return []
    rows = []
    for name, turn in rounds.items():
        steps.next(f"round {turn + 1} of {number}: {figure}")
        rows.append(journal.row(name, lambda turn=turn: asdict(measure_round(url or "", turn=turn))))  # type: ignore[misc]
    return rows


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
) -> Sequence[Cost]:
    """Measure both sizes in turns; add each part's ratio and large-domain cost.

    The large domain's costs are returned.
    """
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
    return [many for _, many in pairs]


def _add_start(results: Results, row: Mapping[str, float], size: Size) -> None:
    """Add what a start takes, the memory in the end, and pages and searches."""
    rules = size.tenants * size.rules
    name = "1m" if rules == 1_000_000 else f"{rules // 1000}k"
    for figure, value, unit, target in (
        ("ready_s", row["ready_again_s"], "s", Target(30.0)),
        ("ready_cpu_s", row["ready_again_cpu_s"], "s of CPU", None),
        ("ready_cold_s", row["ready_s"], "s", None),
        ("ready_cold_cpu_s", row["ready_cpu_s"], "s of CPU", None),
        ("rss_gib", row["peak_mib"] / 1024, "GiB", Target(2.5)),
        ("page_ms", max(row[f"page_{kind}_ms"] for kind in _LISTED), "ms", Target(300.0)),
        ("search_ms", max(row[f"search_{kind}_ms"] for kind in _LISTED), "ms", Target(300.0)),
        *((f"{what}_{kind}_ms", row[f"{what}_{kind}_ms"], "ms", None) for what in _LOOKS for kind in _LISTED),
        ("first_search_s", row["first_search_s"], "s", None),
    ):
        results.figures[f"{figure}_{name}_rules"] = Figure.of([value], unit, target)


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
    "`all_enforced_...` is the clock's time from a rule's change until every simulated agent's report is stored, one "
    "after the other: what the service takes of it.",
    "`page_...` and `search_...` are the slowest of several requests to a warm service over HTTPS, 100 items each; "
    "`first_search_...` is the first one of a service that was just started, which reads all names.",
    "`publish_s_after_kill_...` is from a kill until each domain has had a write published that was sent when the part "
    "was gone (the slowest domain); points go from the service that is gone to the other one. "
    "`enforced_s_after_kill_...` is until all switches of a domain were read back with one. `lost_writes_...` are of "
    "all rounds; `connections` are all sessions that two services have at the database.",
    "`write_cpu_two_whole_services_vs_one` does the same over HTTPS, with processes of the product: what a write costs "
    "there besides compiling does not depend on the number of services, so the ratio is smaller.",
]
