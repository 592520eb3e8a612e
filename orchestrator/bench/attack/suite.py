"""The suite: every flood under every misdirect mode, in turns with no flood at all.

The flood is slower than the edge, so that what is lost is lost by decision. Meanwhile a permitted client asks every
tenant's machine, the victim's too; its answers, and their times, are those of tenants beside an attack.

The floods, with the theoretical result of each packet. Pure.
"""

from __future__ import annotations

import enum
import random
import selectors
import socket
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import numpy as np

from orchestrator.bench.attack import tuples
from orchestrator.bench.pop import flood
from orchestrator.bench.pop.edge import FirewallServers, edge_switch
from orchestrator.bench.pop.links import OUTSIDE, WAN, Links, Wan
from orchestrator.bench.pop.world import IPV4, PERMITTED_PORT, World, machine
from orchestrator.bench.pop.world import Sizes as WorldSizes
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results, Stack, Target
from orchestrator.bench.traffic.line import site
from orchestrator.bench.traffic.measured import ratios
from orchestrator.errors import Unreachable
from orchestrator.lab.layout import Layout
from orchestrator.policy.addresses import format_address
from orchestrator.policy.prefilter import Misdirect

_PATIENCE_S = 10.0
_LAST_S = 0.5
"""How long the last answers may take."""
PAYLOAD_OCTETS = 188
_FILLING = bytes(PAYLOAD_OCTETS - 8)


@dataclass(slots=True)
class Answered:
    """Results of one machine: datagrams sent, and milliseconds of each round trip."""

    sent: int = 0
    trips_ms: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        return len(self.trips_ms) / self.sent if self.sent else 0.0


def start_echoes(links: Links, machines: Sequence[str]) -> None:
    """Have every machine answer; returns when they do. Raises Unreachable."""
    ports = str(PERMITTED_PORT)
    links.start(WAN, sys.executable, "-m", "orchestrator.bench.traffic.echo", ",".join(machines), ports)
    until = time.monotonic() + _PATIENCE_S
    while not all(each.share for each in probe(links, machines, seconds=0.1, gap_s=0.05).values()):
        if time.monotonic() > until:
            raise Unreachable(f"not every machine answers its client within {_PATIENCE_S:.0f} s")


def probe(links: Links, machines: Sequence[str], *, seconds: float, gap_s: float) -> Mapping[str, Answered]:
    """Send to each machine every `gap_s`; listen until the last possible answer."""
    found = {machine: Answered() for machine in machines}
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        talks = {machine: stack.enter_context(links.inside(OUTSIDE, partial(_socket, machine))) for machine in machines}
        for machine, talk in talks.items():
            selector.register(talk, selectors.EVENT_READ, machine)
        began, turn = time.monotonic(), 0
        while (now := time.monotonic() - began) < seconds + _LAST_S:
            if now < seconds and now >= turn * gap_s:
                turn += 1
                for machine, talk in talks.items():
                    found[machine].sent += 1
                    with suppress(ConnectionRefusedError):  # of an earlier datagram
                        talk.send(time.monotonic_ns().to_bytes(8, "big") + _FILLING)
            wait_s = turn * gap_s - now if now < seconds else _LAST_S / 10
            for key, _ in selector.select(max(wait_s, 0.0)):
                with suppress(ConnectionRefusedError):
                    sent_ns = int.from_bytes(talks[key.data].recv(2048)[:8], "big")
                    found[key.data].trips_ms.append((time.monotonic_ns() - sent_ns) / 1e6)
    return found


def _socket(machine: str) -> socket.socket:
    """The permitted client's, towards one machine. Called outside."""
    talk = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    talk.bind((format_address(IPV4.family, IPV4.client.network), 0))
    talk.connect((machine, PERMITTED_PORT))
    talk.setblocking(False)
    return talk


_TENANTS_ADDRESSES = 4_096


class Attack(enum.Enum):
    """Whom a flood is for."""

    NONE = "no attack"
    SWEEP = "sweep"
    TARGET = "one target"
    TENANT = "one tenant"


def targets(world: World, attack: Attack, seed: int) -> list[int]:
    """Return the addresses to send to in turn.

    The first tenant is the victim where there is one.
    """
    draw = random.Random(seed)  # noqa: S311  (no secret: the same flood every time)
    grid = world.grid
    owned = np.array([grid.chunking.key(prefix.network) for prefix in world.tenants[0].prefixes], np.uint64)
    if attack is Attack.SWEEP:
        keys = grid.routable.copy()
        order = list(range(len(keys)))
        draw.shuffle(order)
        return grid.addresses(keys[order], [draw.randrange(grid.hosts) for _ in order])
    if attack is Attack.TENANT:
        keys = owned[[draw.randrange(len(owned)) for _ in range(_TENANTS_ADDRESSES)]]
        return grid.addresses(keys, [draw.randrange(grid.hosts) for _ in keys])
    return grid.addresses(owned[:1])


def expected_share(world: World, destinations: list[int], misdirect: Misdirect) -> float:
    """The share of a flood's packets that reach the WAN: none is permitted."""
    keys = np.array([world.grid.chunking.key(address) for address in destinations], np.uint64)
    return float(world.leaks(keys, misdirect).mean())


_SEED = 1
_GAP_S = 0.02
_NONE_LEAK = Target(0.0)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How often and how long everything is tried, and packets a second of a flood."""

    rounds: int
    seconds: float
    per_s: int
    world: WorldSizes = field(default_factory=WorldSizes)
    tuples: tuples.Sizes = field(default_factory=tuples.Sizes)

    @classmethod
    def quick(cls) -> Self:
        return cls(rounds=3, seconds=3.0, per_s=4_000)

    @classmethod
    def full(cls) -> Self:
        return cls(rounds=15, seconds=15.0, per_s=4_000, tuples=tuples.FULL)


@dataclass(slots=True)
class _Found:
    """Results of one flood under one mode, a value a round.

    Bytes a second in the WAN, the share of packets that got there and that by theory, and what tenants beside the
    victim saw.
    """

    octets_s: list[float] = field(default_factory=list)
    share: list[float] = field(default_factory=list)
    expected: list[float] = field(default_factory=list)
    goodput: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    median_ms: list[float] = field(default_factory=list)
    worst_ms: list[float] = field(default_factory=list)


_Case = tuple[Attack, Misdirect]


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite. `quick` takes fewer and shorter rounds."""
    return measure(Sizes.quick() if quick else Sizes.full(), progress)


def measure(sizes: Sizes, progress: Progress, layout: Layout | None = None) -> Results:
    """Run the suite with these sizes.

    Raises Missing where a tool is not installed, Drifted where a program is not held.
    """
    results = Results("attack", {"rounds": sizes.rounds, "seconds": sizes.seconds, "packets_s": sizes.per_s})
    world = World(sizes.world, _SEED)
    floods: dict[Attack, list[int]] = {
        attack: targets(world, attack, _SEED) for attack in Attack if attack is not Attack.NONE
    }
    found = {(attack, mode): _Found() for mode in Misdirect for attack in Attack}
    steps = Steps(progress, sizes.rounds * len(found) + sizes.tuples.rounds * len(tuples.LEVERS))
    owned = [prefix for tenant in world.tenants for prefix in tenant.prefixes]
    with site(layout) as place, Links(place, "pop", sizes.world.servers, owned) as links, edge_switch(links) as switch:
        servers, wan = FirewallServers(links), Wan(links)
        switch.load(world, links)
        for turn in range(sizes.rounds):
            for mode in Misdirect:
                servers.load(world, mode)
                if not turn and mode is next(iter(Misdirect)):
                    start_echoes(links, [machine(tenant) for tenant in world.tenants])
                for attack in Attack:
                    steps.next(f"round {turn + 1} of {sizes.rounds}: {attack.value}, misdirected: {mode.value}")
                    switch.forget()
                    _round(found[attack, mode], sizes, _Place(links, wan, world, mode), floods.get(attack))
    _conclude(results, floods, found)
    tuples.measure(results, steps, sizes.tuples, layout)
    results.notes += _NOTES
    return results


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a round takes place."""

    links: Links
    wan: Wan
    world: World
    misdirect: Misdirect


def _round(found: _Found, sizes: Sizes, place: _Place, flooded: list[int] | None) -> None:
    """One flood, or none, and what came of it and beside it."""
    before, links = place.wan.count_arrived().attack, place.links
    attacking = flood.begin(links, flooded, seconds=sizes.seconds, per_s=sizes.per_s) if flooded else None
    others = [machine(tenant) for tenant in place.world.tenants[1:]]
    _beside(found, probe(links, others, seconds=sizes.seconds, gap_s=_GAP_S), sizes.seconds)
    if attacking is not None and flooded is not None:
        sent = attacking.end()
        links.settle()
        leaked = place.wan.count_arrived().attack.since(before)
        found.octets_s.append(leaked.bytes / sent.seconds)
        found.share.append(leaked.packets / sent.sent)
        in_turn = [flooded[index % len(flooded)] for index in range(sent.sent)]
        found.expected.append(expected_share(place.world, in_turn, place.misdirect))


def _beside(found: _Found, heard: Mapping[str, Answered], seconds: float) -> None:
    """Add the other tenants' view: the worst answered share, bytes and times over all."""
    trips = sorted(trip for each in heard.values() for trip in each.trips_ms)
    if not trips:
        raise Unreachable("no tenant's machine answers its client any more")
    found.answered.append(min(each.share for each in heard.values()))
    found.goodput.append(len(trips) * PAYLOAD_OCTETS / seconds)
    found.median_ms.append(statistics.median(trips))
    found.worst_ms.append(trips[len(trips) * 99 // 100])


def _conclude(results: Results, floods: Mapping[Attack, list[int]], found: Mapping[_Case, _Found]) -> None:
    """Add the figures of each attack to the results."""
    for (attack, mode), values in found.items():
        name = f"{attack.value.replace(' ', '_')}_{mode.value}"
        if attack in floods:
            leaks = any(values.expected)
            target = None if leaks else _NONE_LEAK
            results.figures[f"wan_share_{name}"] = Figure.of(values.share, "1", target)
            results.figures[f"wan_octets_s_{name}"] = Figure.of(values.octets_s, "octets/s", target)
            if leaks:
                off = ratios(values.share, values.expected)
                results.figures[f"wan_share_{name}_vs_theory"] = Figure.of(off, "ratio")
        results.figures[f"others_answered_{name}"] = Figure.of(values.answered, "1")
        results.figures[f"others_goodput_{name}"] = Figure.of(values.goodput, "octets/s")
        results.figures[f"others_median_ms_{name}"] = Figure.of(values.median_ms, "ms")
        results.figures[f"others_p99_ms_{name}"] = Figure.of(values.worst_ms, "ms")
    bars = tuple(f"{attack.value},\n{mode.value}" for attack in floods for mode in Misdirect)
    shares = tuple(statistics.median(found[attack, mode].share) for attack in floods for mode in Misdirect)
    results.stacks.append(Stack("what of a flood reaches the WAN", bars, {"measured": shares}, "share of its packets"))


_NOTES = (
    "the sweep asks one address of every /16 block that a kernel routes, over and over; the target and the tenant are "
    "the first tenant's. No packet of a flood is permitted by anybody",
    "theory knows every packet's fate beforehand: under `wan` those pass whose block is nobody's or another server's "
    "and which some line matches; under `rehome` and `drop` none",
    "others_answered is of the tenant beside the victim who fared worst; the edge, all servers, senders and machines "
    "share this machine's cores, so times beside an attack say more about those than about a router",
)
