"""The suite: what is measured, in which order, and where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.bench import findings
from orchestrator.bench.control_plane import abuse, domain, overlay, rest, stateful, wire
from orchestrator.bench.control_plane.sizes import TENANT, Sizes
from orchestrator.bench.ground import ground
from orchestrator.bench.results import Results
from orchestrator.lab.spec import PopSpec
from orchestrator.lab.specfile import parse
from orchestrator.policy.model import ReturnTraffic

Progress = Callable[[str], None]


def run(*, quick: bool, progress: Progress) -> Results:
    """Measure. `quick` takes fewer rounds of the same sizes."""
    sizes = Sizes.quick() if quick else Sizes.full()
    results = Results("control-plane", {"rounds": sizes.rounds, "changes": sizes.changes})
    with ground(description()) as lab, TemporaryDirectory() as folder:
        wire.measure(lab, results, sizes, Path(folder), progress)
        rest.measure(lab, results, sizes, Path(folder), progress)
    for returns in (ReturnTraffic.ESTABLISHED, ReturnTraffic.EXPLICIT):
        with ground(description(("host1", "host1"))) as lab:
            overlay.measure(lab, results, sizes, returns, progress)
    stateful.measure(results, sizes, progress)
    domain.measure(results, progress)
    abuse.measure(results, progress, quick=quick)
    findings.measure(results, rounds=sizes.slow_rounds, progress=progress)
    return results


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
