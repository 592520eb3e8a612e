"""The suite: what is measured, in which order, and where."""

from __future__ import annotations

from orchestrator.bench.edge import bypass, counters, leaks, model, speed
from orchestrator.bench.edge.counters import Counters
from orchestrator.bench.edge.sizes import Sizes
from orchestrator.bench.pop.edge import edge_switch
from orchestrator.bench.pop.links import Links
from orchestrator.bench.pop.world import Sizes as WorldSizes
from orchestrator.bench.pop.world import World
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Results
from orchestrator.bench.traffic.site import site
from orchestrator.bench.traffic.vnf import Ports
from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.prefilter import Misdirect

_SEED = 1
_DENSE = WorldSizes(chunks=128, per_line=32)
_MODELS, _WORLDS = 4, 2


def run(*, quick: bool, progress: Progress) -> Results:
    """Measure. `quick` compares fewer worlds and draws fewer chunks."""
    return measured(Sizes.quick() if quick else Sizes.full(), progress)


def measured(sizes: Sizes, progress: Progress, layout: Layout | None = None) -> Results:
    """Measure. Raises Missing where a tool is not installed, Drifted where a program is not held."""
    results = Results("edge", {"seeds": list(sizes.seeds), "draws": sizes.draws, "rounds": sizes.rounds})
    steps = Steps(progress, _steps(sizes))
    steps.next("the planner")
    model.planned(results)
    model.sampled(results, sizes.draws, steps.next)
    steps.next(f"lines for {sizes.build:,} chunks")
    model.built(results, sizes.build)
    compared = [World(each, seed) for each in sizes.worlds for seed in sizes.seeds]
    leaking = {"repaired": World(WorldSizes(), _SEED), "unrepaired": World(_DENSE, _SEED, repaired=False)}
    popular = World(bypass.WORLD, _SEED)
    owned = _owned(*compared, *leaking.values(), popular)
    with site(layout) as place, Links(place, "pop", max(each.sizes.servers for each in compared), owned) as links:
        with edge_switch(links) as switch:
            found = Counters()
            for number, world in enumerate(compared, 1):
                steps.next(f"a packet to every block, world {number} of {len(compared)}")
                counters.compare(found, world, links, switch)
            steps.next("many hosts a block")
            counters.conclude(results, found, counters.upcalls_a_chunk(compared[0], links, switch, sizes.hosts))
            steps.next("heavy hitters")
            bypass.measured(results, popular, links, switch)
            leaks.conclude(results, leaks.measured(leaking, links, switch, sizes.every, steps.next))
        links.close_servers()
        for ports in Ports:
            speed.measured(results, leaking["repaired"], links, ports, sizes.rounds, sizes.seconds, steps.next)
    results.notes += _NOTES
    return results


def _steps(sizes: Sizes) -> int:
    worlds = len(sizes.worlds) * len(sizes.seeds)
    return _MODELS + worlds + 2 + _WORLDS * len(Misdirect) + len(Ports) * sizes.rounds


def _owned(*worlds: World) -> list[Prefix]:
    """Every prefix of every world, each once."""
    return list(dict.fromkeys(prefix for world in worlds for tenant in world.tenants for prefix in tenant.prefixes))


_NOTES = (
    "packets to blocks are sent as fast as the switch takes them from its queue, so none is lost and counters can be "
    "exact",
    "packets/s: one sender, 208-octet packets to one server's blocks, all of which the switch's cache knows; sender, "
    "switch and server share this machine's cores, and AF_XDP ports are served by a thread that polls one of them",
)
