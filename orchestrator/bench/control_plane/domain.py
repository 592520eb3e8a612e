"""A domain of a million rules: time and memory to compile and prove it.

It is measured in a process of its own (``python -m orchestrator.bench.control_plane.domain TENANTS RULES``), so that
its memory is its own, too. The clock leaves out making the policy, which a service reads from its database.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from orchestrator.bench.results import Figure, Results
from orchestrator.bench.rulesets import synthetic
from orchestrator.compile.equivalence import prove
from orchestrator.compile.hostprogram import compile_host
from orchestrator.errors import Unreachable
from orchestrator.interpreter import collector_paused
from orchestrator.policy.addresses import EVERY_IPV4
from orchestrator.policy.model import Policy, Tenant, TenantId
from orchestrator.policy.numbers import RuleNumbers

TENANTS, RULES = 50, 20_000


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, flow entries, and peak memory with the policy alone and in the end."""

    compile_s: float
    prove_s: float
    flows: int
    policy_mib: float
    peak_mib: float


def measure(results: Results, progress: Callable[[str], None]) -> None:
    """Compile and prove, once: it takes a minute. Raises Unreachable if that fails."""
    progress(f"{TENANTS} tenants with {RULES} rules each, compiled and proven")
    command = [sys.executable, "-m", "orchestrator.bench.control_plane.domain", str(TENANTS), str(RULES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unreachable(f"compiling {TENANTS * RULES:,} rules failed: {done.stderr.strip()[-500:]}")
    cost = Cost(**json.loads(done.stdout))
    figures = (
        ("compile_1000k_s", cost.compile_s, "s"),
        ("prove_1000k_s", cost.prove_s, "s"),
        ("policy_1000k_mib", cost.policy_mib, "MiB"),
        ("domain_1000k_mib", cost.peak_mib, "MiB"),
    )
    for name, value, unit in figures:
        results.figures[name] = Figure.of([value], unit)
    results.notes.append(
        f"{TENANTS * RULES:,} rules: {TENANTS} tenants with {RULES:,} each, {cost.flows:,} flows; "
        "the policy is in memory before the clock starts, and counts in the memory"
    )


def cost(tenants: int, rules: int) -> Cost:
    """Make a policy, compile it from scratch, prove it from scratch."""
    with collector_paused():
        policy = Policy(tuple(_make_tenant(number, rules) for number in range(1, tenants + 1)))
        policy_mib = _peak_mib()
        started = time.perf_counter()
        program = compile_host(policy, domain="bench", generation=1)
        compiled = time.perf_counter()
        prove(policy, program.flows)
        proven = time.perf_counter()
    return Cost(compiled - started, proven - compiled, len(program.blocks), policy_mib, _peak_mib())


def _make_tenant(number: int, rules: int) -> Tenant:
    acl = synthetic(rules, seed=number)
    numbers: dict[str, int] = {rule.id: number * rules + place for place, rule in enumerate(acl.rules)}
    return Tenant(TenantId(f"t{number}"), number, (EVERY_IPV4,), acl, RuleNumbers(numbers))


def _peak_mib() -> float:
    """The most resident memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(cost(*map(int, sys.argv[1:])))))
