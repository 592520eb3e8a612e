"""What the suite says of a flow cache, from rates that were measured."""

from __future__ import annotations

from orchestrator.bench.promotion import flowcache
from orchestrator.bench.results import Results


def test_ratios_are_of_one_round_each() -> None:
    rates = flowcache.Rates()
    routing, rules, cached = rates.by_way.values()
    routing += [100.0, 200.0, 400.0]
    rules += [10.0, 40.0, 40.0]
    cached += [90.0, 200.0, 380.0]
    results = Results("promotion", {})
    flowcache.record(results, rates)
    figure = results.figures["bpf_cache_vs_routing"]
    assert (figure.median, figure.low, figure.high, figure.unit) == (0.95, 0.9, 1.0, "ratio")
    assert figure.target is not None
    assert not figure.target.met(0.89)
    assert results.figures["iptables_2000_vs_routing"].median == 0.1
