"""Which rules have earned a better place: ACLFLOW's Algorithm 1, as printed and repaired.

Every `interval_s` each rule's packets since the last round are looked at. The rule with the most of them, if they
reach the upper threshold, is lifted; a lifted rule that falls to the lower threshold goes back. Two shares say how much
of the policy was idle in this round and how much was never used at all.

As printed (ACLFLOW, section V, Algorithm 1) it has slips, which `as_printed` keeps for the reproduction:

    printed                                              repaired
    ---------------------------------------------------  -------------------------------------------------------
    initial rules are not counted, but do count as idle  initial rules are left out everywhere
      and unused, so both shares can exceed 1
    without a candidate, rule "0" is upgraded            nothing is lifted
    goes down at delta <= LT (the text says <)           goes down at delta < LT
    a lifted rule is lifted again in every round         a lifted rule stays where it is
    any number of rules stay lifted                      `most_lifted`; for a better one, the least popular goes down
    a counter that was reset gives a negative delta      what it counts since the reset
    no rules: 0 / 0                                      both shares are 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.policy.model import RuleId

PRINTED_NO_RULE = RuleId("0")
"""The rule that the printed algorithm upgrades when no rule qualifies."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The algorithm's settings; the defaults are the paper's.

    `upper` and `lower` (UT and LT) are packets an interval (T, in seconds). `most_lifted` is the budget.
    """

    interval_s: float = 300.0
    upper: int = 2000
    lower: int = 500
    most_lifted: int = 16
    as_printed: bool = False

    def __post_init__(self) -> None:
        if not self.interval_s > 0:
            raise BadInput(f"an interval of {self.interval_s} s is none", place="interval_s")
        if self.lower < 0:
            raise BadInput(f"{self.lower} packets cannot be", place="lower")
        if self.upper <= self.lower:
            reason = f"{self.upper} is not over the lower threshold, {self.lower}: rules would go up and down"
            raise BadInput(reason, place="upper")
        if self.most_lifted < 0:
            raise BadInput(f"{self.most_lifted} rules cannot be", place="most_lifted")


@dataclass(frozen=True, slots=True)
class Sample:
    """A rule's counters: `packets` now and `before`, seconds since its last hit, and its place.

    `initial` rules are the operator's own, which are never moved.
    """

    rule: RuleId
    packets: int
    before: int
    idle_s: float
    lifted: bool = False
    initial: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """A round's decision: rules to lift and lower with reasons, idle and unused shares."""

    lift: tuple[RuleId, ...]
    lower: tuple[RuleId, ...]
    because: str
    idle_share: float
    never_used_share: float


def prioritise(samples: Sequence[Sample], thresholds: Thresholds) -> Round:
    """One round of Algorithm 1 over all rules of a domain."""
    return _as_printed(samples, thresholds) if thresholds.as_printed else _repair_round(samples, thresholds)


def _as_printed(samples: Sequence[Sample], thresholds: Thresholds) -> Round:
    """Decide a round as the paper prints it, line by line; numbers are its lines."""
    deltas = [0 if sample.initial else sample.packets - sample.before for sample in samples]  # 6-13
    counted = sum(not sample.initial for sample in samples)
    highest, highest_delta = PRINTED_NO_RULE, 0
    regular = []
    for sample, delta in zip(samples, deltas, strict=True):  # 14-26
        if sample.idle_s <= thresholds.interval_s and delta >= thresholds.upper and delta > highest_delta:
            highest, highest_delta = sample.rule, delta
        if delta <= thresholds.lower and sample.lifted:
            regular.append(sample.rule)
    idle = sum(delta == 0 for delta in deltas)
    misused = sum(sample.packets == 0 for sample in samples)
    return Round(
        lift=(highest,),  # 29
        lower=tuple(regular),  # 30
        because=f"largest delta {highest_delta}",
        idle_share=idle / counted if counted else float("nan"),  # 32
        never_used_share=misused / counted if counted else float("nan"),  # 33
    )


def _repair_round(samples: Sequence[Sample], thresholds: Thresholds) -> Round:
    rules = [sample for sample in samples if not sample.initial]
    delta = {sample.rule: _since(sample) for sample in rules}
    lifted = sorted((sample.rule for sample in rules if sample.lifted), key=lambda rule: (delta[rule], rule))
    cooled = [rule for rule in lifted if delta[rule] < thresholds.lower]
    warm = [rule for rule in lifted if delta[rule] >= thresholds.lower]
    over = max(len(warm) - thresholds.most_lifted, 0)
    candidates = [
        sample.rule
        for sample in rules
        if not sample.lifted and sample.idle_s <= thresholds.interval_s and delta[sample.rule] >= thresholds.upper
    ]
    best = max(candidates, key=lambda rule: delta[rule], default=None)
    lift, down, because = _place_rules(best, warm[over:], delta, thresholds)
    return Round(
        lift=lift,
        lower=(*cooled, *warm[:over], *down),
        because=because,
        idle_share=_compute_share(sum(each == 0 for each in delta.values()), len(rules)),
        never_used_share=_compute_share(sum(sample.packets == 0 for sample in rules), len(rules)),
    )


def _place_rules(
    best: RuleId | None, warm: Sequence[RuleId], delta: Mapping[RuleId, int], thresholds: Thresholds
) -> tuple[tuple[RuleId, ...], tuple[RuleId, ...], str]:
    """Choose the rule to lift and the one to lower for it.

    `warm` are lifted rules, least popular first.
    """
    if best is None:
        return (), (), f"no other rule reached {thresholds.upper} packets"
    reached = f"{delta[best]} packets, at least {thresholds.upper}"
    if len(warm) < thresholds.most_lifted:
        return (best,), (), reached
    if not warm:
        return (), (), "no rule may be lifted"
    least = warm[0]
    if delta[least] < delta[best]:
        return (best,), (least,), f"{reached}, more than the {delta[least]} of '{least}'"
    return (), (), f"{len(warm)} rules are lifted, and none of them has fewer packets than '{best}'"


def _since(sample: Sample) -> int:
    """Return the packets since the last round.

    A counter that went backwards was reset to 0.
    """
    return sample.packets - sample.before if sample.packets >= sample.before else sample.packets


def _compute_share(some: int, of: int) -> float:
    return some / of if of else 0.0
