"""The suites by name: one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.bench import monitoring, nft_cost
from orchestrator.bench.acl_size import suite as acl_size
from orchestrator.bench.attack import suite as attack
from orchestrator.bench.control_plane import suite as control_plane
from orchestrator.bench.edge import suite as edge
from orchestrator.bench.elastic import suite as elastic
from orchestrator.bench.firewall_server import suite as firewall_server
from orchestrator.bench.fw_vnf import suite as fw_vnf
from orchestrator.bench.progress import Progress
from orchestrator.bench.promotion import suite as promotion
from orchestrator.bench.results import Results
from orchestrator.errors import BadInput

SUITES: Mapping[str, Callable[..., Results]] = MappingProxyType(
    {
        "control-plane": control_plane.run,
        "firewall-filter": nft_cost.run,
        "acl-size": acl_size.run,
        "promotion": promotion.run,
        "fw-vnf": fw_vnf.run,
        "elastic": elastic.run,
        "monitoring": monitoring.run,
        "edge": edge.run,
        "attack": attack.run,
        "firewall-server": firewall_server.run,
    }
)
"""Each is called with `quick` (a shorter run of the same measurements) and `progress` (told what is being done)."""


def _quiet(text: str, *, done: int = 0, total: int = 0) -> None:
    """Nobody wants to know."""


def run(name: str, *, quick: bool = False, inventory: Path | None = None, progress: Progress = _quiet) -> Results:
    """Run a suite. Raises BadInput for a name that is none, or an inventory that the suite has no use for."""
    if name not in SUITES:
        raise BadInput(f"'{name}' is no suite; they are {', '.join(SUITES)}", place="SUITE")
    if inventory is not None:
        raise BadInput(f"the suite {name} measures this machine only; leave the inventory out", place="--inventory")
    return SUITES[name](quick=quick, progress=progress)
