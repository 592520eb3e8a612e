"""What belongs to a lab and must not be there when it is gone."""

from __future__ import annotations

from orchestrator.lab import namespaces, network, processes
from orchestrator.lab.layout import Layout


def leftovers(layout: Layout) -> list[str]:
    """Everything on this machine that belongs to a lab."""
    left = [f"namespace {name}" for name in namespaces.with_prefix(layout.prefix)]
    left += [f"process {process.name}" for process in processes.marked_processes(layout.run_dir)]
    left += ["management link"] * network.has_management(layout)
    return left + [str(layout.run_dir)] * layout.run_dir.exists()
