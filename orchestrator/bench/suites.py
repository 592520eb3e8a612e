"""The suites by name: one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.bench import monitoring, nft_cost
from orchestrator.bench.acl_size import suite as acl_size
from orchestrator.bench.attack import suite as attack
from orchestrator.bench.attack import tuples
from orchestrator.bench.classifier import suite as classifier
from orchestrator.bench.classifiers import suite as classifiers
from orchestrator.bench.cloud import suite as cloud
from orchestrator.bench.console import suite as console
from orchestrator.bench.control_plane import suite as control_plane
from orchestrator.bench.edge import suite as edge
from orchestrator.bench.elastic import suite as elastic
from orchestrator.bench.firewall_server import suite as firewall_server
from orchestrator.bench.fw_vnf import suite as fw_vnf
from orchestrator.bench.packet_log import suite as packet_log
from orchestrator.bench.progress import Expected, Progress
from orchestrator.bench.promotion import suite as promotion
from orchestrator.bench.qualify import inventory as qualify_inventory
from orchestrator.bench.qualify import pairgauges
from orchestrator.bench.qualify import suite as qualify
from orchestrator.bench.results import Results
from orchestrator.bench.scale import suite as scale
from orchestrator.bench.state_sync import suite as state_sync
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
        "packet-log": packet_log.run,
        "edge": edge.run,
        "attack": attack.run,
        "attack-tse": tuples.run,
        "firewall-server": firewall_server.run,
        "classifier": classifier.run,
        "classifiers": classifiers.run,
        "cloud": cloud.run,
        "console": console.run,
        "state-sync": state_sync.run,
        "scale": scale.run,
    }
)
"""Each is called with `quick` (a shorter run of the same measurements) and `progress` (told what is being done)."""

JOURNALLED: Mapping[str, Callable[..., Expected]] = MappingProxyType(
    {
        "acl-size": acl_size.expect_length,
        "cloud": cloud.expect_length,
        "promotion": promotion.expect_length,
        "scale": scale.expect_length,
        "state-sync": state_sync.expect_length,
    }
)
"""Those that take hours unless they are quick, and how long they are: they are also called with a `journal` to go on
from, or None."""

QUALIFY = "qualify"
"""The suite over other machines: it is given an inventory."""


def _quiet(text: str, *, done: int = 0, total: int = 0) -> None:
    """Show no progress."""


def check(name: str, journal: Path | None = None) -> None:
    """Raise BadInput for an unknown suite, or a journal where none is kept."""
    if name not in SUITES:
        raise BadInput(f"'{name}' is no suite; they are {', '.join((*SUITES, QUALIFY))}", place="SUITE")
    if journal is not None and name not in JOURNALLED:
        raise BadInput(f"the suite {name} keeps none; {', '.join(JOURNALLED)} do", place="--journal")


def run(name: str, *, quick: bool = False, progress: Progress = _quiet, journal: Path | None = None) -> Results:
    """Run a suite on this machine. Raises what `check` raises."""
    check(name, journal)
    if journal is None:
        return SUITES[name](quick=quick, progress=progress)
    return SUITES[name](quick=quick, progress=progress, journal=journal)


def warning(name: str, *, quick: bool, journal: Path | None) -> str | None:
    """Return a warning before a long suite; None for others."""
    if name not in JOURNALLED:
        return None
    length = f"{name}: {JOURNALLED[name](quick=quick)}"
    if journal is not None:
        return f"{length}, less what is in {journal} already"
    return length if quick else f"{length}; with --journal FILE a run that is cut off goes on where it was"


def run_qualify(inventory: Path, limits: Path | None, *, quick: bool, progress: Progress = _quiet) -> Results:
    """Run the suite over an inventory's machines.

    Raises BadInput and Missing with the file as the place, before anything is done; then as `qualify.suite.run`.
    """
    bounds = {} if limits is None else pairgauges.read_limits(limits)
    return qualify.run(qualify_inventory.read(inventory), bounds, quick=quick, progress=progress)
