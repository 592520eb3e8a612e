"""Heavy hitters: permitted traffic straight to the WAN, against the popularity curve."""

from __future__ import annotations

import random

from orchestrator.bench.pop.edge import EdgeSwitch
from orchestrator.bench.pop.grid import figure_prefix
from orchestrator.bench.pop.links import Links
from orchestrator.bench.pop.shots import fire, permitted_frame
from orchestrator.bench.pop.world import Sizes as WorldSizes
from orchestrator.bench.pop.world import World, machine
from orchestrator.bench.results import Figure, Results
from orchestrator.compile.lifting.edgeheavy import HeavyTable
from orchestrator.compile.pipelines.edge import EdgeTable
from orchestrator.edge.popularity import Popularity
from orchestrator.errors import Drifted
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Prefix

WORLD = WorldSizes(tenants=64, chunks=16)
_HEAVY = 25
"""As many of the 64 rules as in the paper's figure 6."""
_PACKETS = 20_000


def measure(results: Results, world: World, links: Links, switch: EdgeSwitch) -> None:
    """Send packets by the paper's curve; the 25 heaviest rules bypass the servers."""
    curve = Popularity()
    weights = [curve.decided_share(place + 1) - curve.decided_share(place) for place in range(len(world.tenants))]
    chosen = [LiftedRule(tenant.id, tenant.acl.rules[0].id) for tenant in world.tenants[:_HEAVY]]
    heavy = HeavyTable().of(chosen, world.policy)
    stay = [lift for lift in heavy.lifts if not lift.parts]
    if stay:
        raise Drifted(f"{stay[0].rule} cannot be a heavy hitter: {stay[0].because}")
    switch.load(world, links, heavy.rows)
    draw = random.Random(1)  # noqa: S311  (no secret)
    frames = [permitted_frame(world.grid, Prefix.parse(machine(tenant)).network) for tenant in world.tenants]
    fire(links, switch, draw.choices(frames, weights, k=_PACKETS))
    share = switch.packets_of(EdgeTable.HEAVY) / _PACKETS
    expected = sum(weights[:_HEAVY]) / sum(weights)
    of = figure_prefix(world.grid)
    results.figures[f"{of}bypass_share"] = Figure.of([share], "1")
    results.figures[f"{of}bypass_share_vs_curve"] = Figure.of([share / expected], "ratio")
    results.notes.append(
        f"IPv{world.grid.family.value} bypass: {_PACKETS:,} packets over {len(weights)} rules, the {_HEAVY} heaviest "
        f"in {len(heavy.rows)} entries at the edge; the curve expects {expected:.4f}"
    )
