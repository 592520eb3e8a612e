"""Intersection first: packets to hold back while only some enforcement points follow a change.

A packet from one tenant to another passes two points: its sender's switch asks the egress list, its receiver's switch
the ingress list. Each switch changes at once, but not both at the same moment. Of a packet, each list says yes or no
before and after; only where the two lists change in opposite directions can a mix of old and new let through what
neither policy permits:

        egress   ingress                            egress   ingress
    old    1        0      old egress, new ingress     0        1      new egress, old ingress
    new    0        1      = 1 1: a leak               1        0      = 1 1: a leak

For these packets the *intersection* is published first: the new policy, with what one list opens held back (0 0) by
deny rules on top of it. Old and intersection mixed let through only what the old or the new policy permits, and so do
intersection and new. When every point has read back the intersection, the new policy follows.

Holding back more is always safe: where both lists say no at one of the two points in the mix, nothing passes. So where
a difference is too large to be listed, everything between the two tenants is held back; and a box that no rule says
exactly (some of its fragments, many protocols) is held back with a little around it. All other writers wait while this
is found out, so the work that lists can ask for has an end: `MOST_PARTS` parts of rules are compared for all policies
that may be held, and lists beyond are taken to open and to close anything, unless a look at their actions says that
they cannot.

Operator rules need none of this: they are asked at both points, and where one speaks, before or after, both points
change in the same direction.

Where connections are tracked, either point may be asked about the packet or, if it belongs to a connection that the
other end opened, about the packet that it answers. So what one egress list opens for a packet another egress list may
close for its answer: pairs of lists of one direction are looked at as well, one of the two with its ends swapped.
While a domain goes over to tracking, or from it, one end might let in what answers a packet that the other end has
refused. So replies are held until all points follow; then what passes an end that tracks, its list permits by itself.

Where stateless rules decide beside connections, a packet and its answer may be decided in different ways, and pairs
tell too little. There a step that opens something and closes something first closes: all that it opens is held back, by
stateless denies. Where it changes the operator's rules or the setting, too, all packets are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from orchestrator.policy.addresses import Prefix
from orchestrator.policy.difference import count_spans
from orchestrator.policy.fields import WORD
from orchestrator.policy.laid import Laid
from orchestrator.policy.listed import find_replaced
from orchestrator.policy.listmoves import Comparisons, everything_of
from orchestrator.policy.model import Direction, Policy, ReturnTraffic, Rule, Tenant, TenantId
from orchestrator.policy.narrowing import Withheld
from orchestrator.policy.oracle import return_rules
from orchestrator.policy.policystep import Moves, PolicyStep, pair_lists
from orchestrator.policy.space import Box, full_set
from orchestrator.policy.stateless import is_mixed

MOST_SPANS = 500_000
"""Spans that are compared to see what two tenants open and close for each other; beyond, everything between the two is
held back."""

_Place = tuple[TenantId, Direction, tuple[tuple[TenantId, tuple[Prefix, ...]], ...]]
"""Where packets are held back: in whose list, in which direction, and between whom, with their prefixes."""

_Opposed = tuple[Moves, Moves, tuple[Tenant, Tenant], Direction]
"""What opens, what closes, the sender and the receiver, and in which of the opening tenant's lists to deny."""


def find_step(published: Policy, target: Policy, known: Comparisons) -> PolicyStep:
    """Return what `target` may decide otherwise than the policy that was published last.

    Both let replies in alike.
    """
    known.begin(1)
    return PolicyStep.of((way, moves) for way in Direction for moves in _moves(published, target, way, known))


def withheld(
    held: Iterable[Policy], target: Policy, known: Comparisons | None = None, step: PolicyStep | None = None
) -> Withheld:
    """Compute the packets to hold back before `target` may follow.

    `held` are the policies that enforcement points may hold, `known` is what other questions have found. With `step`,
    the one from the policy that was published last, only what that may decide otherwise.
    """
    found: dict[_Place, Laid] = {}
    known = known or Comparisons()
    held = tuple(held)
    known.begin(len(held))
    for policy in held:
        if _is_mixed_step(policy, target):
            if _changes_beside_lists(policy, target):
                return _hold_everything(target)
            for moves, direction in _all_opening(policy, target, known):
                whole = Laid(direction, everything_of(moves.tenant, direction), is_alone=True)
                laid = found.setdefault(_find_place(moves.tenant, direction, moves.tenant), whole)
                laid.add(moves.opened if _count_spans(moves.opened) <= MOST_SPANS else None)
            continue
        for opening, closing, ends, direction in _all_opposed(policy, target, known, step):
            laid = found.setdefault(_find_place(opening.tenant, direction, *ends), Laid(direction, _between(*ends)))
            laid.add(_meeting(opening.opened, closing.closed))
    by_tenant: dict[TenantId, dict[Rule, None]] = {}
    for place in sorted(found, key=lambda each: (each[0], each[1].value)):
        by_tenant.setdefault(place[0], {}).update(dict.fromkeys(found[place].rules()))
    laid_rules = MappingProxyType({tenant: tuple(rules) for tenant, rules in by_tenant.items() if rules})
    return Withheld(laid_rules, any(_answers_differently(policy, target) for policy in held))


def _find_place(opening: Tenant, direction: Direction, *ends: Tenant) -> _Place:
    return opening.id, direction, tuple((each.id, each.prefixes) for each in ends)


def _is_mixed_step(held: Policy, target: Policy) -> bool:
    """Return whether stateless rules decide beside connections in what changes between two policies."""
    if ReturnTraffic.TRACKED not in (held.return_traffic, target.return_traffic):
        return False
    if _changes_beside_lists(held, target):
        return is_mixed(held) or is_mixed(target)
    changed = find_replaced(held.tenants, target.tenants)
    return any(tenant.acl.has_stateless for tenants in changed for tenant in tenants)


def _changes_beside_lists(held: Policy, target: Policy) -> bool:
    """Return whether the operator's rules differ, or the way in which replies are known."""
    settings = [(each.return_traffic, each.holds_replies) for each in (held, target)]
    return settings[0] != settings[1] or held.operator != target.operator


def _hold_everything(target: Policy) -> Withheld:
    """Hold back all packets of all tenants, but for those of which the operator decides."""
    laid = {
        tenant.id: tuple(
            rule for way in Direction for rule in Laid(way, everything_of(tenant, way), is_alone=True).rules_of_all()
        )
        for tenant in target.tenants
    }
    return Withheld(MappingProxyType({tenant: rules for tenant, rules in laid.items() if rules}))


def _all_opening(policy: Policy, target: Policy, known: Comparisons) -> list[tuple[Moves, Direction]]:
    """Return what a step opens in each list; nothing where it closes nothing."""
    moves = [(each, way) for way in Direction for each in _moves(policy, target, way, known)]
    if not any(each.closed for each, _ in moves):
        return []
    return [(each, way) for each, way in moves if each.opened]


def _answers_differently(held: Policy, target: Policy) -> bool:
    """Return whether only one of two policies tracks connections for replies.

    The other lets replies in by their header fields.
    """
    were_tracked, are_tracked = (each.return_traffic is ReturnTraffic.TRACKED for each in (held, target))
    return were_tracked is not are_tracked and not held.holds_replies


def _all_opposed(policy: Policy, target: Policy, known: Comparisons, step: PolicyStep | None) -> Iterator[_Opposed]:
    """Pair what opens and what closes on the step from a policy to another.

    Where that stops tracking connections, the intersection has lists alone, and all that may answer anything closes.
    """
    were_tracked, are_tracked = (each.return_traffic is ReturnTraffic.TRACKED for each in (policy, target))
    knew, stops = were_tracked and not policy.holds_replies, were_tracked and not are_tracked
    if stops:
        policy, target = (replace(each, return_traffic=ReturnTraffic.EXPLICIT) for each in (policy, target))
    ways = Direction.EGRESS, Direction.INGRESS
    moves = [_moves(policy, target, direction, known, step) for direction in ways]
    for egress, ingress in pair_lists(moves[0], moves[1], ways, step):
        yield from _pair_opposed(egress, ingress)
    if knew or are_tracked:
        for opening, direction in zip(moves, ways, strict=True):
            closing: Sequence[Moves] = opening
            if stops and any(each.opened for each in opening):
                closing = [Moves(each, (), everything_of(each, direction)) for each in target.tenants]
            for some, others in pair_lists(opening, closing, (direction, direction), step):
                yield from _opposed_answers(some, others, direction)


def _opposed_answers(moves: Sequence[Moves], closing: Sequence[Moves], direction: Direction) -> Iterator[_Opposed]:
    """Pair each opening list with same-direction lists that close possible answers."""
    closing = [replace(each, closed=tuple(map(_answering, each.closed))) for each in closing if each.closed]
    for one in moves:
        for other in closing if one.opened else ():
            ends = (one.tenant, other.tenant) if direction is Direction.EGRESS else (other.tenant, one.tenant)
            yield one, other, ends, direction


def _answering(box: Box) -> Box:
    """The packets of the other direction.

    A packet that opens their connection has other TCP flags, and other bits that rows ask for under masks.
    """
    any_word: dict[str, Any] = {field.axis: full_set(field, box.family) for field in WORD}
    return box._replace(
        **any_word,
        source=box.destination,
        destination=box.source,
        source_ports=box.destination_ports,
        destination_ports=box.source_ports,
    )


def _pair_opposed(egress: Iterable[Moves], ingress: Iterable[Moves]) -> Iterator[_Opposed]:
    """Pair senders and receivers of whom one opens and the other closes.

    Each pair says which side opens, with its direction.

    A tenant that is new opens and closes nothing: ten thousand of them make no pair.
    """
    closing, opening = ([each for each in ingress if getattr(each, way)] for way in ("closed", "opened"))
    for sender in egress:
        if sender.opened:
            yield from ((sender, each, (sender.tenant, each.tenant), Direction.EGRESS) for each in closing)
        if sender.closed:
            yield from ((each, sender, (sender.tenant, each.tenant), Direction.INGRESS) for each in opening)


# ---------------------------------------------------------------------------------------------- what moves


def _moves(
    before: Policy, after: Policy, direction: Direction, known: Comparisons, step: PolicyStep | None = None
) -> list[Moves]:
    """Return the packets that `step` opens and closes, by tenant whose lists differ."""
    gone, come = before.tenants, after.tenants
    if before.return_traffic is after.return_traffic:
        gone, come = map(tuple, find_replaced(gone, come))
    olds, news = ({tenant.id: tenant for tenant in tenants} for tenants in (gone, come))
    found = []
    for name in {**olds, **news}:
        old, new = olds.get(name), news.get(name)
        if step is not None and not any(each is not None and step.concerns(each) for each in (old, new)):
            continue
        if old is not None and new is not None and old.prefixes == new.prefixes:
            if before.return_traffic is after.return_traffic and (old.acl is new.acl or old.acl == new.acl):
                continue
            if not _opens_replies(before, after) and (old.acl is new.acl or old.acl == new.acl):
                found.append(Moves(new, (), everything_of(new, direction)))
                continue
            moves = known.moves(old.acl, before.return_traffic, new, after.return_traffic, direction)
        else:
            moves = _moved_prefixes(old, new, direction)
        if moves.opened or moves.closed:
            found.append(moves)
    return found


def _opens_replies(before: Policy, after: Policy) -> bool:
    """Return whether lists get a last rule that permits replies."""
    return not set(return_rules(after.return_traffic)) <= set(return_rules(before.return_traffic))


def _moved_prefixes(old: Tenant | None, new: Tenant | None, direction: Direction) -> Moves:
    """Return all packets of moved prefixes as possibly opened or closed.

    They are those of the tenant's old and new prefixes.
    """
    tenant = new or old
    assert tenant is not None
    owned = tuple({*(old.prefixes if old else ()), *(new.prefixes if new else ())})
    everything = everything_of(replace(tenant, prefixes=owned), direction)
    return Moves(tenant, everything if new else (), everything if old else ())


def _meeting(opened: tuple[Box, ...], closed: tuple[Box, ...]) -> list[Box] | None:
    """Return the packets that one point opens and another closes.

    None if that takes too long to find.
    """
    if len(closed) * _count_spans(opened) + len(opened) * _count_spans(closed) > MOST_SPANS:
        return None
    common = [one.intersect(other) for one in opened for other in closed]
    return [box for box in common if box is not None]


def _count_spans(boxes: Iterable[Box]) -> int:
    return sum(count_spans(box) for box in boxes)


def _between(sender: Tenant, receiver: Tenant) -> tuple[Box, ...]:
    """Every packet from one tenant to another."""
    ways = (
        one.intersect(other)
        for one in everything_of(sender, Direction.EGRESS)
        for other in everything_of(receiver, Direction.INGRESS)
    )
    return tuple(box for box in ways if box is not None)
