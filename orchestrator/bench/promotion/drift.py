"""The loop under traffic whose popularity drifts, beside the best choice in hindsight.

A tenant's list ends with the rules of many services, whose popularity follows Zipf's law; from round to round some
services change places. In each round the same connections pass the same switch under every way of choosing:

    nothing      nothing is lifted
    savings      by the counts that the switch had under this way in the round before, as the product's default chooses
    paper        the same, by ACLFLOW's Algorithm 1, one rule a round
    hindsight    the services with most connections in this very round, which nobody knows before it is over

The loop is the product's: the switch's counters by rule, `placement.choice`, compiler, proof and one bundle.

`LiftBench` is a switch that holds a policy, and brings lifts to it as the product does.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.traffic import httperf
from orchestrator.bench.traffic.addresses import SERVER, TENANT, Clients, policy
from orchestrator.bench.traffic.line import RIGHT, Line, serve_line
from orchestrator.bench.traffic.rules import Listed
from orchestrator.bench.traffic.vnf import VnfAcl, vnf_acl
from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.equivalence import Proof, prove
from orchestrator.compile.hostprogram import CompileCache
from orchestrator.compile.lifting.prospects import Prospector
from orchestrator.enforce.driver import Hits
from orchestrator.lab.layout import Layout
from orchestrator.lab.ovs import Ports
from orchestrator.placement.choice import Algorithm, Prospects, Settings, Subject, choose
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.addresses import Addresses
from orchestrator.policy.model import Acl, Action, Policy, Rule, RuleId
from orchestrator.policy.ports import PortRange
from orchestrator.policy.protocols import TCP
from orchestrator.program.program import Tier


class LiftBench:
    """A switch that holds a policy, with what compiler and proof know of it."""

    def __init__(self, vnf: VnfAcl, wanted: Policy) -> None:
        self.vnf = vnf
        self.policy = wanted
        self._cache = CompileCache()
        self._generation = 1
        program = self._cache.compile_program(wanted, domain="bench", generation=self._generation)
        self._proof: Proof = prove(wanted, program.flows)
        vnf.load(program)

    def bring(self, lifted: tuple[LiftedRule, ...]) -> float:
        """Bring just these lifts; return milliseconds from the decision to the barrier."""
        self._generation += 1
        began = time.perf_counter()
        program = self._cache.compile_program(self.policy, domain="bench", generation=self._generation, lifted=lifted)
        change = self._cache.change
        assert change is not None
        flows = partial(getattr, program, "flows")
        self._proof = self._proof.after(self.policy, change.removed, change.added, flows)
        self.vnf.change(change, program)
        return (time.perf_counter() - began) * 1000


NOTHING, SAVINGS, PAPER, HINDSIGHT = WAYS = ("nothing", "savings", "paper", "hindsight")
_FIRST_PORT = 9_000
_AT_ONCE = 64
_PACKETS = 5
"""Packets of a short connection that its rule counts, one way."""
_SPREAD_S = 30.0
"""The connections of a round count as if they had come within so long. They come at once, to an empty cache: by true
seconds the estimate would reckon with entries that are there from before."""
_ROUND_S = 300.0
"""How long a round is where nothing else was asked (`placement.choice.Settings`): moves an hour are of such rounds."""

Lifted = tuple[LiftedRule, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """How many services there are, how many may be lifted, and the traffic.

    A round has so many `connections`, and so many `exchanges` before it. `rules` stand before the services'.
    """

    services: int
    budget: int
    rounds: int
    connections: int
    rules: int
    exchanges: int

    def numbers(self) -> list[str]:
        """Return the names of what is measured."""
        turns = [f"{way} {turn}" for way in WAYS for turn in range(self.rounds)]
        return [*turns, *map(_name_upcalls, turns), *map(_name_moves, _LOOPS)]

    def popularity(self) -> Iterator[list[int]]:
        """Yield each round's connections by service, the same every time."""
        drawn = random.Random(self.services)  # noqa: S311  (traffic to measure with)
        ranks = list(range(self.services))
        drawn.shuffle(ranks)
        whole = sum(1 / (rank + 1) for rank in ranks)
        for _ in range(self.rounds):
            yield [max(1, round(self.connections / (rank + 1) / whole)) for rank in ranks]
            for _ in range(self.exchanges):
                one, other = drawn.sample(range(self.services), 2)
                ranks[one], ranks[other] = ranks[other], ranks[one]

    def acl(self) -> Acl:
        """Return rules that look at sources, a deny, and a permit for each service."""
        others = (rule for rule in Listed(self.rules).acl().rules if not _meets_server(rule) or rule.id == "not-0")
        return Acl((*others, *map(_make_permit, range(self.services))))

    def settings(self, algorithm: Algorithm) -> Settings:
        """Return settings that lift services with a hundredth of the connections or more."""
        upper = max(1, self.connections * _PACKETS // 100)
        return Settings(algorithm, _ROUND_S, upper, upper // 4, self.budget)


def measure(drift: Drift, place: Layout, preload: Path, step: Callable[[str], None]) -> Mapping[str, float]:
    """Measure every way in every round.

    Returns requests a second, upcalls a connection, and moves of both loops. Raises Missing, Refused, Unreachable.
    """
    found: dict[str, float] = {}
    ports = [_FIRST_PORT + number for number in range(drift.services)]
    with serve_line(place, "drift", ports) as line, vnf_acl(line, Ports.SYSTEM) as vnf:
        bench = LiftBench(vnf, policy(drift.acl(), server_port=RIGHT))
        prospects = Prospector(bench.policy).of
        loops = {way: _Loop(drift.settings(how), prospects) for way, how in _LOOPS.items()}
        numbers = bench.policy.tenants[0].rule_numbers
        services = [numbers[_make_permit(each).id] for each in range(drift.services)]
        order = random.Random(drift.rounds)  # noqa: S311  (an order to measure in)
        passed = 0
        for turn, connections in enumerate(drift.popularity()):
            step(f"popularity drifts, round {turn + 1} of {drift.rounds}")
            traffic = _Traffic(line, preload, connections, passed)
            passed += sum(connections)
            busiest = sorted(range(drift.services), key=lambda each: -connections[each])[: drift.budget]
            placed = {NOTHING: (), HINDSIGHT: tuple(_name_lift(each) for each in busiest)}
            for way in order.sample(WAYS, len(WAYS)):
                loop = loops.get(way)
                bench.bring(placed[way] if loop is None else loop.lifted)
                before, worked = bench.vnf.hits(), bench.vnf.work()
                replies, seconds = traffic.pass_through()
                name = f"{way} {turn}"
                found[name] = replies / seconds
                found[_name_upcalls(name)] = (bench.vnf.work().upcalls - worked.upcalls) / replies
                if loop is not None:
                    loop.go_on(_count_packets(before, bench.vnf.hits(), services))
        return found | {_name_moves(way): float(loop.moves) for way, loop in loops.items()}


def record(results: Results, drift: Drift, found: Mapping[str, float]) -> None:
    """Record the figures; the first round, before which there are no counts, is left out."""
    rates = {way: [found[f"{way} {turn}"] for turn in range(1, drift.rounds)] for way in WAYS}
    for way, name in {
        NOTHING: "nothing_lifted",
        SAVINGS: "loop",
        PAPER: "paper_loop",
        HINDSIGHT: "best_placement",
    }.items():
        upcalls = [found[_name_upcalls(f"{way} {turn}")] for turn in range(1, drift.rounds)]
        results.figures[f"{name}_upcalls_per_connection"] = Figure.of(upcalls, "1")
    hours = (drift.rounds - 1) * _ROUND_S / 3600
    for way, first, target in ((SAVINGS, "loop", Target(0.9, at_most=False)), (PAPER, "paper_loop", None)):
        pairs = list(zip(rates[way], rates[HINDSIGHT], rates[NOTHING], strict=True))
        results.figures[f"{first}_vs_best_placement"] = Figure.of(
            [own / best for own, best, _ in pairs], "ratio", target
        )
        results.figures[f"{first}_vs_nothing_lifted"] = Figure.of([own / none for own, _, none in pairs], "ratio")
        results.figures[f"{first}_moves_an_hour"] = Figure.of([found[_name_moves(way)] / hours], "1/h")


class _Loop:
    """A way of choosing, what it has lifted, and its moves after the first choice."""

    def __init__(self, settings: Settings, prospects: Prospects) -> None:
        self.lifted: Lifted = ()
        self.moves = 0
        self._settings = settings
        self._prospects = prospects
        self._rounds = 0

    def go_on(self, packets: Sequence[int]) -> None:
        """Have the round that ends with these packets of each service."""
        subjects = [
            Subject(_name_lift(number), each, 0.0 if each else float("inf"), lifted=_name_lift(number) in self.lifted)
            for number, each in enumerate(packets)
        ]
        choice = choose(subjects, self._settings, _SPREAD_S, self._prospects)
        up, down = (tuple(each.rule for each in verdicts) for verdicts in (choice.lift, choice.lower))
        self.lifted = (*(rule for rule in self.lifted if rule not in down), *up)
        self.moves += (len(up) + len(down)) * (self._rounds > 0)
        self._rounds += 1


_LOOPS: Mapping[str, Algorithm] = {SAVINGS: Algorithm.SAVINGS, PAPER: Algorithm.PAPER}


@dataclass(frozen=True, slots=True)
class _Traffic:
    """A round's connections by service; so many clients are passed over, whose connections came before."""

    line: Line
    preload: Path
    connections: Sequence[int]
    passed: int

    def pass_through(self) -> tuple[int, float]:
        """Send it, one service after the other; return all replies and seconds."""
        replies, seconds, passed = 0, 0.0, self.passed
        for number, each in enumerate(self.connections):
            at_once = min(_AT_ONCE, each)
            done = httperf.requests(
                self.line,
                Clients.OUTSIDE,
                connections=each,
                at_once=at_once,
                preload=self.preload,
                passed=passed,
                port=_FIRST_PORT + number,
            )
            replies += done.replies  # every session has the same number: some connections are left out
            seconds += done.replies / done.per_s
            passed += each
        return replies, seconds


def _name_moves(way: str) -> str:
    return f"{way} moves"


def _name_upcalls(name: str) -> str:
    return f"{name} upcalls"


def _name_lift(number: int) -> LiftedRule:
    return LiftedRule(TENANT, _make_permit(number).id)


def _make_permit(number: int) -> Rule:
    port = PortRange(_FIRST_PORT + number, _FIRST_PORT + number)
    destination = Addresses((SERVER,))
    return Rule(
        RuleId(f"service-{number}"), Action.PERMIT, protocol=TCP, destination=destination, destination_ports=(port,)
    )


def _meets_server(rule: Rule) -> bool:
    return any(each.overlaps(SERVER) for each in rule.destination.prefixes)


def _count_packets(before: Hits, after: Hits, numbers: Sequence[int]) -> list[int]:
    """Return the packets of rules by their numbers between two looks at the same entries."""
    cookies = [np.uint64(Cookie(Tier.HOST, Kind.RULE, number).pack()) for number in numbers]
    return [_packets_of(after, each) - _packets_of(before, each) for each in cookies]


def _packets_of(hits: Hits, cookie: np.uint64) -> int:
    return int(hits.packets[hits.cookie == cookie].sum())


NOTES = (
    "loop_...: 32 services behind rules that look at sources, eight of which may be lifted; connections by Zipf's law, "
    "and four pairs of services change places before each round. The loop chooses by the switch's counts of the round "
    "before; best_placement is the eight services with most connections in the round. The same connections pass in "
    "each round, ways in a drawn order. Moves are of rounds of five minutes, after the first choice",
)
