"""Packets a second of 10,000 general rules in the kernel's classifier, against plain routing.

The rules have prefixes, ranges and denies.

Four lines take turns: a kernel that routes, the classifier asked anew for every packet, the same with its flow cache,
and the rules as iptables lines. The rules for the traffic are the last of the list, so a linear
filter passes all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.traffic import filters, iperf, netcat
from orchestrator.bench.traffic.addresses import ECHO, EXCLUDED_ADDRESS, UNSERVED, Clients, alone
from orchestrator.bench.traffic.filters import Filter
from orchestrator.bench.traffic.line import LEFT, MIDDLE, RIGHT, Line, serve_line
from orchestrator.bench.traffic.measured import ratios
from orchestrator.bench.traffic.rules import Listed
from orchestrator.compile.filters.cacherows import CacheRow
from orchestrator.compile.filters.filterlists import operator_list, tenant_lists
from orchestrator.compile.servers.generalrows import general_rows
from orchestrator.enforce.drivers.bpf.cachefront import NO_STAMP
from orchestrator.enforce.drivers.bpf.classifier import KernelClassifier
from orchestrator.enforce.drivers.bpf.layout import FlowSet
from orchestrator.errors import Drifted, Missing, Refused
from orchestrator.lab.layout import Layout
from orchestrator.policy.model import Policy, ReturnTraffic

_ROUTING, _ANEW, _CACHED, _LINES = "routing", "classifier", "classifier with its flow cache", "iptables lines"
WAYS = (_ROUTING, _ANEW, _CACHED, _LINES)
_GENERAL, _REMEMBERED = Target(0.6, at_most=False), Target(0.9, at_most=False)


def figures(rules: int) -> dict[str, tuple[str, Target | None]]:
    """Return the figures of a list of `rules` rules, with their texts and targets."""
    many = f"{rules // 1_000}k" if rules % 1_000 == 0 else str(rules)
    return {
        f"bpf_{many}_general_vs_routing": (_ANEW, _GENERAL),
        f"bpf_{many}_cached_vs_routing": (_CACHED, _REMEMBERED),
        f"iptables_{many}_vs_routing": (_LINES, None),
    }


@dataclass(frozen=True, slots=True)
class Rates:
    """Packets a second that got through, by way and round."""

    rules: int
    by_way: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})


def measure(place: Layout, rules: int, rounds: int, seconds: int, step: Callable[[str], None]) -> Rates:
    """Measure some rounds, after one that warms everything up."""
    policy, rates = alone(Listed(rules).acl()), Rates(rules)
    with ExitStack() as stack:
        names = zip(rates.by_way, ("plain", "anew", "cached", "lines"), strict=True)
        lines = {way: stack.enter_context(serve_line(place, name)) for way, name in names}
        filters.load(lines[_LINES], Filter.IPTABLES_LEGACY, filters.text_of(Filter.IPTABLES_LEGACY, policy))
        decided = {
            way: stack.enter_context(_classifying(lines[way], policy, remembers=way is _CACHED))
            for way in (_ANEW, _CACHED)
        }
        for way in (_ANEW, _CACHED, _LINES):
            _check(lines[way], way)
        for turn in range(rounds + 1):
            for way, line in lines.items():
                step(f"{rules:,} general rules, round {turn} of {rounds}: {way}")
                before = decided[way]() if way in decided else 0
                datagrams = iperf.flood(line, seconds=seconds)
                if way in decided and decided[way]() - before < datagrams.arrived:
                    raise Drifted(f"{datagrams.arrived} datagrams passed that the {way} did not all decide")
                if turn:
                    rates.by_way[way].append(datagrams.per_s)
    return rates


def steps(rounds: int) -> int:
    """How many steps `measured` tells of."""
    return (rounds + 1) * len(WAYS)


def record(results: Results, rates: Rates) -> None:
    """Put the figures among a suite's."""
    routing = rates.by_way[_ROUTING]
    for name, (way, target) in figures(rates.rules).items():
        results.figures[name] = Figure.of(ratios(rates.by_way[way], routing), "ratio", target)


def classifier_rows(policy: Policy) -> tuple[CacheRow, ...]:
    """Return the classifier rows of a server that serves every tenant of a policy."""
    operator = operator_list(policy)
    lists = (tenant_lists(tenant, ReturnTraffic.EXPLICIT)[1] for tenant in policy.tenants)
    return tuple(row for ingress in lists for row in general_rows(operator, ingress))


@contextmanager
def _classifying(line: Line, policy: Policy, *, remembers: bool) -> Iterator[Callable[[], int]]:
    """Run a classifier in the middle; yield a function that counts its decisions."""
    rows = classifier_rows(policy)
    if not rows:
        raise Refused("the list has no room in a classifier")
    kernel = KernelClassifier((LEFT, RIGHT), remembers=remembers)
    try:
        line.inside(MIDDLE, lambda: kernel.open(FlowSet(rows, NO_STAMP)))
        yield lambda: int(line.inside(MIDDLE, kernel.read_counters).packets.sum())
    finally:
        line.inside(MIDDLE, kernel.detach)


def _check(line: Line, way: str) -> None:
    """Raises Drifted where what gets through is not what the list says."""
    passes = netcat.reached_sources(line, [(Clients.ONE.address, UNSERVED), (EXCLUDED_ADDRESS, ECHO)])
    if any(passes):
        raise Drifted(f"{way}: a port that no rule permits: {passes[0]}, a client that is shut out: {passes[1]}")


def absent(results: Results, rules: int, error: Missing | Refused) -> None:
    """Say why there are no figures."""
    results.absent |= dict.fromkeys(figures(rules), str(error))
