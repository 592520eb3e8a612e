"""Compare two policies quickly, to show that most changes are harmless.

A mix of two policies can let something through that neither permits only after changes in both directions, for the same
packets. So most changes, which are of one direction, or of rules that do not meet, are told by the rules that came,
went or moved.

Where connections are tracked, lists of one direction may leak together, for each end may be asked about the packet that
this one answers. There changes are harmless that only open, or only close. Of a list with stateless rules no change is
taken to be harmless, for a rule that comes may open to some packets what it closes to others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from orchestrator.compile.equivalence.shortestedit import edits_of
from orchestrator.policy.listed import find_replaced
from orchestrator.policy.model import Acl, Action, AddressGroup, Direction, Policy, ReturnTraffic, Rule, Tenant
from orchestrator.policy.space import Box, boxes_of
from orchestrator.policy.stateless import is_mixed

_MOST_STEPS = 64
_MOST_PAIRS = 4096


@dataclass(frozen=True)
class Touched:
    """A difference of two policies: directions, and rules with their lists' groups.

    Rules are None where they are not told apart.
    `turns`, where connections are tracked: to what the change turns packets.
    """

    ways: frozenset[Direction]
    rules: tuple[tuple[Rule, Mapping[str, AddressGroup]], ...] | None
    turns: frozenset[Action] | None = None

    @cached_property
    def boxes(self) -> tuple[tuple[Direction, Box], ...]:
        """Return the packets of these rules, computed at first use."""
        return tuple((rule.direction, box) for rule, groups in self.rules or () for box in boxes_of(rule, groups))


BOTH_WAYS = frozenset(Direction)
_BOTH_TURNS = frozenset(Action)
NOTHING = Touched(frozenset(), ())


def could_leak(changes: Sequence[Touched]) -> bool:
    """Return whether lists changed in both directions, perhaps for the same packets."""
    if frozenset[Direction]().union(*(each.ways for each in changes)) != BOTH_WAYS:
        return False
    turns = [each.turns for each in changes if each is not NOTHING]
    if any(each is not None for each in turns):
        return None in turns or frozenset[Action]().union(*(each or () for each in turns)) == _BOTH_TURNS
    if any(each.rules is None for each in changes):
        return True
    leaving, arriving = list[Box](), list[Box]()
    for each in reversed(changes):  # of many one way, the last one may be the only one that goes the other
        for way, box in each.boxes:
            (leaving if way is Direction.EGRESS else arriving).append(box)
        if len(leaving) * len(arriving) > _MOST_PAIRS:
            return True
    return any(one.overlaps(other) for one in leaving for other in arriving)


def compare_policies(old: Policy, new: Policy) -> Touched:
    """Return where two policies differ."""
    if old is new:
        return NOTHING
    gone, come = find_replaced(old.tenants, new.tenants)
    olds = {tenant.id: tenant for tenant in gone}
    if olds.keys() != {tenant.id for tenant in come} or old.return_traffic is not new.return_traffic:
        is_tracked = ReturnTraffic.TRACKED in (old.return_traffic, new.return_traffic)
        return Touched(BOTH_WAYS, None, _BOTH_TURNS if is_tracked else None)
    if new.return_traffic is ReturnTraffic.TRACKED:
        if old.operator != new.operator and (is_mixed(old) or is_mixed(new)):
            return Touched(BOTH_WAYS, None, _BOTH_TURNS)
        return _compare_tracked(gone, come)
    pairs = [(olds[tenant.id], tenant) for tenant in come]
    others = [(was, now) for was, now in pairs if was.acl is not now.acl or was.prefixes != now.prefixes]
    touched = [_compare_lists(was, now) for was, now in others]
    if len(touched) == 1:
        return touched[0]
    unclear = any(each.rules is None for each in touched)
    rules = None if unclear else tuple(pair for each in touched for pair in each.rules or ())
    return Touched(frozenset(way for each in touched for way in each.ways), rules)


def _compare_tracked(gone: Sequence[Tenant], come: Sequence[Tenant]) -> Touched:
    """Compare tenants of the same names where connections are tracked."""
    news, turns = {tenant.id: tenant for tenant in come}, set[Action]()
    for old in gone:
        new = news[old.id]
        if old.acl is new.acl and old.prefixes == new.prefixes:
            continue
        touched = _compare_lists(old, new)
        if touched.rules is None or old.acl.has_stateless or new.acl.has_stateless:
            return Touched(BOTH_WAYS, None, _BOTH_TURNS)
        turns.update(_turns(old.acl, new.acl))
    return Touched(BOTH_WAYS, (), frozenset(turns)) if turns else NOTHING


def _turns(old: Acl, new: Acl) -> Iterator[Action]:
    """Yield the actions to which added and removed rules turn packets.

    A rule that goes turns them to the action that it did not have.
    """
    for step in edits_of(old.listed, new.listed, _MOST_STEPS) or ():
        if step.is_insert:
            yield new.listed[step.new].action
        else:
            yield _OTHER[old.listed[step.old].action]


_OTHER = {Action.PERMIT: Action.DENY, Action.DENY: Action.PERMIT}


def _compare_lists(before: Tenant, after: Tenant) -> Touched:
    """Compare two lists by the rules that came, went or moved, and changed groups."""
    old, new = before.acl, after.acl
    if before.prefixes != after.prefixes:
        return Touched(BOTH_WAYS, None)
    ways = {way for way in BOTH_WAYS if old.default(way) is not new.default(way)}
    groups = frozenset(name for name in {**old.groups, **new.groups} if old.groups.get(name) != new.groups.get(name))
    steps = edits_of(old.listed, new.listed, _MOST_STEPS)
    if steps is None or ways or groups:
        ways |= _ways_apart(_Same(old), _Same(new))
        if groups:
            ways |= {
                each.direction
                for each in new.rules
                if groups.intersection((*each.source.groups, *each.destination.groups))
            }
        return Touched(frozenset(ways), None)
    changed = [new.listed[step.new] if step.is_insert else old.listed[step.old] for step in steps]
    return Touched(frozenset([rule.direction for rule in changed]), tuple([(rule, new.groups) for rule in changed]))


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A list that equals itself alone."""

    acl: Acl

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.acl is other.acl

    def __hash__(self) -> int:
        return id(self.acl)


@lru_cache(maxsize=4)
def _ways_apart(old: _Same, new: _Same) -> frozenset[Direction]:
    """Return the directions in which two lists have other rules.

    Remembered, for while a long list is held back every write of anybody asks.
    """
    return frozenset(way for way in BOTH_WAYS if _select_rules(old.acl, way) != _select_rules(new.acl, way))


def _select_rules(acl: Acl, way: Direction) -> list[Rule]:
    return [rule for rule in acl.rules if rule.direction is way]
