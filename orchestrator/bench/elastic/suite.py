"""The suite: a lab with a spread fleet, a varying load, and lasting connections.

How long, how much, and what a VNF may carry.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Self

from pyroute2 import IPRoute

from orchestrator.bench import fleetdecisions
from orchestrator.bench.benchlab import PREFIX
from orchestrator.bench.elastic import sender
from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.client import Client
from orchestrator.errors import Refused, Unreachable
from orchestrator.lab import namespaces, pop, processes, specfile
from orchestrator.lab.layout import Layout
from orchestrator.lab.namespaces import need_root
from orchestrator.lab.ovs import SWITCH
from orchestrator.lab.pop import Lab
from orchestrator.lab.service import ControlPlane
from orchestrator.lab.spec import LEFT, RIGHT
from orchestrator.policy.model import Acl, Action, Rule, RuleId, TenantId
from orchestrator.scaling.capacity import Measured

_NONE = Target(0)
_SOON = Target(3.0)
_MOVED = Target(2.0)


@dataclass(frozen=True, slots=True)
class Seen:
    """Results of one run.

    Datagrams offered and carried in each second, and how many of those sent in a second got lost between others; the
    fleet's size at moments (seconds, serving VNFs); how many datagrams were sent and came; connections that were cut;
    seconds from being asked for to serving of each VNF that came; how many left; and seconds from the power failure of
    one to the moment when it owned nothing any more.
    """

    offered: Sequence[int]
    carried: Mapping[int, int]
    missed: Mapping[int, int]
    sizes: Sequence[tuple[float, int]]
    sent: int
    came: int
    cut: int
    answers: int
    to_serving_s: Sequence[float]
    left: int
    to_move_away_s: float

    @property
    def lost(self) -> int:
        return self.sent - self.came

    @property
    def most(self) -> int:
        """The largest size that the fleet had."""
        return max((size for _, size in self.sizes), default=0)


def conclude(results: Results, runs: Sequence[Seen]) -> None:
    """Record everything; the lines are those of the last run."""
    figures = results.figures
    figures["packets_lost"] = Figure.of([run.lost for run in runs], "1", _NONE)
    figures["packets_sent"] = Figure.of([run.sent for run in runs], "1")
    figures["connections_cut"] = Figure.of([run.cut for run in runs], "1", _NONE)
    figures["connections_answers"] = Figure.of([run.answers for run in runs], "1")
    figures["most_vnfs"] = Figure.of([run.most for run in runs], "1")
    figures["vnfs_gone"] = Figure.of([run.left for run in runs], "1")
    figures["seconds_to_move_away"] = Figure.of([run.to_move_away_s for run in runs], "s", _MOVED)
    waits = [seconds for run in runs for seconds in run.to_serving_s]
    if waits:
        figures["seconds_to_serving"] = Figure.of(waits, "s", _SOON)
    else:
        results.absent["seconds_to_serving"] = "the fleet never grew"
    results.series += _plot_lines(runs[-1])
    results.notes += [_where(number, run) for number, run in enumerate(runs, 1) if run.missed]


def _where(number: int, run: Seen) -> str:
    """Say when lost datagrams were sent, beside when the fleet changed its size."""
    lost = ", ".join(f"{second} s: {count}" for second, count in sorted(run.missed.items()))
    changes = [(at, after) for (_, before), (at, after) in pairwise(run.sizes) if before != after]
    sizes = ", ".join(f"{at:.0f} s: {size}" for at, size in changes)
    return f"run {number}: lost of what was sent at {lost}; VNFs that served from {sizes or 'its start to its end'}"


def when_sent(sent: Sequence[int], flows: int, missing: Iterable[Sequence[int]]) -> Mapping[int, int]:
    """Count these datagrams (flow, number) by the second they were sent in.

    They are sent flow by flow in turn.
    """
    ends = list(accumulate(sent))
    return Counter(bisect_right(ends, number * flows + flow) for flow, number in missing)


def _plot_lines(run: Seen) -> list[Series]:
    seconds = tuple(map(float, range(len(run.offered))))
    rate = "datagrams a second (1/s)"
    carried = tuple(float(run.carried.get(second, 0)) for second in range(len(run.offered)))
    moments, sizes = zip(*run.sizes, strict=True)
    return [
        Series("offered", seconds, tuple(map(float, run.offered)), "time (s)", rate),
        Series("carried", seconds, carried, "time (s)", rate),
        Series("serving VNFs", tuple(moments), tuple(map(float, sizes)), "time (s)", "size of the fleet (VNFs)"),
    ]


OCTETS = 1000
"""Of a datagram."""
FRAME_OCTETS = OCTETS + 42
"""Of the frame that carries it."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Some seconds in which the load goes evenly to `load`, in VNF capacities."""

    seconds: float
    load: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """The load's course, from `start`; `cap_mbps` of each VNF; lasting connections; runs."""

    start: float
    phases: tuple[Phase, ...]
    cap_mbps: float
    connections: int
    runs: int

    @property
    def capacity_pps(self) -> float:
        """Datagrams a second that one VNF carries at most."""
        return self.cap_mbps * 1e6 / 8 / FRAME_OCTETS

    @property
    def seconds(self) -> float:
        """How long a run takes."""
        return sum(each.seconds for each in self.phases)

    def pps(self, at_s: float) -> float:
        """Return the offered packets a second at a moment of the run."""
        before = self.start
        for phase in self.phases:
            if at_s < phase.seconds:
                return self.capacity_pps * (before + (phase.load - before) * at_s / phase.seconds)
            at_s, before = at_s - phase.seconds, phase.load
        return self.capacity_pps * before

    @classmethod
    def quick(cls) -> Self:
        phases = (Phase(10, 0.3), Phase(30, 1.4), Phase(15, 1.4), Phase(10, 0.3), Phase(45, 0.3))
        return cls(0.3, phases, cap_mbps=4.0, connections=20, runs=1)

    @classmethod
    def full(cls) -> Self:
        phases = (Phase(20, 0.3), Phase(60, 2.4), Phase(30, 2.4), Phase(30, 0.3), Phase(90, 0.3))
        return cls(0.3, phases, cap_mbps=4.0, connections=50, runs=3)


POP = specfile.parse(
    """
    domain: elastic
    hosts: [{name: host1}]
    clients: [{name: outside, addresses: [192.0.2.1]}]
    tenants: [{id: shop, prefixes: [198.51.100.0/24]}]
    endpoints: [{name: web, tenant: shop, host: host1, addresses: [198.51.100.10]}]
    spread: true
    """
)
FLOWS = 200
_ADDRESS, _PORT = "198.51.100.10", 8000
_OPEN = Acl((Rule(RuleId("all"), Action.PERMIT),))
_FLEET = {
    "plane": "nftables",
    "decide_every_s": 0.5,
    "limits": {
        "fewest": 1, "most": 5, "target": 0.6, "hysteresis": 0.15, "step_up": 1, "cooldown_up_s": 3.0,
        "cooldown_down_s": 8.0, "peak_s": 8.0, "ahead_s": 4.0, "most_creations": 50,
    },
    "patience": {"drain_s": 5.0},
}  # fmt: skip
"""A fleet that is quicker to shrink than one in earnest would be, so that a run shows both."""
_LOOK_EVERY_S, _SHORTLY_S = 0.25, 0.02
_PATIENCE_S = 120.0
_UNDER_WAY_S = 1.0
_DECIDING_ROUNDS = 7


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite. `quick` goes through one rise and fall, smaller and faster."""
    return measure(Sizes.quick() if quick else Sizes.full(), progress)


def measure(sizes: Sizes, progress: Progress, layout: Layout | None = None) -> Results:
    """Run the suite with these sizes.

    Raises Missing for anybody but root, Unreachable where the fleet does not come up.
    """
    need_root()
    results = Results(
        "elastic",
        {"runs": sizes.runs, "cap_mbps": sizes.cap_mbps, "octets": OCTETS, "flows": FLOWS, "start": sizes.start,
         "phases": [[each.seconds, each.load] for each in sizes.phases], "connections": sizes.connections,
         "fleet": _FLEET},
    )  # fmt: skip
    place = Layout(PREFIX) if layout is None else layout
    steps = Steps(progress, sizes.runs)
    found = []
    for turn in range(sizes.runs):
        steps.next(f"run {turn + 1} of {sizes.runs}, {sizes.seconds:.0f} s")
        with _ground(place, sizes) as (lab, client):
            found.append(_Run(lab, client, sizes).go())
    conclude(results, found)
    fleetdecisions.measure(results, rounds=_DECIDING_ROUNDS)
    results.notes += _write_notes(sizes)
    return results


@contextmanager
def _ground(layout: Layout, sizes: Sizes) -> Iterator[tuple[Lab, Client]]:
    """A lab whose fleet has its first VNF in service."""
    pop.down(layout)
    try:
        lab = pop.up(layout, POP)
        processes.put_first(lab.state.process(SWITCH))
        plane = ControlPlane(lab, cap_mbps=sizes.cap_mbps)
        plane.start({TenantId("shop"): _OPEN})
        with plane.client() as client:
            known = [Measured(rules, OCTETS, sizes.capacity_pps) for rules in (0, 1000)]
            client.fleet.add_capacity("nftables", known, source="the cap of the lab's VNFs")
            client.fleet.configure(POP.domain, _FLEET)
            _wait_for(lambda: any(each.served for each in client.fleet.read(POP.domain).members), "no firewall serves")
            yield lab, client
    finally:
        pop.down(layout)


def _wait_for(condition: Callable[[], bool], otherwise: str) -> None:
    """Wait until something holds. Raises Unreachable."""
    until = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            raise Unreachable(f"after {_PATIENCE_S:.0f} s: {otherwise}")
        time.sleep(_SHORTLY_S)


def _owners(client: Client) -> set[str]:
    """The firewalls that own buckets."""
    return {each.carrier.name for each in client.spread.read(POP.domain).firewalls if each.buckets}


def _is_spread(client: Client) -> bool:
    """Whether the switch does as it was told."""
    seen = client.spread.read(POP.domain)
    return seen.enforced >= seen.generation


def _is_inside(pid: int, namespace: str) -> bool:
    """Whether a process is in a network namespace."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino == Path("/run/netns", namespace).stat().st_ino
    except OSError:  # it has ended
        return False


def _unplug() -> None:
    """Take both links down. Called inside a firewall."""
    with IPRoute() as links:
        for name in (LEFT, RIGHT):
            links.link("set", index=links.link_lookup(ifname=name)[0], state="down")


@dataclass(slots=True)
class _Run:
    """One rise and fall."""

    lab: Lab
    client: Client
    sizes: Sizes
    serving: list[tuple[float, int]] = field(default_factory=list)
    to_serving_s: dict[str, float] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def go(self) -> Seen:
        """Send the whole ramp of traffic, and return what was seen of the fleet."""
        first = {each.name for each in self.client.fleet.read(POP.domain).members}
        receiver = self._start_program("web", "receiver", str(_PORT))
        talkers = self._start_program("outside", "talkers", _ADDRESS, str(_PORT), str(self.sizes.connections),
                                str(self.sizes.seconds))  # fmt: skip
        rates = [self.sizes.pps(step * sender.STEP_S) for step in range(round(self.sizes.seconds / sender.STEP_S))]
        sending = self._program("outside", "sender", _ADDRESS, str(_PORT), str(OCTETS), str(FLOWS), json.dumps(rates))
        self._watch(sending)
        sent, talked = _read_output(sending), _read_output(talkers)
        time.sleep(_UNDER_WAY_S)
        receiver.terminate()
        got = _read_output(receiver)
        here = {each.name for each in self.client.fleet.read(POP.domain).members}
        left = len((self.names | first) - here)
        return Seen(
            offered=sent["sent"],
            carried={int(second): count for second, count in got["arrived"].items()},
            missed=when_sent(sent["sent"], FLOWS, got["missing"]),
            sizes=self.serving,
            sent=sent["total"],
            came=got["different"],
            cut=talked["cut"],
            answers=talked["answers"],
            to_serving_s=[seconds for name, seconds in self.to_serving_s.items() if name not in first],
            left=left,
            to_move_away_s=self._fail_one(),
        )

    def _fail_one(self) -> float:
        """Cut the power of one of two VNFs; return seconds until it gets nothing."""
        self.client.fleet.configure(POP.domain, {"size": 2})
        _wait_for(lambda: len(_owners(self.client)) == 2 and _is_spread(self.client), "two firewalls do not serve")
        victim = max(_owners(self.client))
        namespace = self.lab.layout.namespace(f"{POP.domain}-{victim}")
        running = [
            each for each in processes.marked_processes(self.lab.layout.run_dir) if _is_inside(each.pid, namespace)
        ]
        began = time.monotonic()
        for each in running:
            processes.kill(each)
        namespaces.inside(namespace, _unplug)
        _wait_for(lambda: victim not in _owners(self.client) and _is_spread(self.client), "nothing moves away from it")
        return time.monotonic() - began

    def _watch(self, sending: subprocess.Popen[str]) -> None:
        """Look at the fleet until everything is sent."""
        began = time.monotonic()
        while sending.poll() is None:
            members = self.client.fleet.read(POP.domain).members
            serving = [each for each in members if each.state == "serving"]
            self.serving.append((time.monotonic() - began, len(serving)))
            self.names |= {each.name for each in serving}
            for each in members:
                if each.served is not None:
                    self.to_serving_s.setdefault(each.name, (each.served - each.asked).total_seconds())
            time.sleep(_LOOK_EVERY_S)

    def _start_program(self, node: str, module: str, *words: str) -> subprocess.Popen[str]:
        """A program that says when it is ready. Raises Refused for one that does not."""
        process = self._program(node, module, *words)
        if process.stdout is None or process.stdout.readline().strip() != "ready":
            raise Refused(f"the {module} in {node} did not start")
        return process

    def _program(self, node: str, module: str, *words: str) -> subprocess.Popen[str]:
        """Start a module of this suite in a node of the lab."""
        command: Sequence[str] = [sys.executable, "-m", f"orchestrator.bench.elastic.{module}", *words]
        start = partial(subprocess.Popen, command, stdout=subprocess.PIPE, text=True)
        return self.lab.inside(node, start)


def _read_output(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return a program's final output.

    Raises Refused for one that says nothing.
    """
    text, _ = process.communicate(timeout=_PATIENCE_S)
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        raise Refused(f"a program of the load ended with {process.returncode} and said {text[:200]!r}") from None
    return found


def _write_notes(sizes: Sizes) -> list[str]:
    most = max(each.load for each in sizes.phases)
    return [
        "the lab's own fleet: each VNF is a namespace with an agent and nftables, its links capped at "
        f"{sizes.cap_mbps:g} Mb/s (tbf): {sizes.capacity_pps:.0f} datagrams of {OCTETS} bytes a second; so says "
        "the capacity model that it is decided by",
        f"load: {FLOWS} flows of numbered UDP datagrams, from {sizes.start:g} of what one VNF carries up to {most:g} "
        "and down again; lost is what was sent and never came",
        f"connections: {sizes.connections} that last for all of the run and say a line four times a second; cut is one "
        "with an error or without an answer for 10 s",
        "seconds_to_serving: from the decision that asks for a VNF to the moment when the spreading switch was read "
        "back to send it its share; the VNF is made, enrols, loads its program and is proven in between; its agent's "
        "program was loaded beforehand (two are kept at hand)",
        "seconds_to_move_away: a VNF's agent is killed and its links go down; until the switch was read back to send "
        "it nothing (nobody is told: its silence is noticed)",
        "service, controllers, agents, switches, generators and receivers share this machine's cores; only the switch "
        f"goes before others (priority {processes.FIRST})",
    ]
