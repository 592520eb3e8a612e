"""The suite: permitted datagrams with no flood, a denied flood, and a logged one.

The three take turns, in another order each round. Both floods are the same packets at the same rate, from the same
clients, denied by the same rule; all that differs is whether the rule logs.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Self

from orchestrator.bench.progress import Progress, Steps
from orchestrator.bench.results import Figure, Results, Stack, Target
from orchestrator.bench.traffic import iperf, netcat
from orchestrator.bench.traffic.addresses import SERVER, UNSERVED, Clients, policy
from orchestrator.bench.traffic.flooder import flooding
from orchestrator.bench.traffic.line import RIGHT, Line, serve_line, site
from orchestrator.bench.traffic.measured import ratios
from orchestrator.bench.traffic.rules import Listed
from orchestrator.bench.traffic.vnf import VnfAcl, vnf_acl
from orchestrator.compile.hostprogram import compile_host
from orchestrator.errors import Drifted
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import Ports
from orchestrator.policy.addresses import Addresses
from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import UDP
from orchestrator.program.program import Program

_BOUND, _COST = Target(0.9, at_most=False), Target(1.1)
"""A flood that is logged slows what is permitted by a tenth more than the same flood unlogged, at most; and costs the
switch a tenth more a packet, at most."""
_LEAD_S = 1.0
"""The flood lasts so much longer than what is measured beside it."""


class Beside(enum.Enum):
    """The flood beside the permitted datagrams."""

    NOTHING = "no flood"
    DENIED = "flood, denied"
    LOGGED = "flood, denied and logged"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rounds, seconds of each, the list's rules, and the flood's rate and clients."""

    rounds: int
    seconds: int
    rules: int
    per_s: int
    sources: int

    @classmethod
    def quick(cls) -> Self:
        return cls(rounds=9, seconds=2, rules=250, per_s=20_000, sources=64)

    @classmethod
    def full(cls) -> Self:
        return cls(rounds=30, seconds=5, rules=2_000, per_s=20_000, sources=256)


@dataclass(slots=True)
class _Values:
    """Results of one case: permitted packets a second, CPU a packet, flood rate."""

    permitted: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    flood: list[float] = field(default_factory=list)


def run(*, quick: bool, progress: Progress) -> Results:
    """Run the suite. `quick` takes fewer and shorter rounds."""
    return measure(Sizes.quick() if quick else Sizes.full(), progress)


def measure(sizes: Sizes, progress: Progress, layout: Layout | None = None) -> Results:
    """Run the suite with these sizes.

    Raises Missing where a tool is not installed, Drifted where a denied packet gets through.
    """
    asked = {"rounds": sizes.rounds, "seconds": sizes.seconds, "rules": sizes.rules, "flood_packets_s": sizes.per_s}
    results = Results("packet-log", {**asked, "sources": sizes.sources})
    programs = {case: _compile_list(sizes, log=case is Beside.LOGGED) for case in Beside}
    found = {case: _Values() for case in Beside}
    steps = Steps(progress, sizes.rounds * len(Beside))
    with site(layout) as place, serve_line(place, "vnf") as line, vnf_acl(line, Ports.SYSTEM) as vnf:
        for turn in range(sizes.rounds):
            for case in _order_cases(turn):
                steps.next(f"round {turn + 1} of {sizes.rounds}: {case.value}")
                _load_program(line, vnf, programs[case])
                _measure_line(found[case], line, vnf, sizes, flood=case is not Beside.NOTHING)
    _conclude(results, found)
    results.notes += _NOTES
    return results


def _order_cases(turn: int) -> Sequence[Beside]:
    cases = list(Beside)
    return cases[turn % len(cases) :] + cases[: turn % len(cases)]


def _compile_list(sizes: Sizes, *, log: bool) -> Program:
    denied = Rule(
        RuleId("flooded"), Action.DENY, protocol=UDP, destination=Addresses((SERVER,)),
        destination_ports=(PortRange(UNSERVED, UNSERVED),), log=log,
    )  # fmt: skip
    wanted = policy(Acl((denied, *Listed(sizes.rules).acl().rules)), server_port=RIGHT)
    return compile_host(wanted, domain="bench", generation=1 + log)


def _load_program(line: Line, vnf: VnfAcl, program: Program) -> None:
    vnf.load(program)
    if netcat.reached_sources(line, [(Clients.ONE.address, UNSERVED)]) != [False]:
        raise Drifted("what is to be denied gets through")


def _measure_line(values: _Values, line: Line, vnf: VnfAcl, sizes: Sizes, *, flood: bool) -> None:
    sources = Clients.OUTSIDE.addresses(sizes.sources)
    lasting = sizes.seconds + _LEAD_S
    before = vnf.work()
    with flooding(line, sources, UNSERVED, seconds=lasting, per_s=sizes.per_s) if flood else nullcontext() as sent:
        through = iperf.flood(line, seconds=sizes.seconds)
    packets = through.arrived + (sent.datagrams if sent is not None else 0)
    values.permitted.append(through.per_s)
    values.cpu_us.append((vnf.work().cpu_ns - before.cpu_ns) / 1000 / packets)
    if sent is not None:
        values.flood.append(sent.datagrams / sent.seconds)


def _conclude(results: Results, found: Mapping[Beside, _Values]) -> None:
    none, denied, logged = (found[case] for case in Beside)
    compared = (
        ("permitted_logged_vs_unlogged_flood", ratios(logged.permitted, denied.permitted), _BOUND),
        ("permitted_unlogged_flood_vs_none", ratios(denied.permitted, none.permitted), None),
        ("switch_cpu_logged_vs_unlogged_flood", ratios(logged.cpu_us, denied.cpu_us), _COST),
    )
    for name, values, target in compared:
        results.figures[name] = Figure.of(values, "ratio", target)
    for case, word in ((Beside.DENIED, "unlogged"), (Beside.LOGGED, "logged")):
        results.figures[f"flood_{word}"] = Figure.of(found[case].flood, "1/s")
    for case, word in zip(Beside, ("none", "unlogged_flood", "logged_flood"), strict=True):
        results.figures[f"permitted_{word}"] = Figure.of(found[case].permitted, "1/s")
    medians = tuple(statistics.median(found[case].permitted) for case in Beside)
    bars = tuple(case.value for case in Beside)
    results.stacks.append(Stack("permitted packets beside a flood", bars, {"permitted": medians}, "packets a second"))


_NOTES = (
    "permitted: UDP datagrams of 1472 bytes by iperf3 as fast as it can, counted at the server's interface, from a "
    "client of its own; the flood: datagrams of 100 bytes to a port that a rule of the same tenant denies",
    "with the log, the denied packets' cache entry sends a copy through the tenant's meter (10 a second), which drops "
    "the rest: what that costs is switch_cpu_logged_vs_unlogged_flood",
    "client, flood, switch and server share this machine's cores, so permitted_unlogged_flood_vs_none is mostly what "
    "the flood's sender takes from them; the log's own part is the ratio of both floods",
)
