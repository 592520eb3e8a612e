"""The suite: what is measured, in which order, and where."""

from __future__ import annotations

import gzip
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.bench.benchlab import ground
from orchestrator.bench.control_plane import abuse, cuts, domain, overlay, rest, restarts, stateful, wire
from orchestrator.bench.control_plane.sizes import TENANT, Sizes
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.rulesets import synthetic
from orchestrator.errors import AclflowError
from orchestrator.lab.spec import PopSpec
from orchestrator.lab.specfile import parse
from orchestrator.policy.difference import difference
from orchestrator.policy.findings import check
from orchestrator.policy.formats.registry import read
from orchestrator.policy.formats.results import Options
from orchestrator.policy.model import Acl, Action, ReturnTraffic

Progress = Callable[[str], None]


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite. `quick` takes fewer rounds of the same sizes."""
    sizes = Sizes.quick() if quick else Sizes.full()
    results = Results("control-plane", {"rounds": sizes.rounds, "changes": sizes.changes})
    parts: dict[str, Callable[[], None]] = {
        "one_rule_20k_ms": lambda: _measure_two_switches(results, sizes, progress),
        "one_rule_speedup_vs_ovn": lambda: _measure_beside_ovn(results, sizes, progress),
        "stateful_cps_vs_ovn": lambda: stateful.measure(results, sizes, progress),
        "restart_cut_kept": lambda: restarts.measure(results, sizes.slow_rounds, progress),
        "cut_10k_ms": lambda: cuts.measure(results, sizes.rounds, progress),
        "compile_1000k_s": lambda: domain.measure(results, progress),
        "one_rule_p99_under_abuse_vs_quiet": lambda: abuse.measure(results, progress, quick=quick),
        "findings_10k_s": lambda: measure_findings(results, rounds=sizes.slow_rounds, progress=progress),
    }
    for name, measure in parts.items():
        measure_part(results, name, measure)
    return results


def measure_part(results: Results, name: str, measure: Callable[[], None]) -> None:
    """Measure a part; if it fails, its figure `name` is absent with the reason."""
    try:
        measure()
    except AclflowError as error:
        results.absent.setdefault(name, str(error))


def _measure_two_switches(results: Results, sizes: Sizes, progress: Progress) -> None:
    with ground(description()) as lab, TemporaryDirectory() as folder:
        wire.measure(lab, results, sizes, Path(folder), progress)
        rest.measure(lab, results, sizes, Path(folder), progress)


def _measure_beside_ovn(results: Results, sizes: Sizes, progress: Progress) -> None:
    for returns in (ReturnTraffic.ESTABLISHED, ReturnTraffic.EXPLICIT):
        with ground(description(("host1", "host1"))) as lab:
            overlay.measure(lab, results, sizes, returns, progress)


def description(hosts: Sequence[str] = ("host1", "host2")) -> PopSpec:
    """Return a tenant that owns everything, with an endpoint for each named host."""
    endpoints = "".join(
        f"\n  - {{name: inside{at}, tenant: {TENANT}, host: {host}, addresses: [198.51.100.{at}], silent: true}}"
        for at, host in enumerate(hosts, 1)
    )
    names = ", ".join(f"{{name: {host}}}" for host in dict.fromkeys(hosts))
    return parse(
        "domain: bench\n"
        "clients: [{name: outside, addresses: [192.0.2.1], silent: true}]\n"
        f"hosts: [{names}]\n"
        f'tenants: [{{id: {TENANT}, prefixes: ["0.0.0.0/0", "::/0"]}}]\n'
        f"endpoints:{endpoints}\n"
    )


SETS = ("acl1_10k", "fw1_10k", "ipc1_10k")
FINDINGS_10K, FINDINGS_100K, DIFFERENCE_10K = Target(2.0), Target(40.0), Target(1.0)
_CHANGED = 10
_ABSENT = "the ClassBench sets are not there: ACLFLOW_DATA names the folder of classbench/"


def measure_findings(results: Results, *, rounds: int, progress: Progress) -> None:
    """Add figures of findings and differences, and a note on each list's findings.

    They are CPU seconds of one core. The timed part starts with a list in memory and ends with all findings (or
    changes) found; conflicts are in columns then, and become values when they are looked at. Reading the file is not in
    it. ClassBench sets say no actions: every other rule denies, the hardest reading of them for conflicts;
    `findings_10k_s` is that of the slowest set.
    """
    lists = dict(_read_lists())
    slowest: list[float] = []
    changes: list[float] = []
    for name, acl in lists.items():
        progress(f"findings and differences of {name}")
        seconds = [_measure_cpu_seconds(check, acl) for _ in range(rounds)]
        slowest = max(slowest, seconds, key=sum)
        changes += [_measure_cpu_seconds(difference, acl, change_rules(acl, turn)) for turn in range(rounds)]
        results.figures[f"findings_{name}_s"] = Figure.of(seconds, "s", FINDINGS_10K)
        results.notes.append(_describe_findings(name, acl))
    if slowest:
        results.figures["findings_10k_s"] = Figure.of(slowest, "s", FINDINGS_10K)
        results.figures["difference_10k_ten_s"] = Figure.of(changes, "s", DIFFERENCE_10K)
    else:
        results.absent |= dict.fromkeys(("findings_10k_s", "difference_10k_ten_s"), _ABSENT)
    progress("findings of 100,000 rules")
    many = synthetic(100_000)
    results.figures["findings_100k_s"] = Figure.of(
        [_measure_cpu_seconds(check, many) for _ in range(max(1, rounds // 3))], "s", FINDINGS_100K
    )
    results.notes.append(_describe_findings("100,000 synthetic rules", many))


def change_rules(acl: Acl, seed: int) -> Acl:
    """The list with ten of its rules turned round, others for every seed."""
    rules = list(acl.rules)
    for place in random.Random(seed).sample(range(len(rules)), _CHANGED):  # noqa: S311  (no secret)
        turned = Action.DENY if rules[place].action is Action.PERMIT else Action.PERMIT
        rules[place] = replace(rules[place], action=turned)
    return replace(acl, rules=tuple(rules))


def _read_lists() -> Iterator[tuple[str, Acl]]:
    folder = Path(os.environ.get("ACLFLOW_DATA", Path(__file__).parents[4] / "shared" / "data")) / "classbench"
    for name in SETS:
        path = folder / f"{name}.rules.gz"
        if path.exists():
            text = gzip.decompress(path.read_bytes())
            yield name, read(text, "classbench", name=name, options=Options(classbench_action=None)).acl


def _measure_cpu_seconds(work: Callable[..., object], *lists: Acl) -> float:
    started = time.process_time()
    work(*lists)
    return time.process_time() - started


def _describe_findings(name: str, acl: Acl) -> str:
    counts = ", ".join(f"{count:,} {kind.value}" for kind, count in check(acl).counts.items())
    return f"{name}: {len(acl.rules):,} rules, {counts}"
