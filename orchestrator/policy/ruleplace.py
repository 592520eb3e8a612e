"""Find a place where a new rule has an effect and undoes no exception.

A new deny goes before the first rule that permits a packet of it. A new permit goes before the first rule that denies
all that it permits, in one IP version at least. Denies before that take out a part of its packets: these are how
exceptions are written, such as a neighbour that is kept out, so they stay above it. Where an exception of one IP
version stands below the deny that closes the other, the permit goes below both: it opens too little, and says so,
rather than too much. Both go to the end where no such rule is there.
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
    """Return the place for a new rule.

    Raises KeyError for a group that the list has not.
    """
    boxes = boxes_of(rule, acl.groups)
    if rule.action is Action.DENY:
        return _place_deny(acl, rule, boxes)
    walls, exceptions, covers = _denies_of(acl, rule, boxes)
    if not walls and not exceptions:
        return SuggestedPlace(len(acl.rules), None)
    is_split = bool(walls and exceptions and exceptions[-1] >= walls[0])
    if walls and not is_split:
        return _before(acl, walls[0], exceptions)
    walled = {their.family for wall in walls[:1] for their in boxes_of(acl.rules[wall], acl.groups)}
    if not _leave_something([box for box in boxes if box.family not in walled], covers):
        return _before(acl, min(*walls[:1], *exceptions), [])
    above = sorted({*walls[:1], *exceptions})
    return _before(acl, walls[1] if len(walls) > 1 else len(acl.rules), above)


def _place_deny(acl: Acl, rule: Rule, boxes: Sequence[Box]) -> SuggestedPlace:
    for position, other in enumerate(acl.rules):
        if other.direction is rule.direction and other.action is Action.PERMIT:
            theirs = boxes_of(other, acl.groups)
            if any(box.overlaps(their) for their in theirs for box in boxes):
                return SuggestedPlace(position, other.id)
    return SuggestedPlace(len(acl.rules), None)


def _denies_of(acl: Acl, rule: Rule, boxes: Sequence[Box]) -> tuple[list[int], list[int], list[Box]]:
    """Find the denies that matter to a permit, and the packets of its exceptions.

    Denies are returned as positions: first the walls, then the exceptions. A wall is the first deny of all that the
    permit opens in an IP version, an exception a deny of a part of an IP version before its wall.
    """
    is_open = list(boxes)
    walls: list[int] = []
    exceptions: list[int] = []
    covers: list[Box] = []
    for position, other in enumerate(acl.rules):
        if other.direction is not rule.direction or other.action is not Action.DENY:
            continue
        theirs = boxes_of(other, acl.groups)
        if not any(box.overlaps(their) for their in theirs for box in is_open):
            continue
        left = {box.family for box in is_open if not any(their.contains(box) for their in theirs)}
        closed = {box.family for box in is_open} - left
        if closed:
            walls.append(position)
            is_open = [box for box in is_open if box.family not in closed]
        if any(box.overlaps(their) for their in theirs for box in is_open):
            exceptions.append(position)
            covers += theirs
        if not is_open:
            break
    return walls, exceptions, covers


def _before(acl: Acl, position: int, above: Sequence[int]) -> SuggestedPlace:
    """Return a place with the exceptions that stand above it."""
    before = acl.rules[position].id if position < len(acl.rules) else None
    return SuggestedPlace(position, before, tuple(acl.rules[each].id for each in above if each < position))


def _leave_something(boxes: Sequence[Box], covers: Sequence[Box]) -> bool:
    return len(covers) <= _MOST_EXCEPTIONS and any(find_uncovered(box, covers) is not None for box in boxes)
