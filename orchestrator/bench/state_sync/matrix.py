"""The paper's matrix: levels, contexts and confirmations, in clusters of 3, 6 and 9.

With 25 and 100 downloads at once.

Levels that are compared with each other are run one after the other, in an order that changes from round to round; a
ratio is always one of such neighbours, so that what else the machine does meets both.

In the paper, transactions of a cluster of three take longest at 25 at once, and shortest at 100. Ours do not.
`measure_lost_syns` asks whether lost SYNs explain that: the firewall of a cluster of three loses one SYN of two
thousand, as a full queue or a transaction that gave up would, and larger clusters lose none. The client sends it again
after a second, which a mean set-up time shows and a median hides: half a millisecond, that is much where a set-up takes
less, and little at 100 at once, where it takes several.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from typing import NamedTuple

from orchestrator.bench.progress import Steps
from orchestrator.bench.results import Figure, Results, Series, Target
from orchestrator.bench.state_sync.programs import OWNER, Programs, Sharing, Spent, Statistics
from orchestrator.bench.state_sync.syncworld import ALONE, AT_ONCE, MEMBERS, Sizes, World
from orchestrator.bench.traffic.downloads import Downloads, Web
from orchestrator.bench.traffic.journal import Journal
from orchestrator.errors import Refused
from orchestrator.statesync.states import Confirmation, Context, Level

_COUNTED = ("held_full", "unresolved", "raced", "unasked")
"""Counters of the owner that stay at zero while all is well."""
_MEASURED = 25
"""Downloads at once of the figures about processor time."""
_CPU_TARGETS: Mapping[int, Target] = {3: Target(1.15), 9: Target(1.40)}
_ADDED_TARGET = Target(10.0)
LOST_OF = 2_000
"""One SYN of so many is lost."""


@dataclass(slots=True)
class Matrix:
    """Every run by setting and parallel downloads, in round order, and programs' CPU time."""

    runs: dict[tuple[Sharing, int], list[Downloads]] = field(default_factory=dict)
    spent: dict[Sharing, list[Spent]] = field(default_factory=dict)
    troubles: dict[str, int] = field(default_factory=dict)

    def pairs(
        self, ours: Sharing, theirs: Sharing, at_once: int, value: Callable[[Downloads], float]
    ) -> Iterator[tuple[float, float]]:
        """A value of two settings, round by round."""
        for mine, other in zip(self.runs[ours, at_once], self.runs[theirs, at_once], strict=True):
            yield value(mine), value(other)

    def ratios(self, ours: Sharing, theirs: Sharing, at_once: int, value: Callable[[Downloads], float]) -> list[float]:
        """How many times a value of one setting is that of another, round by round."""
        return [mine / other for mine, other in self.pairs(ours, theirs, at_once, value)]


def cpu_of(run: Downloads) -> float:
    """Processor time of a connection, in us."""
    return run.cpu_each_us


def setup_of(run: Downloads) -> float:
    """The median set-up time, in us."""
    return run.setup_median_us


def measure(programs: Programs, web: Web, sizes: Sizes, steps: Steps, journal: Journal) -> Matrix:
    """Run all of it that the journal has not. Raises Refused where downloads fail."""
    found, order = Matrix(), random.Random(sizes.runs)  # noqa: S311  (an order to measure in)
    before = programs.counters()
    for turn in range(sizes.runs):
        steps.next(f"matrix, run {turn + 1} of {sizes.runs}")
        blocks = list(product(Context, Confirmation, MEMBERS, AT_ONCE))
        order.shuffle(blocks)
        for context, confirmation, members, at_once in blocks:
            kinds = [Sharing(level, context, confirmation, members) for level in Level]
            for sharing in order.sample(kinds, len(kinds)):
                _run_downloads(found, programs, web, sharing, sizes.downloads, at_once, journal, turn)
        for members in MEMBERS:
            kinds = [Sharing(level, Context.DIRTY, Confirmation.SYNCHRONOUS, members) for level in Level]
            for sharing in order.sample(kinds, len(kinds)):
                _run_downloads(found, programs, web, sharing, sizes.downloads, ALONE, journal, turn)
        with Statistics():
            for members in MEMBERS:
                sharing = Sharing(Level.FULL, Context.DIRTY, Confirmation.SYNCHRONOUS, members)
                spend = partial(_measure_cpu, programs, web, sharing, sizes.downloads)
                spent = journal.row(f"programs {turn}: {sharing}", spend)
                found.spent.setdefault(sharing, []).append(Spent(**spent))
    counted = programs.counters()
    found.troubles = {name: counted[name] - before[name] for name in _COUNTED if counted[name] != before[name]}
    return found


def _measure_cpu(programs: Programs, web: Web, sharing: Sharing, count: int) -> dict[str, float]:
    programs.share(sharing)
    began = programs.spent()
    web.download(count, _MEASURED)
    spent = programs.spent().less(began)
    return asdict(Spent(spent.owner_us / count, spent.others_us / count))


def _run_downloads(
    found: Matrix, programs: Programs, web: Web, sharing: Sharing, count: int, at_once: int, journal: Journal, turn: int
) -> None:
    def measure_turn() -> Downloads:
        programs.share(sharing)
        return web.download(count, at_once)

    run = Downloads.recall_or_measure(journal, f"matrix {turn}: {sharing}, {at_once} at once", measure_turn)
    if run.failed:
        raise Refused(f"{run.failed} of {count} downloads failed ({sharing}, {at_once} at once)")
    found.runs.setdefault((sharing, at_once), []).append(run)


# ----------------------------------------------------------------------------------------------------------- figures


def conclude(results: Results, found: Matrix) -> None:
    """Record figures, lines of plots and notes."""
    for members in MEMBERS:
        full = Sharing(Level.FULL, Context.DIRTY, Confirmation.SYNCHRONOUS, members)
        none = Sharing(Level.NONE, Context.DIRTY, Confirmation.SYNCHRONOUS, members)
        ratios = found.ratios(full, none, _MEASURED, cpu_of)
        results.figures[f"full_sync_cpu_vs_none_{members}"] = Figure.of(ratios, "1", _CPU_TARGETS.get(members))
        added = [mine - other for mine, other in found.pairs(full, none, ALONE, setup_of)]
        target = _ADDED_TARGET if members == MEMBERS[0] else None
        results.figures[f"full_sync_added_us_{members}"] = Figure.of(added, "us", target)
        spent = found.spent[full]
        results.figures[f"full_sync_owner_program_us_{members}"] = Figure.of([each.owner_us for each in spent], "us")
        results.figures[f"full_sync_members_program_us_{members}"] = Figure.of([each.others_us for each in spent], "us")
    conclude_apart(results, found)
    none = Sharing(Level.NONE, Context.DIRTY, Confirmation.SYNCHRONOUS, MEMBERS[0])
    results.figures["none_cpu_us"] = Figure.of([cpu_of(run) for run in found.runs[none, _MEASURED]], "us")
    results.figures["none_setup_us"] = Figure.of([setup_of(run) for run in found.runs[none, ALONE]], "us")
    _conclude_paper(results, found)
    results.series += list(_lines(found))
    troubles = ", ".join(f"{name} {count}" for name, count in found.troubles.items()) or "none"
    results.notes.append(f"packets that were not held, sent or freed as planned during the matrix: {troubles}")


def conclude_apart(results: Results, found: Matrix) -> None:
    """Divide the processor time that sharing adds between the owner and the members.

    The kernel does a member's work in whatever process sent the packet, so no clock is the member's own. But a message
    is the same work at each member that it goes by: the largest and the smallest cluster of a round say what one costs.
    """
    added: dict[int, list[float]] = {}
    for members in MEMBERS:
        full, none = (
            Sharing(level, Context.DIRTY, Confirmation.SYNCHRONOUS, members) for level in (Level.FULL, Level.NONE)
        )
        added[members] = [mine - other for mine, other in found.pairs(full, none, _MEASURED, cpu_of)]
    few, many = MEMBERS[0], MEMBERS[-1]
    each_us = [(larger - smaller) / (many - few) for smaller, larger in zip(added[few], added[many], strict=True)]
    results.figures["full_sync_each_member_cpu_us"] = Figure.of(each_us, "us")
    for members in MEMBERS:
        all_us = [(members - 1) * each for each in each_us]
        owner_us = [total - others for total, others in zip(added[members], all_us, strict=True)]
        spent = found.spent[Sharing(Level.FULL, Context.DIRTY, Confirmation.SYNCHRONOUS, members)]
        kernel_us = [others - programs.others_us for others, programs in zip(all_us, spent, strict=True)]
        results.figures[f"full_sync_owner_cpu_us_{members}"] = Figure.of(owner_us, "us")
        results.figures[f"full_sync_members_cpu_us_{members}"] = Figure.of(all_us, "us")
        results.figures[f"full_sync_members_kernel_us_{members}"] = Figure.of(kernel_us, "us")


def _conclude_paper(results: Results, found: Matrix) -> None:
    """Add the paper's ratios of set-up times, and its oddities."""
    first = MEMBERS[0]
    for at_once in AT_ONCE:
        sure = Sharing(Level.FULL, Context.TRANSACTION, Confirmation.SYNCHRONOUS, first)
        for what, confirmation in (("dirty", Confirmation.SYNCHRONOUS), ("dirty_async", Confirmation.ASYNCHRONOUS)):
            dirty = Sharing(Level.FULL, Context.DIRTY, confirmation, first)
            ratios = found.ratios(dirty, sure, at_once, setup_of)
            results.figures[f"setup_{at_once}_{what}_vs_transaction_sync"] = Figure.of(ratios, "1")
        for context in Context:
            name = context.name.lower()
            full, none, essential = (
                Sharing(level, context, Confirmation.SYNCHRONOUS, first)
                for level in (Level.FULL, Level.NONE, Level.ESTABLISHED)
            )
            setup = f"setup_{name}_{at_once}"
            results.figures[f"{setup}_full_vs_none"] = Figure.of(found.ratios(full, none, at_once, setup_of), "1")
            ratios = found.ratios(essential, none, at_once, setup_of)
            results.figures[f"{setup}_established_vs_none"] = Figure.of(ratios, "1")
            late = Sharing(Level.FULL, context, Confirmation.ASYNCHRONOUS, first)
            results.figures[f"{setup}_sync_vs_async"] = Figure.of(found.ratios(full, late, at_once, setup_of), "1")
            for members in MEMBERS[1:]:
                larger = Sharing(Level.FULL, context, Confirmation.SYNCHRONOUS, members)
                ratios = found.ratios(larger, full, at_once, setup_of)
                results.figures[f"{setup}_{members}_members_vs_3"] = Figure.of(ratios, "1")


def _lines(found: Matrix) -> Iterator[Series]:
    """Set-up times and processor time by the size of the cluster."""
    for at_once in AT_ONCE:
        label = f"set-up time with {at_once} at once (ms)"
        yield from _plot_series(found, at_once, label, lambda run: setup_of(run) / 1000)
    yield from _plot_series(found, _MEASURED, "processor time of a connection (us)", cpu_of)


def _plot_series(found: Matrix, at_once: int, label: str, value: Callable[[Downloads], float]) -> Iterator[Series]:
    for level, context, confirmation in _plotted_settings():
        rows: Sequence[float] = [
            statistics.median(map(value, found.runs[Sharing(level, context, confirmation, members), at_once]))
            for members in MEMBERS
        ]
        name = f"{level.name.lower()}, {context.name.lower()}, {confirmation.name.lower()}"
        yield Series(name if level else "none", tuple(map(float, MEMBERS)), tuple(rows), "members", label)


def _plotted_settings() -> Iterator[tuple[Level, Context, Confirmation]]:
    """Yield the settings of the plot; NONE once, for its four ways are one."""
    yield Level.NONE, Context.DIRTY, Confirmation.SYNCHRONOUS
    yield from product((Level.ESTABLISHED, Level.FULL), Context, Confirmation)


class SynKind(NamedTuple):
    """A cluster of so many members, whose firewall loses SYNs or does not."""

    members: int
    loses: bool


SYN_KINDS = (SynKind(MEMBERS[0], True), *(SynKind(members, False) for members in MEMBERS))


def measure_lost_syns(
    results: Results, world: World, programs: Programs, web: Web, sizes: Sizes, steps: Steps, journal: Journal
) -> None:
    """Record the figures. Raises Refused where downloads fail."""
    found: dict[tuple[SynKind, int], list[float]] = {}
    order = random.Random(sizes.runs)  # noqa: S311  (an order to measure in)
    for turn in range(sizes.runs):
        steps.next(f"lost SYNs, run {turn + 1} of {sizes.runs}")
        for at_once in AT_ONCE:
            for kind in order.sample(SYN_KINDS, len(SYN_KINDS)):
                download = partial(_download_losing, world, programs, web, kind, sizes.downloads, at_once)
                run = Downloads.recall_or_measure(journal, f"lost SYNs {turn}: {kind}, {at_once} at once", download)
                found.setdefault((kind, at_once), []).append(run.setup_mean_us)
    conclude_lost_syns(results, found)


def _download_losing(world: World, programs: Programs, web: Web, kind: SynKind, count: int, at_once: int) -> Downloads:
    """Download through a cluster shared in this way. Raises Refused where one fails."""
    programs.share(Sharing(Level.FULL, Context.TRANSACTION, Confirmation.SYNCHRONOUS, kind.members))
    with _counting_syns(world, "drop" if kind.loses else "accept"):
        run = web.download(count, at_once)
    if run.failed:
        raise Refused(f"{run.failed} of {count} downloads failed ({kind}, {at_once} at once)")
    return run


@contextmanager
def _counting_syns(world: World, verdict: str) -> Iterator[None]:
    """Have the firewall count SYNs in the block, and drop or accept one of 2,000.

    So both kinds of a cluster do the same work.
    """
    syn = f"tcp flags & (syn | ack) == syn numgen inc mod {LOST_OF} == 0"
    chain = f"chain f {{ type filter hook forward priority 0; {syn} {verdict}; }}"
    world.run(OWNER, "nft", "-f", "-", text=f"table ip lostsyns {{ {chain}; }}")
    try:
        yield
    finally:
        world.run(OWNER, "nft", "delete", "table", "ip", "lostsyns")


def conclude_lost_syns(results: Results, found: Mapping[tuple[SynKind, int], Sequence[float]]) -> None:
    """Record the ratio of larger clusters' mean set-up time to that of three members.

    `found` has the means of each kind by its downloads at once, in the order of rounds.
    """
    for at_once, members, loses in product(AT_ONCE, MEMBERS[1:], (False, True)):
        larger, three = found[SynKind(members, False), at_once], found[SynKind(MEMBERS[0], loses), at_once]
        ratios = [one / other for one, other in zip(larger, three, strict=True)]
        name = "lost_syns" if loses else "no_lost_syns"
        results.figures[f"{name}_{at_once}_{members}_members_vs_3"] = Figure.of(ratios, "1")
