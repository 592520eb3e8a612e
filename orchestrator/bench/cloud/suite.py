"""Measure both firewalls in turns, and the ratios of their figures.

The suite has rules, live changes, boots, connections and packets. A rule's clock starts with the call and stops with
the first packet that it lets through, for both. A claim of carrying more rests on rows that track connections, as
Neutron's firewall does; with rows that look at TCP flags the ratio is told without a target.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, Self

from orchestrator.bench.cloud.cloudsite import OURS, THEIRS, CloudSite, read
from orchestrator.bench.cloud.sides import Booted, Rate, open_cloud
from orchestrator.bench.progress import Expected, Progress, Steps
from orchestrator.bench.results import Figure, Results, Target
from orchestrator.bench.traffic.journal import Journal
from orchestrator.errors import Missing
from orchestrator.policy.model import ReturnTraffic

SITE = "ACLFLOW_BENCH_CLOUD"
"""The variable of the environment that names the file of the cloud."""
_VS = "vs_neutron_ovs"
_ONE_RULE, _BOOT = Target(20.0, at_most=False), Target(1.1)
_NOTHING_LOST = Target(0.0)
_AS_FAST = Target(0.95, at_most=False, whole=True)
_NUMBERS = ("seconds", "lost", "active_s", "reachable_s", "per_s", "cpu_us")
_BOOTS: Mapping[bool | None, str] = {None: "not measured", False: "until it is active", True: "until it answers"}
"""How far boots are measured, by whether instances get an address on both networks; None: there is no image."""
_EACH_S = {True: 20.0, False: 30.0}
_RETURNS: Mapping[ReturnTraffic, str] = {ReturnTraffic.TRACKED: "", ReturnTraffic.ESTABLISHED: "_ack"}
"""How the domain treats replies while connections and packets are measured, and what names of figures end with."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How often each pair is measured, and how much of what."""

    rounds: int
    many_rounds: int
    many: int
    changes: int
    boots: int
    rate_rounds: int
    downloads: int
    flood_s: int

    @classmethod
    def quick(cls) -> Self:
        return cls(rounds=3, many_rounds=1, many=1_000, changes=5, boots=1, rate_rounds=2, downloads=1_000, flood_s=2)

    @classmethod
    def full(cls) -> Self:
        return cls(rounds=11, many_rounds=5, many=1_000, changes=25, boots=5, rate_rounds=9, downloads=5_000, flood_s=3)

    @property
    def steps(self) -> int:
        """How many pairs of measurements there are."""
        return self.rounds + self.many_rounds + 1 + self.boots + 4 * self.rate_rounds


class Bench(Protocol):
    """A cloud with both firewalls, each by its name."""

    def measure_opening_s(self, name: str, rules: int) -> float:
        """Let packets in by the last of `rules` rules; measure until the first packet."""
        ...

    def count_lost(self, name: str, changes: int) -> int:
        """Change a list so often with packets under way; how many were lost."""
        ...

    def boot(self, name: str) -> Booted:
        """Boot an instance and delete it."""
        ...

    def serve(self) -> None:
        """Have both sides let in what connections and packets are measured with."""
        ...

    def returning(self, setting: ReturnTraffic) -> AbstractContextManager[None]:
        """Have the domain treat replies so during the block."""
        ...

    def measure_connections(self, name: str, count: int) -> Rate:
        """Make so many connections, one after the other at each of some places."""
        ...

    def measure_packets(self, name: str, seconds: int) -> Rate:
        """Send packets of one flow at the sender's maximum."""
        ...


def run(*, quick: bool, progress: Progress, journal: Path | None = None) -> Results:
    """Run the suite on the cloud that the environment names.

    `quick` measures less often. A run continues from its `journal`. Raises Missing where the environment names none.
    """
    name = os.environ.get(SITE)
    if name is None:
        raise Missing(f"{SITE} names no file of a cloud; `make bench-cloud` makes one on this machine")
    site = read(Path(name))
    sizes = Sizes.quick() if quick else Sizes.full()
    return measure(site, sizes, progress, journal=journal)


def expect_length(*, quick: bool) -> Expected:
    """How long a run is."""
    return Expected(2 * (Sizes.quick() if quick else Sizes.full()).steps, _EACH_S[quick])


def measure(
    site: CloudSite,
    sizes: Sizes,
    progress: Progress,
    *,
    journal: Path | None = None,
    opening: Callable[[CloudSite], AbstractContextManager[Bench]] = open_cloud,
) -> Results:
    """Measure what the journal does not have; return all figures.

    The cloud is opened for the first figure that is missing, and not without one.
    """
    settings = {
        **asdict(sizes),
        "polling_interval_s": site.polling_interval_s,
        "boot": _BOOTS[None if site.boot is None else site.boot.reachable],
    }
    results = Results("cloud", settings)
    kept = Journal(journal, {"suite": results.suite, **settings}, _NUMBERS)
    with ExitStack() as stack:
        rounds = _Rounds(kept, Steps(progress, sizes.steps), _Lazily(stack, lambda: opening(site)))
        _add_rules(results, rounds, sizes)
        _add_changes(results, rounds, sizes)
        _add_boots(results, rounds, sizes, site)
        _add_rates(results, rounds, sizes)
    results.notes += _describe(site)
    return results


@dataclass(slots=True)
class _Lazily:
    """The cloud, opened when it is first asked for."""

    stack: ExitStack
    opening: Callable[[], AbstractContextManager[Bench]]
    opened: Bench | None = None

    def get(self) -> Bench:
        """Return the bench, opened at the first call."""
        if self.opened is None:
            self.opened = self.stack.enter_context(self.opening())
        return self.opened


@dataclass(slots=True)
class _Rounds:
    """Measures both sides in turns, or takes their rows from the journal.

    The side that is first in a round is second in the next.
    """

    journal: Journal
    steps: Steps
    cloud: _Lazily

    def pairs(
        self, name: str, count: int, what: str, measure_one: Callable[[Bench, str], Mapping[str, float]]
    ) -> list[dict[str, Mapping[str, float]]]:
        """Return rounds: numbers of each side."""
        found = []
        for turn in range(count):
            self.steps.next(f"{what}, round {turn + 1} of {count}")
            order = (OURS, THEIRS)[:: 1 if turn % 2 else -1]
            found.append({side: self._row(f"{name} {turn} {side}", side, measure_one) for side in order})
        return found

    @contextmanager
    def prepare_unless_kept(
        self, names: list[str], prepare: Callable[[Bench], AbstractContextManager[None]]
    ) -> Iterator[None]:
        """Prepare the cloud for the block, unless the journal has all of its rows."""
        if all(map(self.journal.has, names)):
            yield
            return
        with prepare(self.cloud.get()):
            yield

    def _row(
        self, name: str, side: str, measure_one: Callable[[Bench, str], Mapping[str, float]]
    ) -> Mapping[str, float]:
        """Return a side's measured numbers, from the journal if an earlier run has them."""
        return self.journal.row(name, lambda: measure_one(self.cloud.get(), side))


_Pairs = list[dict[str, Mapping[str, float]]]


def _divide(pairs: _Pairs, number: str, over: str = THEIRS, under: str = OURS) -> list[float]:
    """The ratio of each round."""
    return [pair[over][number] / pair[under][number] for pair in pairs]


def _collect(pairs: _Pairs, side: str, number: str, factor: float = 1.0) -> list[float]:
    """Return one number of a side from each pair, times a factor."""
    return [factor * pair[side][number] for pair in pairs]


def _add_rules(results: Results, rounds: _Rounds, sizes: Sizes) -> None:
    """Add the times from a call to the first packet: one rule, and many."""
    for name, count, rules, target in (
        ("one_rule", sizes.rounds, 1, _ONE_RULE),
        (f"rules_{sizes.many}", sizes.many_rounds, sizes.many, None),
    ):
        pairs = rounds.pairs(
            name, count, f"{rules} rule{'s' if rules > 1 else ''} from the call to the first packet",
            lambda bench, side, rules=rules: {"seconds": bench.measure_opening_s(side, rules)},  # type: ignore[misc]
        )  # fmt: skip
        results.figures[f"{name}_speedup_{_VS}"] = Figure.of(_divide(pairs, "seconds"), "ratio", target)
        for side in (OURS, THEIRS):
            results.figures[f"{name}_{side}_ms"] = Figure.of(_collect(pairs, side, "seconds", 1000), "ms")


def _add_changes(results: Results, rounds: _Rounds, sizes: Sizes) -> None:
    """Add the packets that live changes lost."""
    (pair,) = rounds.pairs(
        "changes", 1, f"{sizes.changes} changes with packets under way",
        lambda bench, side: {"lost": bench.count_lost(side, sizes.changes)},
    )  # fmt: skip
    results.figures["packets_lost_in_live_changes"] = Figure.of([pair[OURS]["lost"]], "", _NOTHING_LOST)
    results.figures[f"packets_lost_in_live_changes_{THEIRS}"] = Figure.of([pair[THEIRS]["lost"]], "")


def _add_boots(results: Results, rounds: _Rounds, sizes: Sizes, site: CloudSite) -> None:
    """Add how long instances take, up to Nova's word and up to their first answer."""
    active, reachable = f"active_{_VS}", f"boot_{_VS}"
    if site.boot is None:
        results.absent[active] = results.absent[reachable] = "the file of the cloud names no image (boot)"
        return

    def boot(bench: Bench, side: str) -> Mapping[str, float]:
        booted = bench.boot(side)
        return {name: value for name, value in booted._asdict().items() if value is not None}

    pairs = rounds.pairs("boot", sizes.boots, "a boot", boot)
    results.figures[active] = Figure.of(_divide(pairs, "active_s", OURS, THEIRS), "ratio")
    for side in (OURS, THEIRS):
        results.figures[f"active_{side}_s"] = Figure.of(_collect(pairs, side, "active_s"), "s")
    if not site.boot.reachable:
        results.absent[reachable] = (
            "instances get no address on the network of ML2/OVS (boot.reachable); up to Nova's word: " + active
        )
        return
    results.figures[reachable] = Figure.of(_divide(pairs, "reachable_s", OURS, THEIRS), "ratio", _BOOT)
    for side in (OURS, THEIRS):
        results.figures[f"boot_{side}_s"] = Figure.of(_collect(pairs, side, "reachable_s"), "s")


def _add_rates(results: Results, rounds: _Rounds, sizes: Sizes) -> None:
    """Add connections and packets a second, with either way to permit replies."""
    for setting, ending in _RETURNS.items():
        turns = [f"{turn} {side}" for turn in range(sizes.rate_rounds) for side in (OURS, THEIRS)]
        names = [f"{kind.name}{ending} {each}" for kind in _KINDS for each in turns]
        with rounds.prepare_unless_kept(names, partial(_serving, setting=setting)):
            found = {
                kind: rounds.pairs(
                    f"{kind.name}{ending}", sizes.rate_rounds, f"{kind.each}s a second, {setting.value}",
                    partial(kind.measure, sizes),
                )
                for kind in _KINDS
            }  # fmt: skip
        for kind, pairs in found.items():
            target = None if ending else _AS_FAST
            ratios = _divide(pairs, "per_s", OURS, THEIRS)
            results.figures[f"{kind.name}{ending}_{_VS}"] = Figure.of(ratios, "ratio", target)
            for side in (OURS, THEIRS):
                results.figures[f"{kind.name}{ending}_{side}"] = Figure.of(_collect(pairs, side, "per_s"), "1/s")
                cost = f"switch_us_a_{kind.each}{ending}_{side}"
                results.figures[cost] = Figure.of(_collect(pairs, side, "cpu_us"), "us")


@dataclass(frozen=True, slots=True)
class _Kind:
    """Something counted by the second: the names of its figures, and its measurement."""

    name: str
    each: str
    measure: Callable[[Sizes, Bench, str], Mapping[str, float]]


_KINDS = (
    _Kind("cps", "connection",
          lambda sizes, bench, side: bench.measure_connections(side, sizes.downloads)._asdict()),
    _Kind("pps", "packet",
          lambda sizes, bench, side: bench.measure_packets(side, sizes.flood_s)._asdict()),
)  # fmt: skip


@contextmanager
def _serving(bench: Bench, *, setting: ReturnTraffic) -> Iterator[None]:
    """Serve with a setting of return traffic during the block."""
    with bench.returning(setting):
        bench.serve()
        yield


def _describe(site: CloudSite) -> list[str]:
    """Return notes on how the two sides were set up and measured."""
    return [
        f"ML2/OVS with its Open vSwitch firewall, whose agent looks each {site.polling_interval_s:g} s "
        "(polling_interval), and aclflow serve one host; both bridges are of one switch daemon.",
        "Packets come from namespaces that are plugged by cables as os-vif plugs an instance, with the same offloads; "
        "instances are booted for the boots alone.",
        "Rules: from the call of REST or of Neutron's API to the first packet that the new rule lets through, in a "
        "list that was empty; Neutron gets many rules in one call, as aclflow does.",
        "`..._ack`: the domain's rows look at TCP flags instead of tracking connections; Neutron's always track.",
    ]
