"""Packets that a step from a list to another opens, and those that it closes.

A few changed rules are told by themselves, which is a bound from above; other lists are compared exactly, as long as
they are not too long. Where stateless rules decide beside connections, three views of a list are compared
(`stateless.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from itertools import count, takewhile
from operator import is_

from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.difference import count_parts, find_moved, only_closes
from orchestrator.policy.listed import Listed
from orchestrator.policy.model import Acl, Action, Direction, ReturnTraffic, Rule, RuleId, Tenant
from orchestrator.policy.narrowing import is_laid
from orchestrator.policy.neighbours import nearby
from orchestrator.policy.oracle import return_rules
from orchestrator.policy.policystep import Moves
from orchestrator.policy.rulelist import world
from orchestrator.policy.space import Box, boxes_of
from orchestrator.policy.stateless import view_of_alone, view_of_connections

MOST_PARTS = 4_096
"""So much is compared for one answer, in either direction: rules, each counted once and for its prefixes and ports."""
MOST_KNOWN = 64
"""So many comparisons of lists are remembered from one question to the next."""
MANY_HELD = 8
"""Of more policies than so many, less is found out of each."""
_MOST_STEPS = 64
"""Lists that differ by so many rules are compared by these alone."""


_StepOfLists = tuple[int, int, ReturnTraffic, ReturnTraffic, Direction]
"""The identities of a list before and of a tenant after, with what is returned in either policy."""


class Comparisons:
    """Remembers what steps from a list to a tenant's open and close.

    Many policies share most of their lists, and many questions. A list and a tenant are known by their identity, and
    are kept as long as what was found of them. Not to be shared between threads without a lock.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[_StepOfLists, tuple[Acl, Moves]] = OrderedDict()
        self._parts = 0
        self._are_many = False

    def begin(self, held: int) -> None:
        """Begin an answer about so many held policies.

        Once `MOST_PARTS` were compared for it, a look at the actions has to do.
        """
        self._parts = MOST_PARTS
        self._are_many = held > MANY_HELD
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    def moves(
        self, old: Acl, old_returns: ReturnTraffic, new: Tenant, new_returns: ReturnTraffic, direction: Direction
    ) -> Moves:
        """Return what the step from a list to a tenant's opens and closes."""
        step = id(old), id(new), old_returns, new_returns, direction
        known = self._known.get(step)
        if known is not None:
            self._known.move_to_end(step)
            return known[1]
        mixed = new_returns is ReturnTraffic.TRACKED and (old.has_stateless or new.acl.has_stateless)
        few = None
        if old_returns is new_returns:
            few = (
                _moves_of_held_back(old, new, direction)
                if mixed
                else _moves_of_few(old, new, direction, in_place=self._are_many)
            )
        if few is not None:
            return few
        before, after = nearby(_one_way(old, old_returns, direction), _one_way(new.acl, new_returns, direction))
        moves = (self._compare_mixed if mixed else self._compare_lists)(before, after, new, direction)
        self._known[step] = old, moves
        return moves

    def _compare_mixed(self, before: Acl, after: Acl, tenant: Tenant, direction: Direction) -> Moves:
        """Compare what lists decide about connections, and what their stateless rules decide alone."""
        connections = self._compare_lists(view_of_connections(before), view_of_connections(after), tenant, direction)
        permits, denies = (
            self._compare_lists(view_of_alone(before, action), view_of_alone(after, action), tenant, direction)
            for action in (Action.PERMIT, Action.DENY)
        )
        return Moves(
            tenant,
            connections.opened + permits.opened + denies.closed,
            connections.closed + permits.closed + denies.opened,
        )

    def _compare_lists(self, before: Acl, after: Acl, tenant: Tenant, direction: Direction) -> Moves:
        self._parts -= count_parts(before) + count_parts(after)
        if self._parts >= 0:
            try:
                found = find_moved(before, after, direction, tenant.prefixes)
            except TooLarge:
                pass
            else:
                return Moves(tenant, found.permitted, found.denied)
        anything = everything_of(tenant, direction)
        opened = () if only_closes(before, after, direction) else anything
        closed = () if only_closes(after, before, direction) else anything
        return Moves(tenant, opened, closed)


def _moves_of_few(old: Acl, new: Tenant, direction: Direction, *, in_place: bool) -> Moves | None:
    """Return what a few rules that came or went may open and close.

    This is a bound from above. None where more than a few rules differ.

    A permit that comes opens no more than its packets, one that goes closes no more; a deny the other way around. The
    held-back part of the old list, denies on top of it, opens: so a list follows its own intersection, however long it
    is. Costs what differs. A rule that changed counts as one that went and one that came, which says more than changed:
    it is taken so only if `in_place`.
    """
    if not _agree_beside_rules(old, new.acl):
        return None
    gone, come = _laid_on(old.listed, new.acl.listed) or _find_replaced(old.listed, new.acl.listed) or (None, None)
    if gone is None or come is None or (not in_place and {rule.id for rule in gone} & {rule.id for rule in come}):
        return None
    opened, closed = list[Rule](), list[Rule]()
    for rules, opens, closes in ((come, opened, closed), (gone, closed, opened)):
        for rule in rules:
            (opens if rule.action is Action.PERMIT else closes).append(rule)
    return Moves(new, *(_own_boxes(rules, new, direction) for rules in (opened, closed)))


def _moves_of_held_back(old: Acl, new: Tenant, direction: Direction) -> Moves | None:
    """Return what opens where stateless denies on top of a list go; else None.

    Such a step closes nothing, in any view of the list: so a list follows its own intersection, however long it is.
    """
    found = _laid_by_value(old.listed, new.acl.listed) if _agree_beside_rules(old, new.acl) else None
    if found is None:
        return None
    laid, _ = found
    if not all(rule.stateless and rule.action is Action.DENY for rule in laid):
        return None
    return Moves(new, everything_of(new, direction) if any(each.direction is direction for each in laid) else (), ())


def _agree_beside_rules(one: Acl, other: Acl) -> bool:
    """Return whether two lists have the same groups and defaults."""
    return one.groups == other.groups and all(one.default(way) is other.default(way) for way in Direction)


_Replaced = tuple[list[Rule], list[Rule]]
"""The rules that went, and those that came."""


def _laid_on(old: Listed[Rule], new: Listed[Rule]) -> _Replaced | None:
    """Return the rules laid on top of a list that otherwise stays; else None.

    There may be any number of them.
    """
    above = len(old.pieces) - len(new.pieces)
    if above >= 0 and all(map(is_, old.pieces[above:], new.pieces)):
        return [rule for piece in old.pieces[:above] for rule in piece], []
    return None


def _laid_by_value(old: Listed[Rule], new: Listed[Rule]) -> _Replaced | None:
    """Return the rules laid on top of a list of otherwise equal rules, or None."""
    above = len(old) - len(new)
    return (list(old[:above]), []) if above >= 0 and old[above:] == new[:] else None


def _find_replaced(old: Listed[Rule], new: Listed[Rule]) -> _Replaced | None:
    """Return the laid rules that went, and a few rules that changed; else None.

    None where many changed, or rules change places. A list that was read from the store again has other objects: it is
    compared by value.
    """
    laid = list(takewhile(lambda piece: all(map(is_laid, piece)), old.pieces))
    gone, come = [rule for piece in laid for rule in piece], list[Rule]()
    most = len(gone) + _MOST_STEPS
    for part in Listed(old.pieces[len(laid) :]).apart(new):
        mine, theirs = set(map(id, part.come)), set(map(id, part.gone))
        gone += [rule for rule in part.gone if id(rule) not in mine]
        come += [rule for rule in part.come if id(rule) not in theirs]
        stayed = [id(rule) for rule in part.gone if id(rule) in mine]
        if len(gone) + len(come) > most or stayed != [id(rule) for rule in part.come if id(rule) in theirs]:
            return _laid_by_value(old, new)
    return gone, come


def _own_boxes(rules: Iterable[Rule], tenant: Tenant, direction: Direction) -> tuple[Box, ...]:
    """Return the packets of rules of a direction, where they are a tenant's."""
    mine = everything_of(tenant, direction)
    boxes = (box for rule in rules if rule.direction is direction for box in boxes_of(rule, tenant.acl.groups))
    both = (box.intersect(world) for box in boxes for world in mine if box.family is world.family)
    return tuple(box for box in both if box is not None)


def everything_of(tenant: Tenant, direction: Direction) -> tuple[Box, ...]:
    """All packets of one direction of a tenant's list."""
    worlds = (world(family, direction, tenant.prefixes) for family in Family) if tenant.prefixes else ()
    return tuple(box for box in worlds if box is not None)


def _one_way(acl: Acl, returns: ReturnTraffic, direction: Direction) -> Acl:
    """Return one direction of a list, with the domain's return traffic as a rule."""
    rules = [rule for rule in acl.rules if rule.direction is direction]
    taken = {rule.id for rule in rules}
    free = (name for name in (RuleId(f"return-{place}") for place in count()) if name not in taken)
    rules += [replace(rule, id=next(free)) for rule in return_rules(returns) if rule.direction is direction]
    return replace(acl, rules=tuple(rules))
