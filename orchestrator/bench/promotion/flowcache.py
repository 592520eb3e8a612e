"""Popular rules in a flow cache before long iptables, against plain routing.

Figures are packets a second. Three lines take turns: a kernel that routes, one with 2,000 rules the last of which
permits the traffic, and the same with a flow cache in front. So all meet the same machine at the same time, and ratios
are of one round each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.traffic import filters, iperf
from orchestrator.bench.traffic.addresses import TENANT, policy
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.line import LEFT, MIDDLE, RIGHT, Line, serve_line
from orchestrator.bench.traffic.measured import ratios
from orchestrator.bench.traffic.rules import TRAFFIC_RULES, Listed
from orchestrator.compile.filters.flowcache import flow_cache
from orchestrator.enforce.drivers.bpf.cachefront import NO_STAMP
from orchestrator.enforce.drivers.bpf.kernel import KernelCache
from orchestrator.enforce.drivers.bpf.layout import FlowSet
from orchestrator.errors import Drifted, Refused
from orchestrator.lab.layout import Layout
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Policy

RULES = 2_000
_ROUTING, _RULES, _CACHED = "routing", f"{RULES} rules", f"a flow cache before {RULES} rules"
_TARGET = Target(0.9, at_most=False)
_CHOSEN = tuple(LiftedRule(TENANT, rule.id) for rule in TRAFFIC_RULES)


@dataclass(frozen=True, slots=True)
class Rates:
    """Packets a second that got through, by way and round."""

    by_way: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in (_ROUTING, _RULES, _CACHED)})


def measure(place: Layout, rounds: int, seconds: int, step: Callable[[str], None]) -> Rates:
    """Measure so many rounds, after one that warms everything up.

    Raises Missing, Refused, Unreachable, Drifted.
    """
    wanted = policy(Listed(RULES).acl(), server_port=RIGHT)
    text = filters.text_of(Filter.IPTABLES_LEGACY, wanted)
    rates = Rates()
    with ExitStack() as stack:
        names = zip(rates.by_way, ("routing", "rules", "cached"), strict=True)
        lines = {way: stack.enter_context(serve_line(place, name)) for way, name in names}
        for way in (_RULES, _CACHED):
            filters.load(lines[way], Filter.IPTABLES_LEGACY, text)
        decided = stack.enter_context(run_cache(lines[_CACHED], wanted, _CHOSEN))
        for turn in range(rounds + 1):
            for way, line in lines.items():
                step(f"flow cache, round {turn} of {rounds}: {way}")
                before = decided()
                datagrams = iperf.flood(line, seconds=seconds)
                if way is _CACHED and decided() - before < datagrams.arrived:
                    raise Drifted(f"{datagrams.arrived} datagrams passed, and the cache decided {decided() - before}")
                if turn:
                    rates.by_way[way].append(datagrams.per_s)
    return rates


def count_steps(rounds: int) -> int:
    """Return how many steps `measure` tells of."""
    return (rounds + 1) * len(Rates().by_way)


def record(results: Results, rates: Rates) -> None:
    """Put the figures among a suite's."""
    routing = rates.by_way[_ROUTING]
    results.figures["bpf_cache_vs_routing"] = Figure.of(ratios(rates.by_way[_CACHED], routing), "ratio", _TARGET)
    results.figures["iptables_2000_vs_routing"] = Figure.of(ratios(rates.by_way[_RULES], routing), "ratio")


@contextmanager
def run_cache(line: Line, wanted: Policy, chosen: Sequence[LiftedRule]) -> Iterator[Callable[[], int]]:
    """Run a flow cache with rules before the middle's filter; yield its counter.

    Raises Refused for a rule that has no place in a cache, Missing on a machine that cannot run one.
    """
    found = flow_cache(wanted, chosen)
    for rule, because in found.stays:
        raise Refused(f"{rule}: {because}")
    cache = KernelCache((LEFT, RIGHT))
    line.inside(MIDDLE, lambda: cache.open(FlowSet(found.rows, NO_STAMP)))
    try:
        yield lambda: int(line.inside(MIDDLE, cache.read_counters).packets.sum())
    finally:
        line.inside(MIDDLE, cache.detach)
