"""The packets that the newest step of a policy may decide otherwise.

    published last ── step ──▶ target      `changed`   tenants whose lists or prefixes differ
                                           `far`       addresses at the other end of what these open and close

A packet between two tenants is decided by their two lists. Where the step changed neither list for it, every mix of the
target with what a host may hold decides it as the mix with the program that was published last, which hosts have
already. So the step lets nothing through there. However many lists differ from what a host may hold, only those are
compared whose tenants changed, or have addresses of changed packets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import Direction, Tenant, TenantId, spans_of
from orchestrator.policy.space import Box
from orchestrator.policy.spans import Span, Spans, union


@dataclass(frozen=True, slots=True)
class Moves:
    """Packets that a change opens and closes in one direction of a tenant's list.

    All packets of the direction, where that is not known.
    """

    tenant: Tenant
    opened: tuple[Box, ...]
    closed: tuple[Box, ...]

    def far(self, direction: Direction) -> Iterator[tuple[Family, Spans]]:
        """Yield the addresses that packets of this direction go to or come from."""
        for box in (*self.opened, *self.closed):
            yield box.family, box.destination if direction is Direction.EGRESS else box.source

    def near(self, direction: Direction) -> Iterator[tuple[Family, Spans]]:
        """Yield the tenant's own addresses of these packets."""
        for box in (*self.opened, *self.closed):
            yield box.family, box.source if direction is Direction.EGRESS else box.destination


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """Tenants that a step changed, and the far addresses of what it opens and closes."""

    changed: Set[TenantId]
    far: Mapping[Family, Spans]

    @classmethod
    def of(cls, moves: Iterable[tuple[Direction, Moves]]) -> PolicyStep:
        """Return a step of what it opens and closes."""
        changed, far = set[TenantId](), {family: list[Span]() for family in Family}
        for direction, each in moves:
            changed.add(each.tenant.id)
            for family, spans in each.far(direction):
                far[family] += spans
        return cls(changed, {family: union(spans) for family, spans in far.items()})

    def concerns(self, tenant: Tenant) -> bool:
        """Return whether a tenant changed, or may send or get packets that are decided otherwise."""
        return tenant.id in self.changed or any(
            self.reaches(family, spans_of(tenant.prefixes, family)) for family in Family
        )

    def reaches(self, family: Family, spans: Spans) -> bool:
        """Return whether any of these addresses is a far one."""
        far = self.far[family]
        for span in spans:
            place = bisect_right(far, span.high, key=lambda each: each.low)
            if place and far[place - 1].high >= span.low:
                return True
        return False


def pair_lists(
    one: Sequence[Moves], other: Sequence[Moves], ways: Sequence[Direction], step: PolicyStep | None
) -> Iterator[tuple[Sequence[Moves], Sequence[Moves]]]:
    """Yield the pairs to compare, each of the first with each of the second.

    `ways` are the directions of the first and of the second. With a step, those are pairs of a changed tenant with one
    that its changed packets reach.
    """
    if step is None:
        yield one, other
        return
    (ones, one_reached), (others, other_reached) = (
        (
            {id(each) for each in moves if each.tenant.id in step.changed},
            {id(each) for each in moves if any(step.reaches(*addresses) for addresses in each.near(way))},
        )
        for moves, way in zip((one, other), ways, strict=True)
    )

    def choose_moves(moves: Sequence[Moves], places: Set[int]) -> Sequence[Moves]:
        return [each for each in moves if id(each) in places]

    yield choose_moves(one, ones), choose_moves(other, other_reached)
    yield choose_moves(one, one_reached - ones), choose_moves(other, others)
    yield choose_moves(one, one_reached & ones), choose_moves(other, others - other_reached)
