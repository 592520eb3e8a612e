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
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice, takewhile
from operator import is_
from types import MappingProxyType

from orchestrator.errors import TooLarge
from orchestrator.policy.addresses import Family
from orchestrator.policy.difference import count_combinations, count_parts, count_spans, find_moved, only_closes
from orchestrator.policy.formats.express import NO_PACKETS, matches_of
from orchestrator.policy.listed import Listed
from orchestrator.policy.model import (
    Acl,
    Action,
    Direction,
    Policy,
    ReturnTraffic,
    Rule,
    RuleId,
    Tenant,
    TenantId,
    find_replaced,
)
from orchestrator.policy.narrowing import Withheld, is_laid
from orchestrator.policy.neighbours import nearby
from orchestrator.policy.oracle import return_rules
from orchestrator.policy.policystep import Moves, PolicyStep, pair_lists
from orchestrator.policy.rulelist import world
from orchestrator.policy.space import ALL_BYTES, Box, boxes_of, everything, merge_boxes

MOST_SPANS, MOST_RULES = 500_000, 1024
"""Spans that are compared to see what two tenants open and close for each other, and the rules that say it, each
counted by its combinations of prefixes and ports; beyond, everything between the two is held back."""

MOST_PARTS = 4_096
"""So much is compared for one answer, in either direction: rules, each counted once and for its prefixes and ports."""
MOST_KNOWN = 64
"""So many comparisons of lists are remembered from one question to the next."""
_MANY_HELD = 8
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
        self._are_many = held > _MANY_HELD
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
        few = _moves_of_few(old, new, direction, in_place=self._are_many) if old_returns is new_returns else None
        if few is not None:
            return few
        before, after = nearby(_one_way(old, old_returns, direction), _one_way(new.acl, new_returns, direction))
        moves = self._compare(before, after, new, direction)
        self._known[step] = old, moves
        return moves

    def _compare(self, before: Acl, after: Acl, tenant: Tenant, direction: Direction) -> Moves:
        self._parts -= count_parts(before) + count_parts(after)
        if self._parts >= 0:
            try:
                found = find_moved(before, after, direction, tenant.prefixes)
            except TooLarge:
                pass
            else:
                return Moves(tenant, found.permitted, found.denied)
        anything = _everything(tenant, direction)
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
    if old.groups != new.acl.groups or any(old.default(way) is not new.acl.default(way) for way in Direction):
        return None
    gone, come = _laid_on(old.listed, new.acl.listed) or _find_replaced(old.listed, new.acl.listed) or (None, None)
    if gone is None or come is None or (not in_place and {rule.id for rule in gone} & {rule.id for rule in come}):
        return None
    opened, closed = list[Rule](), list[Rule]()
    for rules, opens, closes in ((come, opened, closed), (gone, closed, opened)):
        for rule in rules:
            (opens if rule.action is Action.PERMIT else closes).append(rule)
    return Moves(new, *(_own_boxes(rules, new, direction) for rules in (opened, closed)))


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
            above = len(old) - len(new)
            return (list(old[:above]), []) if above >= 0 and old[above:] == new[:] else None
    return gone, come


def _own_boxes(rules: Iterable[Rule], tenant: Tenant, direction: Direction) -> tuple[Box, ...]:
    """Return the packets of rules of a direction, where they are a tenant's."""
    mine = _everything(tenant, direction)
    boxes = (box for rule in rules if rule.direction is direction for box in boxes_of(rule, tenant.acl.groups))
    both = (box.intersect(world) for box in boxes for world in mine if box.family is world.family)
    return tuple(box for box in both if box is not None)


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
    found: dict[tuple[TenantId, Direction], dict[Rule, None]] = {}
    known = known or Comparisons()
    held = tuple(held)
    known.begin(len(held))
    for policy in held:
        for opening, closing, ends, direction in _all_opposed(policy, target, known, step):
            rules = _meeting(opening.opened, closing.closed, ends, direction)
            found.setdefault((opening.tenant.id, direction), {}).update(dict.fromkeys(rules))
    order = sorted(found, key=lambda each: (each[0], each[1].value))
    by_tenant = {tenant: tuple(rule for key in order if key[0] == tenant for rule in found[key]) for tenant, _ in order}
    laid = MappingProxyType({tenant: rules for tenant, rules in by_tenant.items() if rules})
    return Withheld(laid, any(_answers_differently(policy, target) for policy in held))


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
                closing = [Moves(each, (), _everything(each, direction)) for each in target.tenants]
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

    They have other flags than the packet that opens their connection.
    """
    return box._replace(
        tcp_flags=ALL_BYTES,
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
    """Return the packets that are opened and closed, by tenant whose lists differ and whom `step` concerns."""
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
                found.append(Moves(new, (), _everything(new, direction)))
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
    everything = _everything(replace(tenant, prefixes=owned), direction)
    return Moves(tenant, everything if new else (), everything if old else ())


def _everything(tenant: Tenant, direction: Direction) -> tuple[Box, ...]:
    worlds = (world(family, direction, tenant.prefixes) for family in Family) if tenant.prefixes else ()
    return tuple(box for box in worlds if box is not None)


def _one_way(acl: Acl, returns: ReturnTraffic, direction: Direction) -> Acl:
    """Return one direction of a list, with the domain's return traffic as a rule."""
    rules = [rule for rule in acl.rules if rule.direction is direction]
    taken = {rule.id for rule in rules}
    free = (name for name in (RuleId(f"return-{place}") for place in count()) if name not in taken)
    rules += [replace(rule, id=next(free)) for rule in return_rules(returns) if rule.direction is direction]
    return replace(acl, rules=tuple(rules))


def _meeting(
    opened: tuple[Box, ...], closed: tuple[Box, ...], ends: tuple[Tenant, Tenant], direction: Direction
) -> tuple[Rule, ...]:
    """Return deny rules for packets that one point opens and another closes.

    They go into the list that opens the packets, between the two tenants.
    """
    if len(closed) * _spans(opened) + len(opened) * _spans(closed) <= MOST_SPANS:
        common = [one.intersect(other) for one in opened for other in closed]
        try:
            boxes = merge_boxes(box for box in common if box is not None)
            if sum(map(count_combinations, boxes)) <= MOST_RULES:
                rules = tuple(islice((rule for box in boxes for rule in _denying(box, direction)), MOST_RULES + 1))
                if len(rules) <= MOST_RULES:
                    return rules
        except TooLarge:
            pass
    return tuple(rule for box in _between(*ends) for rule in _denying(box, direction))


def _spans(boxes: Iterable[Box]) -> int:
    return sum(count_spans(box) for box in boxes)


def _between(sender: Tenant, receiver: Tenant) -> tuple[Box, ...]:
    """Every packet from one tenant to another."""
    ways = (
        one.intersect(other)
        for one in _everything(sender, Direction.EGRESS)
        for other in _everything(receiver, Direction.INGRESS)
    )
    return tuple(box for box in ways if box is not None)


# ---------------------------------------------------------------------------------------------- boxes as rules


def _denying(box: Box, direction: Direction) -> Iterator[Rule]:
    """Rules that deny a box; where no rule leaves its later fragments out, these too.

    Protocols that no packet has by rights are some packet's all the same: with them every protocol is denied.
    """
    if any(box.protocols >> strange & 1 for strange in NO_PACKETS[box.family]):
        box = box._replace(protocols=box.protocols | everything(box.family).protocols)
    for match in matches_of(box, direction):
        yield Rule(RuleId("withheld"), Action.DENY, direction, **match.rule_attributes())
