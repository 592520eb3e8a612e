"""Find a place for a new rule where it has an effect and undoes no exception.

A new deny goes before the first rule that permits a packet of it. A new permit goes before the first rule that denies
all that it permits, in one IP version at least. Denies before that take out a part of its packets: these are how
exceptions are written, such as a neighbour that is kept out, so they stay above it. Both go to the end where no such
rule is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.policy.model import Acl, Action, Rule, RuleId
from orchestrator.policy.space import Box, boxes_of, find_uncovered

_MOST_EXCEPTIONS = 200
"""With more of them it is not searched whether they leave a packet to the rule."""


@dataclass(frozen=True, slots=True)
class SuggestedPlace:
    """A position for a new rule.

    `before` is the rule that decides its packets otherwise now, None at the end. `exceptions` stay above it, and deny a
    part of its packets.
    """

    position: int
    before: RuleId | None
    exceptions: tuple[RuleId, ...] = ()


def suggest_place(acl: Acl, rule: Rule) -> SuggestedPlace:
    """Return the place for a new rule. Raises KeyError for a group that the list has not."""
    boxes = boxes_of(rule, acl.groups)
    exceptions: list[tuple[int, RuleId]] = []
    covers: list[Box] = []
    for position, other in enumerate(acl.rules):
        if other.direction is not rule.direction or other.action is rule.action:
            continue
        theirs = boxes_of(other, acl.groups)
        if not any(box.overlaps(their) for their in theirs for box in boxes):
            continue
        if rule.action is Action.DENY or any(their.contains(box) for their in theirs for box in boxes):
            return SuggestedPlace(position, other.id, tuple(name for _, name in exceptions))
        exceptions.append((position, other.id))
        covers += theirs
    if exceptions and not _leave_something(boxes, covers):
        return SuggestedPlace(*exceptions[0])
    return SuggestedPlace(len(acl.rules), None, tuple(name for _, name in exceptions))


def _leave_something(boxes: Sequence[Box], covers: Sequence[Box]) -> bool:
    return len(covers) <= _MOST_EXCEPTIONS and any(find_uncovered(box, covers) is not None for box in boxes)
