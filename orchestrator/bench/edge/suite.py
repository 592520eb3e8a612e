"""The suite: what is measured, in which order, and where.

How much is measured.

Leaks are forbidden packets in the WAN and permitted ones lost, under each misdirect mode. Two worlds: with repaired
lines no tenant's packet meets a wrong server; with unrepaired ones, packed twice as dense, a fifth of the tenants'
blocks are misdirected, which is where the modes differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from orchestrator.bench.edge import model
from orchestrator.bench.edge.model import Counters
from orchestrator.bench.pop import flood
from orchestrator.bench.pop.edge import EdgeSwitch, FirewallServers, edge_switch
from orchestrator.bench.pop.links import SERVICE, Links, Wan, server
from orchestrator.bench.pop.shots import datagram, fire, permitted_frame
from orchestrator.bench.pop.world import IPV4, IPV6, Grid, World, figure_prefix, machine
from orchestrator.bench.pop.world import Sizes as WorldSizes
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results, Stack, Target
from orchestrator.bench.traffic.iperf import received_frames
from orchestrator.bench.traffic.line import site
from orchestrator.compile.lifting.edgeheavy import HeavyTable
from orchestrator.compile.pipelines.edge import EdgeTable
from orchestrator.edge.hashing import U64
from orchestrator.edge.planner import Popularity
from orchestrator.errors import Drifted, Missing, Refused, Unreachable
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import Ports
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Prefix
from orchestrator.policy.prefilter import Misdirect

BYPASS_WORLD = WorldSizes(tenants=64, chunks=16)
_HEAVY_RULES = 25
"""As many of the 64 rules as in the paper's figure 6."""
_BYPASS_PACKETS = 20_000
_NONE, _ALL = Target(0.0), Target(1.0, at_most=False)


def measure_bypass(results: Results, world: World, links: Links, switch: EdgeSwitch) -> None:
    """Send packets by the paper's curve; the 25 heaviest rules bypass the servers."""
    curve = Popularity()
    weights = [curve.decided_share(place + 1) - curve.decided_share(place) for place in range(len(world.tenants))]
    chosen = [LiftedRule(tenant.id, tenant.acl.rules[0].id) for tenant in world.tenants[:_HEAVY_RULES]]
    heavy = HeavyTable().of(chosen, world.policy)
    stay = [lift for lift in heavy.lifts if not lift.parts]
    if stay:
        raise Drifted(f"{stay[0].rule} cannot be a heavy hitter: {stay[0].because}")
    switch.load(world, links, heavy.rows)
    draw = random.Random(1)  # noqa: S311  (no secret)
    frames = [permitted_frame(world.grid, Prefix.parse(machine(tenant)).network) for tenant in world.tenants]
    fire(links, switch, draw.choices(frames, weights, k=_BYPASS_PACKETS))
    share = switch.packets_of(EdgeTable.HEAVY) / _BYPASS_PACKETS
    expected = sum(weights[:_HEAVY_RULES]) / sum(weights)
    of = figure_prefix(world.grid)
    results.figures[f"{of}bypass_share"] = Figure.of([share], "1")
    results.figures[f"{of}bypass_share_vs_curve"] = Figure.of([share / expected], "ratio")
    results.notes.append(
        f"IPv{world.grid.family.value} bypass: {_BYPASS_PACKETS:,} packets over {len(weights)} rules, "
        f"the {_HEAVY_RULES} heaviest in {len(heavy.rows)} entries at the edge; the curve expects {expected:.4f}"
    )


_USUAL = WorldSizes()
_MANY_FUNCTIONS = WorldSizes(functions=12)
_FULL_LINES = WorldSizes(chunks=128, per_line=32)
_NARROW = WorldSizes(width=96, per_line=4, functions=10)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the suite.

    Worlds whose counters are compared with the model, each with every seed; rounds and seconds of packets/s; chunks
    drawn against real lines; chunks of the largest build; hosts that share blocks; of the blocks that are swept for
    leaks, every so many-th.
    """

    worlds: tuple[WorldSizes, ...]
    seeds: tuple[int, ...]
    rounds: int
    seconds: float
    draws: int
    build: int
    hosts: int
    every: int = 1

    @classmethod
    def quick(cls) -> Self:
        worlds = (_USUAL, _MANY_FUNCTIONS, _FULL_LINES)
        return cls(worlds, (1,), rounds=5, seconds=1.0, draws=10**7, build=10**6, hosts=10_000)

    @classmethod
    def full(cls) -> Self:
        worlds = (_USUAL, _MANY_FUNCTIONS, _FULL_LINES, _NARROW)
        return cls(worlds, (1, 2, 3, 4, 5), rounds=15, seconds=5.0, draws=10**9, build=10**6, hosts=20_000)


_SEED = 1
_DENSE = WorldSizes(chunks=128, per_line=32)
_GRIDS = (IPV4, IPV6)
_MODELS, _WORLDS = 4, 2


@dataclass(frozen=True, slots=True, eq=False)
class _Worlds:
    """The worlds of an IP version: for counters, for leaks, and with heavy hitters."""

    grid: Grid
    compared: tuple[World, ...]
    leaking: dict[str, World]
    popular: World

    @classmethod
    def of(cls, grid: Grid, sizes: Sizes) -> _Worlds:
        compared = tuple(World(each, seed, grid=grid) for each in sizes.worlds for seed in sizes.seeds)
        unrepaired = World(_DENSE, _SEED, grid=grid, repaired=False)
        leaking = {"repaired": World(WorldSizes(), _SEED, grid=grid), "unrepaired": unrepaired}
        return cls(grid, compared, leaking, World(BYPASS_WORLD, _SEED, grid=grid))

    def all(self) -> tuple[World, ...]:
        return (*self.compared, *self.leaking.values(), self.popular)


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite. `quick` compares fewer worlds and draws fewer chunks."""
    return measure(Sizes.quick() if quick else Sizes.full(), progress)


def measure(sizes: Sizes, progress: Progress, layout: Layout | None = None) -> Results:
    """Run the suite with these sizes.

    Raises Missing where a tool is not installed, Drifted where a program is not held.
    """
    results = Results("edge", {"seeds": list(sizes.seeds), "draws": sizes.draws, "rounds": sizes.rounds})
    steps = Steps(progress, _count_steps(sizes))
    steps.next("the planner")
    model.measure_planner(results)
    model.measure_samples(results, sizes.draws, steps.next)
    steps.next(f"lines for {sizes.build:,} chunks")
    model.built(results, sizes.build)
    versions = [_Worlds.of(grid, sizes) for grid in _GRIDS]
    worlds = [world for version in versions for world in version.all()]
    servers = max(world.sizes.servers for world in worlds)
    with site(layout) as where, Links(where, "pop", servers, _all_prefixes(worlds)) as links:
        with edge_switch(links) as switch:
            place = Place(links, switch, Wan(links), FirewallServers(links))
            for version in versions:
                _with_packets(results, version, place, sizes, steps.next)
        links.close_servers()
        for ports in Ports:
            world = versions[0].leaking["repaired"]
            _measure_speed(results, world, links, ports, sizes.rounds, sizes.seconds, steps.next)
    results.notes += _NOTES
    return results


def _with_packets(results: Results, worlds: _Worlds, place: Place, sizes: Sizes, step: Callable[[str], None]) -> None:
    """All that single packets of an IP version show."""
    links, switch, found, version = place.links, place.switch, Counters(), worlds.grid.family.value
    for number, world in enumerate(worlds.compared, 1):
        step(f"a packet to every block of IPv{version}, world {number} of {len(worlds.compared)}")
        model.compare_counters(found, world, links, switch)
    step(f"many hosts a block, IPv{version}")
    upcalls = model.upcalls_a_chunk(worlds.compared[0], links, switch, sizes.hosts)
    model.conclude(results, worlds.grid, found, upcalls)
    step(f"heavy hitters, IPv{version}")
    measure_bypass(results, worlds.popular, links, switch)
    conclude_leaks(results, worlds.grid, measure_leaks(worlds.leaking, place, sizes.every, step))


def _count_steps(sizes: Sizes) -> int:
    a_version = len(sizes.worlds) * len(sizes.seeds) + 2 + _WORLDS * len(Misdirect)
    return _MODELS + a_version * len(_GRIDS) + len(Ports) * sizes.rounds


def _all_prefixes(worlds: Iterable[World]) -> list[Prefix]:
    """Every prefix of every world, each once."""
    return list(dict.fromkeys(prefix for world in worlds for tenant in world.tenants for prefix in tenant.prefixes))


_NOTES = (
    "packets to blocks are sent as fast as the switch takes them from its queue, so none is lost and counters can be "
    "exact. Blocks of IPv4 are all /16s, of IPv6 (`ipv6_...`) all /48s of 2001:db8::/32; lines of the two are asked "
    "apart",
    "packets/s: one sender, 208-byte packets of IPv4 to one server's blocks, all of which the switch's cache knows; "
    "sender, switch and server share this machine's cores, and AF_XDP ports are served by a thread that polls one of "
    "them",
)


_PORT_NAMES = {Ports.SYSTEM: "system_ports", Ports.AF_XDP: "af_xdp"}


def _measure_speed(
    results: Results, world: World, links: Links, ports: Ports, rounds: int, seconds: float, step: Callable[[str], None]
) -> None:
    """Send at full speed to every block of one server; count at its interface."""
    name = f"packets_s_{_PORT_NAMES[ports]}"
    mine = world.allocation.key[world.servers == 1]
    destinations = world.grid.addresses(mine)
    try:
        with edge_switch(links, ports, name=name) as switch:
            switch.load(world, links)
            rates = []
            for turn in range(rounds):
                step(f"{name}, round {turn + 1} of {rounds}")
                before = _count_received(links)
                attacking = flood.begin(links, destinations, seconds=seconds, per_s=flood.AS_FAST_AS_IT_GOES)
                rates.append((attacking.end().seconds, _count_received(links) - before))
        results.figures[name] = Figure.of([packets / took for took, packets in rates], "1/s")
    except (Missing, Refused, Unreachable) as error:
        if ports is Ports.SYSTEM:
            raise
        results.absent[name] = f"AF_XDP ports do not work here: {error}"


def _count_received(links: Links) -> int:
    text = links.inside(server(1), lambda: Path("/proc/thread-self/net/dev").read_text(encoding="ascii"))
    return received_frames(text, SERVICE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where it is measured."""

    links: Links
    switch: EdgeSwitch
    wan: Wan
    servers: FirewallServers


@dataclass(frozen=True, slots=True)
class Leak:
    """Results of one world under one mode.

    Packets in the WAN that nobody permits and how many theory expects, of so many sent; the share of permitted ones
    that arrived; and how many tenants' blocks the lines misdirect.
    """

    leaked: int
    expected: int
    sent: int
    permitted: float
    misdirected: int


def measure_leaks(
    worlds: Mapping[str, World], place: Place, every: int, step: Callable[[str], None]
) -> dict[tuple[str, Misdirect], Leak]:
    """Every world under every mode; swept is every so many-th block."""
    found = {}
    for name, world in worlds.items():
        place.switch.load(world, place.links)
        for mode in Misdirect:
            step(f"{name} lines, IPv{world.grid.family.value}, misdirected: {mode.value}")
            place.servers.load(world, mode)
            found[name, mode] = _measure_leak(world, mode, place, world.grid.routable[::every])
    return found


def _measure_leak(world: World, mode: Misdirect, place: Place, swept: U64) -> Leak:
    grid, before = world.grid, place.wan.count_arrived()
    machines = [permitted_frame(grid, Prefix.parse(machine(tenant)).network) for tenant in world.tenants]
    for shots in ([datagram(grid, address) for address in grid.addresses(swept)], machines):
        fire(place.links, place.switch, shots)
    place.links.settle()
    arrived = place.wan.count_arrived().since(before)
    keys = world.allocation.key
    wrong = int((world.lines.server_of(keys) != world.right_server(keys)).sum())
    expected = int(world.leaks(swept, mode).sum())
    return Leak(arrived.attack.packets, expected, len(swept), arrived.permitted.packets / len(machines), wrong)


def conclude_leaks(results: Results, grid: Grid, found: Mapping[tuple[str, Misdirect], Leak]) -> None:
    """Record an IP version's figures: leaks over both worlds, and permitted packets."""
    of = figure_prefix(grid)
    for mode in Misdirect:
        each = {name: leak for (name, its), leak in found.items() if its is mode}
        total = sum(leak.leaked for leak in each.values())
        if mode is Misdirect.WAN:
            off = [leak.leaked / leak.expected for leak in each.values() if leak.expected]
            results.figures[f"{of}leaked_wan_vs_theory"] = Figure.of(off, "ratio")
            results.figures[f"{of}leaked_wan"] = Figure.of([total], "packets")
        else:
            results.figures[f"{of}leaked_{mode.value}"] = Figure.of([total], "packets", _NONE)
        for name, leak in each.items():
            target = None if mode is Misdirect.DROP and leak.misdirected else _ALL
            results.figures[f"{of}permitted_arrive_{mode.value}_{name}"] = Figure.of([leak.permitted], "1", target)
    bars = tuple(f"{name},\n{mode.value}" for name, mode in found)
    shares = tuple(leak.leaked / leak.sent for leak in found.values())
    results.stacks.append(
        Stack(f"what leaks of a sweep of IPv{grid.family.value}", bars, {"in the WAN": shares}, "share of blocks swept")
    )
    worst, sent = max(leak.misdirected for leak in found.values()), max(leak.sent for leak in found.values())
    results.notes.append(
        f"IPv{grid.family.value} leaks: a packet to each of {sent:,} blocks; unrepaired lines misdirect {worst} blocks"
    )
