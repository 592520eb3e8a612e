"""Lift and lower rules by a domain's counts, in periodic rounds.

rates ──▶ choose (`placement/choice.py`) ──▶ placements, in one transaction ──▶ compiled, proven, published as any

What is lifted is a part of what a program is made from, so a round that dies half way leaves either nothing or a commit
that the next start compiles: there is no state in between. Of several processes that have their round at a time one
gets to write, for it writes only if the round before is still the last. Looked at are counts, lists and what was
decided before; no list is changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import structlog

from orchestrator.compile.lifting.lifts import Lift
from orchestrator.compile.lifting.prospects import Prospector
from orchestrator.control.rounds import Rounds, counted_since, left_s
from orchestrator.control.units import Units
from orchestrator.placement.choice import Algorithm, Choice, Settings, Subject, choose
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Policy, RuleId
from orchestrator.store.placements import Placement, PlacementSettings, Stands
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.unit import Unit

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Round:
    """The inputs of a domain's round, read in one transaction."""

    state: PlacementSettings
    policy: Policy
    subjects: tuple[Subject, ...]
    elapsed_s: float

    @classmethod
    def of(cls, unit: Unit, domain: str) -> Round:
        """Read what a domain's round of choosing needs. Raises NotFound."""
        state, policy = unit.placements.settings(domain), unit.domains.policy(domain).policy
        counts = unit.hits.rates(domain, since=counted_since(state.settings.interval_s, state.since, unit.now))
        packets = dict(zip(counts.number.tolist(), counts.packets.tolist(), strict=True))
        idle_s = dict(zip(counts.number.tolist(), counts.idle_s.tolist(), strict=True))
        known = {each.rule: each for each in unit.placements.list(domain)}
        found = tuple(_list_subjects(policy, packets, idle_s, known))
        return cls(state, policy, found, max((counts.until - counts.since).total_seconds(), 0.0))

    def choice(self, settings: Settings | None = None) -> Choice:
        """Return the decision, by the domain's settings or by others to try."""
        return choose(self.subjects, settings or self.state.settings, self.elapsed_s, Prospector(self.policy).of)


def _list_subjects(
    policy: Policy, packets: Mapping[int, int], idle_s: Mapping[int, float], known: Mapping[LiftedRule, Placement]
) -> Iterator[Subject]:
    for tenant in policy.tenants:
        numbers = tenant.rule_numbers
        for rule in tenant.acl.rules:
            number = numbers[rule.id]
            name = LiftedRule(tenant.id, RuleId(rule.id))
            placement = known.get(name)
            yield Subject(
                name,
                packets.get(number, 0),
                idle_s.get(number, float("inf")),
                lifted=placement is not None and placement.chosen is not None,
                wish=placement.wish if placement is not None else None,
            )


class Promoter(Rounds):
    """Has the rounds of all domains when they are due."""

    def __init__(self, *, ticks: Callable[[], float] = time.monotonic) -> None:
        super().__init__(_left, had_round, ticks=ticks)


def _left(unit: Unit) -> list[tuple[str, float]]:
    """The domains that choose, and the seconds that are left of their intervals."""
    return [
        (domain, left_s(state.settings.interval_s, state.since, unit.now))
        for domain, state in unit.placements.every_domain()
        if state.settings.algorithm is not Algorithm.OFF or unit.placements.has_chosen(domain)
    ]


def had_round(units: Units, domain: str) -> bool:
    """Have a domain's round, unless another process has had it."""
    begun = units.read(lambda unit: Round.of(unit, domain))
    choice = begun.choice()
    done = units.write(lambda unit: unit.placements.decide(domain, choice, begun.state.since), domain=domain)
    for verdicts, event in ((choice.lift, "to be lifted"), (choice.lower, "to be lowered")):
        for verdict in verdicts if done else ():
            log.info(event, domain=domain, rule=str(verdict.rule), because=verdict.because)
    return done


def settle_lifts(unit: Unit, domain: str, snapshot: PolicySnapshot, lifts: tuple[Lift, ...]) -> PolicySnapshot:
    """Store which rules are lifted in a program; return the snapshot after that."""
    outcome = [Stands(lift.rule, lift.form is not None, lift.because) for lift in lifts]
    return unit.placements.settle(domain, snapshot, outcome)
