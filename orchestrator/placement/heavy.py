"""Choose the busiest rules to bypass firewall servers, as many as the edge holds.

Every so often the packets that each rule has decided since the last time are looked at. A rule is worth the packets of
one entry, for entries are what there is little of; so rules are taken in the order of packets an entry until the budget
is full. One that stands already counts for more (`hysteresis`), so that rules that are about as good as each other do
not take turns; and who has too few packets is not worth an entry at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestrator.errors import BadInput
from orchestrator.placement.lifting import LiftedRule


@dataclass(frozen=True, slots=True)
class HeavySettings:
    """How heavy hitters are chosen. Raises BadInput with the field's name.

    Every `interval_s`; a rule needs `least_packets` in that time. `hysteresis`: by how large a part one must be better
    to take another's place. An `interval_s` of 0 chooses only when somebody asks for it.
    """

    interval_s: float = 300.0
    least_packets: int = 1000
    hysteresis: float = 0.25

    def __post_init__(self) -> None:
        if self.interval_s and not 1.0 <= self.interval_s <= 86_400.0:
            raise BadInput(f"{self.interval_s} s is not between a second and a day, nor 0", place="interval_s")
        if self.least_packets < 1:
            raise BadInput("a rule needs at least one packet", place="least_packets")
        if not 0.0 <= self.hysteresis <= 10.0:
            raise BadInput(f"{self.hysteresis} is not between 0 and 10", place="hysteresis")


@dataclass(frozen=True, slots=True)
class Popular:
    """A candidate heavy hitter: packets since the last round, and whether it is one now."""

    rule: LiftedRule
    packets: int
    stands: bool = False


@dataclass(frozen=True, slots=True)
class HeavyChoice:
    """A rule chosen as a heavy hitter, its packets, and the reason."""

    rule: LiftedRule
    packets: int
    because: str


def heavy_hitters(
    found: Iterable[Popular], settings: HeavySettings, most_entries: int, entries: Callable[[LiftedRule], int | None]
) -> tuple[HeavyChoice, ...]:
    """The heavy hitters of the next round, by packets an entry.

    `entries` says how many entries a rule takes, and None for one that cannot be moved; it is asked of few rules: the
    most popular first, until the budget cannot hold any other that it could.
    """
    bonus = 1.0 + settings.hysteresis
    popular = [each for each in found if each.packets >= settings.least_packets]
    worth = {each: each.packets * (bonus if each.stands else 1.0) for each in popular}
    asked = sorted(popular, key=lambda each: (-worth[each], str(each.rule)))[: max(1, most_entries) * _SHORTLIST]
    sized = [(each, taken) for each in asked if (taken := entries(each.rule)) is not None and 0 < taken <= most_entries]
    sized.sort(key=lambda pair: (-worth[pair[0]] / pair[1], str(pair[0].rule)))
    chosen: list[HeavyChoice] = []
    left = most_entries
    for each, taken in sized:
        if taken <= left:
            left -= taken
            because = f"{_spell_count(each.packets, 'packet', 'packets')} on {_spell_count(taken, 'entry', 'entries')}"
            chosen.append(HeavyChoice(each.rule, each.packets, because))
    return tuple(sorted(chosen, key=lambda choice: str(choice.rule)))


def _spell_count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


_SHORTLIST = 4
"""Of each entry, so many rules are looked at in detail."""
