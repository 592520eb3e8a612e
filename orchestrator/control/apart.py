"""Where two policies differ: the short way by which most changes are told to be harmless.

What a mix of two policies lets through that neither permits needs changes in both directions, for the same packets. So
most changes, which are of one direction, or of rules that do not meet, are told by the rules that came, went or moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.compile.equivalence.edits import edits_of
from orchestrator.policy.model import Acl, Direction, Policy, Rule, Tenant
from orchestrator.policy.space import Box, boxes_of

_MOST_STEPS = 64
_MOST_PAIRS = 4096


@dataclass(frozen=True, slots=True)
class Touched:
    """Where two policies differ: in which directions and rules; None where these are not told apart."""

    ways: frozenset[Direction]
    boxes: tuple[tuple[Direction, Box], ...] | None


_BOTH_WAYS = frozenset(Direction)
NOTHING = Touched(frozenset(), ())


def could_leak(changes: Sequence[Touched]) -> bool:
    """Whether lists changed in both directions, and perhaps for the same packets. Most changes are told at once."""
    if frozenset[Direction]().union(*(each.ways for each in changes)) != _BOTH_WAYS:
        return False
    boxes = [pair for each in changes for pair in each.boxes or ()]
    leaving, arriving = (
        [box for way, box in boxes if way is wanted] for wanted in (Direction.EGRESS, Direction.INGRESS)
    )
    if any(each.boxes is None for each in changes) or len(leaving) * len(arriving) > _MOST_PAIRS:
        return True
    return any(one.overlaps(other) for one in leaving for other in arriving)


def apart(old: Policy, new: Policy) -> Touched:
    """Where two policies differ."""
    if old is new:
        return NOTHING
    olds = {tenant.id: tenant for tenant in old.tenants}
    if olds.keys() != {tenant.id for tenant in new.tenants} or old.return_traffic is not new.return_traffic:
        return Touched(_BOTH_WAYS, None)
    pairs = ((olds[tenant.id], tenant) for tenant in new.tenants)
    touched = [
        _lists_apart(*pair) for pair in pairs if pair[0].acl is not pair[1].acl or pair[0].prefixes != pair[1].prefixes
    ]
    unclear = any(each.boxes is None for each in touched)
    boxes = None if unclear else tuple(pair for each in touched for pair in each.boxes or ())
    return Touched(frozenset(way for each in touched for way in each.ways), boxes)


def _lists_apart(before: Tenant, after: Tenant) -> Touched:
    """What a list opens or closes lies in the rules that came, went or moved, and in those of changed groups."""
    old, new = before.acl, after.acl
    if before.prefixes != after.prefixes:
        return Touched(_BOTH_WAYS, None)
    ways = {way for way in Direction if old.default(way) is not new.default(way)}
    groups = frozenset(name for name in {**old.groups, **new.groups} if old.groups.get(name) != new.groups.get(name))
    steps = edits_of(old.listed, new.listed, _MOST_STEPS)
    if steps is None or ways or groups:
        ways |= {way for way in Direction if _one_way(old, way) != _one_way(new, way)}
        ways |= {
            rule.direction for rule in new.rules if groups.intersection(rule.source.groups + rule.destination.groups)
        }
        return Touched(frozenset(ways), None)
    changed = [new.listed[step.new] if step.is_insert else old.listed[step.old] for step in steps]
    boxes = tuple((rule.direction, box) for rule in changed for box in boxes_of(rule, new.groups))
    return Touched(frozenset(rule.direction for rule in changed), boxes)


def _one_way(acl: Acl, way: Direction) -> list[Rule]:
    return [rule for rule in acl.rules if rule.direction is way]
