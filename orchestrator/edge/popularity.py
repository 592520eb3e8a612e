"""How much traffic few rules decide: what heavy-hitter entries are worth.

Measured popularity comes as points (rules, share of the packets that this many of the heaviest decide); the paper gives
one, 25 rules and 90 %. Between points, and beyond the last, what is left undecided is a straight line over one plus the
rules where both axes are logarithmic, as measured traffic is (Zipf's law).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log

from orchestrator.errors import BadInput


@dataclass(frozen=True, slots=True)
class Popularity:
    """Points of the curve: both numbers ascend, all shares lie between 0 and 1."""

    points: tuple[tuple[float, float], ...] = ((25.0, 0.9),)

    def __post_init__(self) -> None:
        if not self.points:
            raise BadInput("a popularity curve needs a point: RULES and the share they decide", place="popularity")
        before = (0.0, 0.0)
        for rules, share in self.points:
            if not (before[0] < rules < inf and before[1] < share < 1.0):
                raise BadInput(
                    f"{rules:g} rules, {share:g} of the packets: both must grow from point to point, shares below 1",
                    place="popularity",
                )
            before = rules, share

    def decided_share(self, rules: float) -> float:
        """The share of packets decided by the `rules` heaviest rules; `rules` may be a fraction."""
        corners = [(0.0, 0.0), *((log(1.0 + count), log(1.0 - share)) for count, share in self.points)]
        at = log(1.0 + max(rules, 0.0))
        index = next((i for i, (place, _) in enumerate(corners[1:], 1) if at <= place), len(corners) - 1)
        (low, high_left), (high, low_left) = corners[index - 1], corners[index]
        return 1.0 - exp(high_left + (low_left - high_left) * (at - low) / (high - low))

    @classmethod
    def of_counts(cls, packets: Sequence[float]) -> Popularity:
        """Build the curve of measured counts, one per rule.

        The last rule with packets gets no point.

        Raises BadInput for counts of fewer than two rules that decided packets.
        """
        heaviest = sorted((count for count in packets if count > 0), reverse=True)
        if len(heaviest) < 2:
            raise BadInput("a curve takes counts of at least two rules that decided packets", place="popularity")
        total, so_far, points = float(sum(heaviest)), 0.0, []
        for index, count in enumerate(heaviest[:-1], 1):
            so_far += count
            points.append((float(index), so_far / total))
        return cls(tuple(points))
