"""Heavy hitters chosen from measured hits: every so often, and when somebody asks for it.

rates ──▶ choose (`placement/heavy.py`) ──▶ pop_heavy, in one transaction ──▶ compiled, proven, published as any

What is looked at are the hosts' counts, for every packet that a rule decides is counted there, whichever way it took
through the PoP. A round that dies half way leaves nothing, and of several processes one has it: whoever reads that the
round before is still the last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from orchestrator.compile.lifting.edgeheavy import entries_in
from orchestrator.control.rounds import Rounds, counted_since, left_s
from orchestrator.control.units import Units
from orchestrator.placement.heavy import HeavyChoice, Popular, heavy_hitters
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Action, Direction, Policy, RuleId
from orchestrator.store.pops.poprecords import Pop
from orchestrator.store.unit import Unit

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class HeavyRound:
    """The inputs of a PoP's round, read in one transaction."""

    pop: Pop
    policy: Policy
    popular: tuple[Popular, ...]

    @classmethod
    def of(cls, unit: Unit, name: str) -> HeavyRound:
        """Read what a PoP's round of choosing needs. Raises NotFound."""
        pop = unit.pops.get(name)
        policy = unit.domains.policy(pop.domain).policy
        since = counted_since(pop.settings.heavy.interval_s, pop.chosen, unit.now)
        counts = unit.hits.rates(pop.domain, since=since)
        packets = dict(zip(counts.number.tolist(), counts.packets.tolist(), strict=True))
        standing = {each.rule for each in pop.heavy}
        found = [
            Popular(name, packets.get(tenant.rule_numbers[rule.id], 0), name in standing)
            for tenant in policy.tenants
            for rule in tenant.acl.rules
            if rule.action is Action.PERMIT and rule.direction is Direction.INGRESS
            for name in (LiftedRule(tenant.id, RuleId(rule.id)),)
        ]
        return cls(pop, policy, tuple(found))

    def choice(self) -> tuple[HeavyChoice, ...]:
        """The heavy hitters that the round chooses."""
        settings = self.pop.settings
        return heavy_hitters(self.popular, settings.heavy, settings.edge.most_heavy, entries_in(self.policy))


class HeavyChooser(Rounds):
    """Has the rounds of all PoPs when they are due."""

    def __init__(self, *, ticks: Callable[[], float] = time.monotonic) -> None:
        super().__init__(_left, choose, ticks=ticks)


def _left(unit: Unit) -> list[tuple[str, float]]:
    """The PoPs that choose by themselves, and the seconds that are left of their intervals."""
    return [
        (name, left_s(interval_s, chosen, unit.now)) for name, interval_s, chosen in unit.pops.intervals() if interval_s
    ]


def choose(units: Units, name: str) -> tuple[HeavyChoice, ...] | None:
    """Have a PoP's round; None where another process has had it meanwhile. Raises NotFound."""
    begun = units.read(lambda unit: HeavyRound.of(unit, name))
    chosen = begun.choice()

    def write_choice(unit: Unit) -> bool:
        if unit.pops.get(name).chosen != begun.pop.chosen:
            return False
        unit.pops.choose(name, chosen)
        return True

    if not units.write(write_choice, domain=begun.pop.domain):
        return None
    log.info("heavy hitters", pop=name, rules=[str(each.rule) for each in chosen])
    return chosen
