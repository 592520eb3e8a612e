"""How many VNFs there should be: a pure function that says why.

    needed   = load / (what one VNF carries * target)    the load: the forecast for growing, the peak for shrinking
    grow     at once, if the need is above what is there or on its way, by at most `step_up`, after `cooldown_up_s`
    shrink   by at most `step_down`, when the need leaves `hysteresis` to spare in a smaller fleet, and neither a growth
             nor a shrink was within `cooldown_down_s`
    never    below `fewest`, above `most`; nor anything at all while the storm breaker is open

The storm breaker opens when, within its window, as many VNFs were created or failed as it allows: something is wrong
then that more VNFs do not mend (an image that does not boot, a probe that never passes), and each try costs.

`victims` chooses the VNFs that leave when a fleet shrinks.

`forecast` draws on the median slope of what was seen lately. The slope is the median of the slopes between all pairs of
samples (Theil and Sen), so a single burst or gap does not turn it. The forecast is for growing only: nobody shrinks
because of what may come.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.scaling.capacity import CapacityModel
from orchestrator.scaling.lifecycle import COMING, MemberState

MOST_SAMPLES = 12
"""Of those given, as many of the newest are looked at: 66 pairs."""
_FEWEST = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """An observed load: `pps` packets a second at `at_s` of a monotonic clock."""

    at_s: float
    pps: float


def slope(samples: Sequence[Sample]) -> float:
    """Packets a second, a second; 0 where too little was seen to tell."""
    newest = samples[-MOST_SAMPLES:]
    if len(newest) < _FEWEST:
        return 0.0
    slopes = [
        (later.pps - earlier.pps) / (later.at_s - earlier.at_s)
        for index, earlier in enumerate(newest)
        for later in newest[index + 1 :]
        if later.at_s > earlier.at_s
    ]
    return statistics.median(slopes) if slopes else 0.0


def forecast(samples: Sequence[Sample], now_s: float, ahead_s: float) -> float:
    """Forecast the load in `ahead_s` seconds, at least the newest sample's; 0 without samples."""
    if not samples:
        return 0.0
    newest = samples[-1]
    rise = slope(samples) * (now_s + ahead_s - newest.at_s)
    return max(newest.pps, newest.pps + rise)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A VNF that could leave: progress, health, connections, load and age order.

    The load is in packets a second; the number grows with the age of the order.
    """

    name: str
    number: int
    state: MemberState
    is_well: bool
    connections: int
    packets_pps: int


def victims(candidates: Sequence[Candidate], count: int) -> tuple[str, ...]:
    """Choose VNFs to remove: not serving first, then unhealthy, then least state, least traffic, youngest."""
    may_go = [each for each in candidates if each.state in COMING or each.state is MemberState.SERVING]
    return tuple(each.name for each in sorted(may_go, key=_rank_candidate)[: max(count, 0)])


def _rank_candidate(candidate: Candidate) -> tuple[int, bool, int, int, int]:
    """How much a VNF would be missed."""
    far = len(COMING) if candidate.state is MemberState.SERVING else COMING.index(candidate.state)
    return far, candidate.is_well, candidate.connections, candidate.packets_pps, -candidate.number


@dataclass(frozen=True, slots=True)
class Limits:
    """The operator's limits of one fleet.

    Times in seconds; raises BadInput with the field as place.

    `target` is the share of a VNF's capacity that may be used, `hysteresis` how much of that must be to spare before
    one goes. `ahead_s` is how far to look ahead: the time a new VNF takes to serve.
    """

    fewest: int = 1
    most: int = 8
    target: float = 0.7
    hysteresis: float = 0.15
    step_up: int = 2
    step_down: int = 1
    cooldown_up_s: float = 5.0
    cooldown_down_s: float = 120.0
    peak_s: float = 300.0
    """Nothing shrinks below what the highest load of so long needs."""
    ahead_s: float = 10.0
    storm_window_s: float = 600.0
    most_creations: int = 12
    most_failures: int = 3

    def __post_init__(self) -> None:
        if self.fewest < 0:
            raise BadInput(f"{self.fewest} VNFs cannot be", place="fewest")
        if self.most < max(self.fewest, 1):
            raise BadInput(f"at most {self.most}, where {max(self.fewest, 1)} are the fewest", place="most")
        if not 0 < self.target <= 1:
            raise BadInput(f"{self.target} is no share of a VNF's capacity", place="target")
        if not 0 <= self.hysteresis < 1:
            raise BadInput(f"{self.hysteresis} is not in 0..1", place="hysteresis")
        for name in ("step_up", "step_down", "most_creations", "most_failures"):
            if getattr(self, name) < 1:
                raise BadInput(f"{getattr(self, name)} lets nothing be done", place=name)
        for name in ("cooldown_up_s", "cooldown_down_s", "peak_s", "ahead_s", "storm_window_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInput(f"{getattr(self, name)} is no time", place=name)


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a fleet: packets a second, their average size, and rules per VNF.

    `rules` are those that will hold once what is being published is enforced: a list that grew counts at once.
    """

    samples: tuple[Sample, ...]
    packet_bytes: float
    rules: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """The VNFs there are: `serving` ones, those `coming` (requested up to proven), and those `leaving`."""

    serving: int
    coming: int = 0
    leaving: int = 0

    @property
    def size(self) -> int:
        """Those that serve or will."""
        return self.serving + self.coming


@dataclass(frozen=True, slots=True)
class History:
    """Times of recent changes, in seconds of the samples' clock."""

    grew_s: tuple[float, ...] = ()
    """Once for each VNF that was created."""
    shrank_s: tuple[float, ...] = ()
    failed_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """How many VNFs there should be, counting those that are coming, and why."""

    size: int
    because: str


def decide(load: Load, fleet: Fleet, model: CapacityModel, limits: Limits, history: History, now_s: float) -> Decision:
    """Decide how many VNFs a fleet is to have, and say why.

    `now_s` is in seconds of the samples' clock.
    """
    held = storm(history, limits, now_s)
    if held is not None:
        return Decision(fleet.size, held)
    each_pps = model.safe_rate_pps(load.rules, load.packet_bytes)
    usable_pps = each_pps * limits.target
    expected_pps = forecast(load.samples, now_s, limits.ahead_s)
    wanted = _bound_size(math.ceil(expected_pps / usable_pps - 1e-9), limits)
    expected, each = _spell_rate(expected_pps), _spell_rate(each_pps)
    words = f"{expected} expected in {limits.ahead_s:g} s, {each} each with {load.rules} rules"
    if wanted > fleet.size:
        return _grow_fleet(wanted, fleet, limits, history, now_s, words)
    return _shrunk(load, fleet, usable_pps, limits, history, now_s)


def storm(history: History, limits: Limits, now_s: float) -> str | None:
    """Return why to wait after too many changes or failures, or None."""
    start = now_s - limits.storm_window_s
    for times, most, what in (
        (history.failed_s, limits.most_failures, "failed"),
        (history.grew_s, limits.most_creations, "were created"),
    ):
        count = sum(start < time <= now_s for time in times)
        if count >= most:
            return f"storm breaker: {count} VNFs {what} within {limits.storm_window_s:g} s, {most} are allowed"
    return None


def _grow_fleet(wanted: int, fleet: Fleet, limits: Limits, history: History, now_s: float, words: str) -> Decision:
    waited = now_s - max(history.grew_s, default=-math.inf)
    if fleet.size >= limits.fewest and waited < limits.cooldown_up_s:
        return Decision(fleet.size, f"grew {waited:.0f} s ago, waiting for {limits.cooldown_up_s:g} s")
    size = min(wanted, fleet.size + limits.step_up) if fleet.size >= limits.fewest else max(wanted, limits.fewest)
    more = f", {wanted} wanted, {limits.step_up} at a time" if size < wanted else ""
    return Decision(size, f"{words}: {size} at {limits.target:.0%}{more}")


def _shrunk(load: Load, fleet: Fleet, usable_pps: float, limits: Limits, history: History, now_s: float) -> Decision:
    """Shrink, if the highest load of late leaves enough to spare; else stay."""
    peak = max((sample.pps for sample in load.samples if now_s - sample.at_s <= limits.peak_s), default=0.0)
    enough = _bound_size(math.ceil(peak / (usable_pps * (1.0 - limits.hysteresis)) - 1e-9), limits)
    if enough >= fleet.size:
        over = f"; at most {limits.most} are allowed" if fleet.size >= limits.most else ""
        return Decision(fleet.size, f"{_spell_rate(peak)} at most of late keeps {fleet.size} busy enough{over}")
    if fleet.coming or fleet.leaving:
        return Decision(fleet.size, f"{fleet.coming} VNFs are coming and {fleet.leaving} leaving: one thing at a time")
    waited = now_s - max((*history.grew_s, *history.shrank_s), default=-math.inf)
    if waited < limits.cooldown_down_s:
        return Decision(fleet.size, f"changed {waited:.0f} s ago, waiting for {limits.cooldown_down_s:g} s")
    size = max(enough, fleet.size - limits.step_down)
    spare = f"{enough} are enough with {limits.hysteresis:.0%} to spare"
    return Decision(size, f"{_spell_rate(peak)} at most within {limits.peak_s:g} s: {spare}")


def _bound_size(size: int, limits: Limits) -> int:
    return max(limits.fewest, min(limits.most, size))


def _spell_rate(pps: float) -> str:
    return f"{pps / 1000:.3g} kpps" if pps >= 1000 else f"{pps:.3g} pps"


def needed(pps: float, model: CapacityModel, rules: int, size: float, target: float = 1.0) -> int:
    """Return the VNFs for a steady load, without limits.

    Target 1 is the paper's estimate (FW-VNF, section IV).
    """
    return max(1, math.ceil(pps / (model.rate_pps(rules, size) * target) - 1e-9))
