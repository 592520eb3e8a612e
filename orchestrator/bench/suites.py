"""The suites by name: one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.bench import nft_cost
from orchestrator.bench.control_plane import suite as control_plane
from orchestrator.bench.results import Results
from orchestrator.errors import BadInput

SUITES: Mapping[str, Callable[..., Results]] = MappingProxyType(
    {"control-plane": control_plane.run, "firewall-filter": nft_cost.run}
)
"""Each is called with `quick` (a shorter run of the same measurements) and `progress` (told what is being done)."""


def run(
    name: str, *, quick: bool = False, inventory: Path | None = None, progress: Callable[[str], None] = lambda _: None
) -> Results:
    """Run a suite. Raises BadInput for a name that is none, or an inventory that the suite has no use for."""
    if name not in SUITES:
        raise BadInput(f"'{name}' is no suite; they are {', '.join(SUITES)}", place="SUITE")
    if inventory is not None:
        raise BadInput(f"the suite {name} measures this machine only; leave the inventory out", place="--inventory")
    return SUITES[name](quick=quick, progress=progress)
