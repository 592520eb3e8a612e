"""From what was seen to figures, lines of plots and notes. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from orchestrator.bench.results import Figure, Results, Series, Target

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
        """The largest size."""
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
    results.series += _lines(runs[-1])
    results.notes += [_where(number, run) for number, run in enumerate(runs, 1) if run.missed]


def _where(number: int, run: Seen) -> str:
    """When datagrams were sent that got lost, beside when the fleet changed its size."""
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


def _lines(run: Seen) -> list[Series]:
    seconds = tuple(map(float, range(len(run.offered))))
    rate = "datagrams a second (1/s)"
    carried = tuple(float(run.carried.get(second, 0)) for second in range(len(run.offered)))
    moments, sizes = zip(*run.sizes, strict=True)
    return [
        Series("offered", seconds, tuple(map(float, run.offered)), "time (s)", rate),
        Series("carried", seconds, carried, "time (s)", rate),
        Series("serving VNFs", tuple(moments), tuple(map(float, sizes)), "time (s)", "size of the fleet (VNFs)"),
    ]
