"""The cost of a plan: the most a packet meets, and the amount loaded."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.compile.nftables.plan import Cut, Plan, Rules, Sequence, Table


@dataclass(frozen=True, slots=True)
class Size:
    """A plan's size.

    `lookups` and `rules`: the most that a packet without a match meets.
    """

    lookups: int
    rules: int


LOOKUP_NS, RULE_NS = 100, 10
"""Roughly what a look-up and a rule cost a packet: what makes one way dearer than another."""


def dearest_way(plan: Plan) -> Size:
    """The way through a plan on which a packet meets most."""
    return _Ways().dearest(plan)


class _Ways:
    """Remembers parts that several ways lead to."""

    def __init__(self) -> None:
        self._known: dict[int, Size] = {}

    def dearest(self, plan: Plan) -> Size:
        if id(plan) not in self._known:
            self._known[id(plan)] = self._of(plan)
        return self._known[id(plan)]

    def _of(self, plan: Plan) -> Size:
        if isinstance(plan, Rules):
            return Size(0, len(plan.rows))
        if isinstance(plan, Table):
            return Size(1, 0)
        if isinstance(plan, Cut):
            ways = [self.dearest(span.then) for span in plan.spans]
            worst = max(ways, key=lambda each: each.lookups * LOOKUP_NS + each.rules * RULE_NS)
            return Size(worst.lookups + 1, worst.rules)
        assert isinstance(plan, Sequence)
        parts = [self.dearest(part) for part in plan.parts]
        return Size(sum(each.lookups for each in parts), sum(each.rules for each in parts))
