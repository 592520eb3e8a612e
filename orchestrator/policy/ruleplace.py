"""Find a place for a new rule, before the rule that decides its packets now."""

from __future__ import annotations

from orchestrator.policy.model import Acl, Rule, RuleId
from orchestrator.policy.space import boxes_of


def suggest_place(acl: Acl, rule: Rule) -> tuple[int, RuleId | None]:
    """Return a new rule's position, and the rule after it (None: it goes last).

    That is the first rule of its direction that shares a packet with it and has the other action. Rules with the same
    action may stay before it: they change nothing for its packets. Raises KeyError for a group that the list has not.
    """
    boxes = boxes_of(rule, acl.groups)
    for position, other in enumerate(acl.rules):
        if other.direction is not rule.direction or other.action is rule.action:
            continue
        if any(box.overlaps(theirs) for theirs in boxes_of(other, acl.groups) for box in boxes):
            return position, other.id
    return len(acl.rules), None
