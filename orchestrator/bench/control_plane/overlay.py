"""Against OVN: the same rules from its northbound database to its switch, and from our REST call to two of ours."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.bench.control_plane.sizes import Sizes, name_of
from orchestrator.bench.ovn import HIGHEST_PRIORITY, Ovn, ovn
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.rulesets import synthetic
from orchestrator.errors import Missing
from orchestrator.lab.pop import Lab

_BULK = Target(6.0, at_most=False)
_ONE_RULE = Target(30.0, at_most=False)


def measure(lab: Lab, results: Results, sizes: Sizes, progress: Callable[[str], None]) -> None:
    """Whole lists and single rules into OVN, then how many times faster ours was in this run."""
    try:
        with ovn(lab) as baseline:
            _into(baseline, results, sizes, progress)
    except Missing as missing:
        for name in ("bulk_speedup_vs_ovn", "one_rule_speedup_vs_ovn"):
            results.absent[name] = str(missing)
        return
    size = name_of(sizes.rules)
    for name, theirs, ours, target in (
        ("bulk_speedup_vs_ovn", f"ovn_{size}_s", f"rest_{size}_s", _BULK),
        ("one_rule_speedup_vs_ovn", f"ovn_one_rule_{size}_ms", f"one_rule_{size}_ms", _ONE_RULE),
    ):
        slow, fast = results.figures[theirs], results.figures[ours]
        results.figures[name] = Figure(
            slow.median / fast.median, slow.low / fast.high, slow.high / fast.low, slow.runs, "ratio", target
        )


def _into(baseline: Ovn, results: Results, sizes: Sizes, progress: Callable[[str], None]) -> None:
    acl, size = synthetic(sizes.rules), name_of(sizes.rules)
    bulk = []
    for turn in range(1, sizes.slow_rounds + 1):
        progress(f"OVN, round {turn} of {sizes.slow_rounds}")
        baseline.clear()
        bulk.append(baseline.replace(acl))
    results.notes.append(
        f"OVN: {sizes.rules} ACLs of one logical switch on one hypervisor became {baseline.flows()} flows; its "
        f"databases, northd and ovn-controller hold {baseline.resident_mib():.0f} MiB"
    )
    more = synthetic(sizes.rules + sizes.changes).rules[sizes.rules :]
    lowest = HIGHEST_PRIORITY - sizes.rules
    single = [1000 * baseline.insert(rule, lowest - number) for number, rule in enumerate(more, 1)]
    results.figures[f"ovn_{size}_s"] = Figure.of(bulk, "s")
    results.figures[f"ovn_one_rule_{size}_ms"] = Figure.of(single, "ms")
