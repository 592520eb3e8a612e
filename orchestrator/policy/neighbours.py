"""Which rules of two lists have a say in what changes between them.

A packet fares otherwise only if a rule that is in one list alone, or stands elsewhere, matches it; and who decides that
packet, in either list, is one of the rules that match it. So a rule that can share no packet with a changed one may be
left out of both lists, and they differ as before. Whether two rules may share a packet is told from their protocols and
prefixes alone, which errs to the safe side.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.policy.addresses import Addresses
from orchestrator.policy.alignment import common
from orchestrator.policy.model import Acl, Rule, trusted_acl

MOST_CHANGED = 16
"""Of more changed rules than these every other rule is asked about no more: looking at all costs less."""


@dataclass(frozen=True, slots=True)
class Near:
    """Two lists without rules far from a change, and the rules that differ.

    These are in one list alone, or stand elsewhere.
    """

    before: Acl
    after: Acl
    changed: tuple[Rule, ...]


def nearby(before: Acl, after: Acl) -> tuple[Acl, Acl]:
    """Return both lists without rules far from any change.

    They are unchanged where that is not worth finding out.
    """
    found = near_changes(before, after)
    return (before, after) if found is None else (found.before, found.after)


def near_changes(before: Acl, after: Acl) -> Near | None:
    """Return the rules near changed ones; None if that is not worth computing.

    Also None where groups or defaults changed.

    All rules of either list that match a packet which a changed rule matches are near it, in both directions.
    """
    if _take_besides_rules(before) != _take_besides_rules(after):
        return None
    old, new = before.rules, after.rules
    kept = common(old, new)
    if len(old) + len(new) - 2 * len(kept) > MOST_CHANGED:
        return None
    keeps_old, keeps_new = {one for one, _ in kept}, {other for _, other in kept}
    gone = [place for place in range(len(old)) if place not in keeps_old]
    come = [place for place in range(len(new)) if place not in keeps_new]
    changed = (*(old[place] for place in gone), *(new[place] for place in come))
    near = [pair for pair in kept if any(_may_meet(old[pair[0]], each) for each in changed)]
    return Near(
        _select_rules(before, sorted([*gone, *(one for one, _ in near)])),
        _select_rules(after, sorted([*come, *(other for _, other in near)])),
        changed,
    )


def _take_besides_rules(acl: Acl) -> tuple[object, ...]:
    return acl.groups, acl.ingress_default, acl.egress_default


def _select_rules(acl: Acl, places: list[int]) -> Acl:
    rules = tuple(acl.rules[place] for place in places)
    return trusted_acl(rules, acl.groups, acl.ingress_default, acl.egress_default)


def _may_meet(rule: Rule, other: Rule) -> bool:
    """Return whether two rules of a list may share a packet, by prefixes and protocols."""
    return (
        (rule.protocol is None or other.protocol is None or rule.protocol == other.protocol)
        and _sides_may_meet(rule.destination, other.destination)
        and _sides_may_meet(rule.source, other.source)
    )


def _sides_may_meet(one: Addresses, other: Addresses) -> bool:
    if one.is_any or other.is_any or one.groups or other.groups:
        return True
    return any(mine.overlaps(theirs) for mine in one.prefixes for theirs in other.prefixes)
