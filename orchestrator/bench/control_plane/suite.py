"""The suite: what is measured, in which order, and where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.bench import findings
from orchestrator.bench.control_plane import domain, overlay, rest, wire
from orchestrator.bench.control_plane.sizes import TENANT, Sizes
from orchestrator.bench.ground import ground
from orchestrator.bench.results import Results
from orchestrator.lab.spec import PopSpec, parse

Progress = Callable[[str], None]


def run(*, quick: bool, progress: Progress) -> Results:
    """Measure. `quick` takes fewer rounds of the same sizes, and leaves out the domain of a million rules."""
    sizes = Sizes.quick() if quick else Sizes.full()
    results = Results("control-plane", {"rounds": sizes.rounds, "changes": sizes.changes})
    with ground(description()) as lab, TemporaryDirectory() as folder:
        wire.measure(lab, results, sizes, Path(folder), progress)
        rest.measure(lab, results, sizes, Path(folder), progress)
        overlay.measure(lab, results, sizes, progress)
    domain.measure(results, progress, quick=quick)
    findings.measure(results, rounds=sizes.slow_rounds, progress=progress)
    return results


def description() -> PopSpec:
    """Two hosts, and a tenant that owns everything."""
    return parse(f"""
        domain: bench
        clients: [{{name: outside, addresses: [192.0.2.1], silent: true}}]
        hosts: [{{name: host1}}, {{name: host2}}]
        tenants: [{{id: {TENANT}, prefixes: ["0.0.0.0/0", "::/0"]}}]
        endpoints:
          - {{name: inside1, tenant: {TENANT}, host: host1, addresses: [198.51.100.1], silent: true}}
          - {{name: inside2, tenant: {TENANT}, host: host2, addresses: [198.51.100.2], silent: true}}
    """)
