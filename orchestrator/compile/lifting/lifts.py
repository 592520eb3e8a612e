"""Find the parts of the composed list that a lifted rule takes along.

    rule ──▶ its box, from the uplink or from an endpoint ──▶ hoist above the composed list ──▶ parts
         └─▶ the replies to its packets, the other way     ──▶ whoever decides them, if they permit them all ──▶ parts

A part is some packets of one line of the composed list (`placement/composed.py`), and will be decided as that line
decides them. A lift is found once; when a list changes, it is looked at again only if a rule that came or went meets
its packets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.compile.lists.boxes import rows_taken
from orchestrator.compile.lists.edits import Hunk
from orchestrator.compile.lists.nearby import Bounds
from orchestrator.placement.composed import Composed, home_of
from orchestrator.placement.hoist import Form, Stays, hoist, parts, reply_box
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy import spans
from orchestrator.policy.model import Action, Direction, Policy, Rule, Tenant
from orchestrator.policy.ports import HIGHEST_PORT
from orchestrator.policy.protocols import SCTP, TCP, UDP
from orchestrator.policy.space import Box, boxes_of
from orchestrator.policy.spans import Span, Spans

MOST_PARTS = 64
"""A rule that needs more parts of lines above its list, in one IP version, stays where it is."""

CLIENT_PORTS: Spans = (Span(1024, HIGHEST_PORT),)
"""The ports that a client takes for itself: those that a server is known by are below."""

OTHER_WAY = {Direction.INGRESS: Direction.EGRESS, Direction.EGRESS: Direction.INGRESS}


@dataclass(frozen=True, slots=True)
class Part:
    """Packets to or from a tenant's endpoints that one line of the composed list decides."""

    direction: Direction
    position: int
    box: Box


@dataclass(frozen=True, slots=True)
class Lift:
    """The result for a rule that was named for lifting.

    `form` is None for a rule that stays, and `because` then says why. `replies` says whether the replies to its packets
    are lifted with it, and `no_replies` why not. `asked` are the packets that this was found out about.
    """

    rule: LiftedRule
    form: Form | None
    because: str = ""
    parts: tuple[Part, ...] = ()
    replies: bool = False
    no_replies: str = ""
    asked: tuple[tuple[Direction, Box], ...] = ()

    def after(self, hunks: Sequence[Hunk], offset: int) -> Lift:
        """Return the same lift after its list was edited elsewhere.

        `offset` is the position of the list's first rule.
        """
        return replace(
            self,
            parts=tuple(replace(part, position=_move_position(part.position, hunks, offset)) for part in self.parts),
        )


def _move_position(position: int, hunks: Sequence[Hunk], offset: int) -> int:
    place = position - offset
    return position + sum(hunk.come - hunk.gone for hunk in hunks if place >= hunk.first + hunk.gone)


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """A tenant's two composed lists, and where its rules are."""

    both: Mapping[Direction, Composed]
    bounds: Bounds

    @classmethod
    def of(cls, tenant: Tenant, policy: Policy, bounds: Bounds | None = None) -> Lists:
        """The lists of one of the policy's tenants, whose rules' bounds may be known."""
        return cls(_compose_both(tenant, policy), Bounds.of(tenant.acl.rules) if bounds is None else bounds)

    def after(self, tenant: Tenant, policy: Policy, edit: Sequence[Hunk]) -> Lists:
        """Return the tenant's lists in the next policy, where its rules are edited."""
        return Lists(_compose_both(tenant, policy), self.bounds.after(tenant.acl.rules, edit) if edit else self.bounds)

    def lift(self, name: LiftedRule, place: int) -> Lift:
        """Find the lift of the rule at a place of the list, with its replies."""
        rule = self.both[Direction.INGRESS].tenant.acl.rules[place]
        boxes = list(self._boxes(rule))
        if not boxes:
            return Lift(name, None, "no endpoint of the tenant has an address that it speaks of")
        asked = [(rule.direction, box) for box in boxes]
        found = [self._hoist_parts(rule.direction, place, box) for box in boxes]
        stays = "; ".join(dict.fromkeys(each.because for each in found if isinstance(each, Stays)))
        own = [each for each in found if not isinstance(each, Stays)]
        if not own:
            return Lift(name, None, stays, asked=tuple(asked))
        forms = {form for form, _ in own}
        form = next(each for each in (Form.TOGETHER, Form.NARROWED, Form.ALONE) if each in forms)
        way = OTHER_WAY[rule.direction]
        returning = list(self._replies(rule, boxes))
        replies = min(
            (self._deciding_lines(way, each) for each in (returning, _to_clients(returning, way))), key=_rank_answer
        )
        asked += [(way, box) for box in returning]
        mine = tuple(part for _, each in own for part in each) + replies.parts
        return Lift(name, form, stays, mine, bool(replies.parts), replies.because, tuple(asked))

    def named_by(self, lift: Lift) -> set[str]:
        """The ids of the rules that a lift has parts of."""
        rules = (self.both[part.direction].rule(part.position) for part in lift.parts)
        return {rule.id for rule in rules if rule is not None}

    def _boxes(self, rule: Rule) -> Iterator[Box]:
        """The rule's packets, of those that its list is asked about."""
        composed = self.both[rule.direction]
        for box in boxes_of(rule, composed.tenant.acl.groups):
            world = composed.world(box.family)
            inside = None if world is None else box.intersect(world)
            if inside is not None:
                yield inside

    def _hoist_parts(self, direction: Direction, place: int, box: Box) -> tuple[Form, list[Part]] | Stays:
        composed = self.both[direction]
        rows = composed.rows(box, self.bounds.near(box, direction))
        row = next(at for at, each in enumerate(rows.rows) if each.position == composed.position(place))
        found = hoist(rows, row, most_entries=MOST_PARTS, cost=rows_taken)
        if isinstance(found, Stays):
            return found
        return found.form, [Part(direction, rows.rows[each.row].position, each.box) for each in found.entries]

    def _replies(self, rule: Rule, boxes: Sequence[Box]) -> Iterator[Box]:
        """Yield the replies to a rule's packets: established TCP segments, all of UDP and SCTP."""
        if rule.action is Action.DENY or rule.fragments or rule.protocol not in (None, TCP, UDP, SCTP):
            return
        protocol = TCP if rule.protocol is None else rule.protocol
        for box in boxes:
            world = self.both[OTHER_WAY[rule.direction]].world(box.family)
            inside = None if world is None else reply_box(box, protocol).intersect(world)
            if inside is not None:
                yield inside

    def _deciding_lines(self, direction: Direction, boxes: Sequence[Box]) -> _Answered:
        """Return the lines that decide some packets, each with its part, if any are permitted."""
        composed = self.both[direction]
        found: list[Part] = []
        permits = False
        for box in boxes:
            rows = composed.rows(box, self.bounds.near(box, direction))
            entries = parts(rows, box, most_entries=MOST_PARTS)
            if entries is None:
                return _Answered((), f"the replies meet over {MOST_PARTS} lines of the {direction.value} list")
            permits |= any(rows.rows[entry.row].permit for entry in entries)
            found += [Part(direction, rows.rows[entry.row].position, entry.box) for entry in entries]
        if not boxes:
            return _Answered((), "it has no replies")
        return _Answered(tuple(found)) if permits else _Answered((), f"the {direction.value} list permits none")


@dataclass(frozen=True, slots=True)
class _Answered:
    """The parts of the lines that decide replies; none, and why."""

    parts: tuple[Part, ...]
    because: str = ""


def _rank_answer(answered: _Answered) -> tuple[bool, int]:
    return not answered.parts, len(answered.parts)


def _to_clients(replies: Sequence[Box], way: Direction) -> list[Box]:
    """Keep replies to ports that clients use.

    Lists say many things about the other ports, those of servers, that would have to come along; such replies are rare,
    and may meet the list.
    """
    if way is Direction.INGRESS:  # these come from servers
        return list(replies)
    narrower = ((box, spans.intersect(box.destination_ports, CLIENT_PORTS)) for box in replies)
    return [box._replace(destination_ports=ports) for box, ports in narrower if ports]


def _compose_both(tenant: Tenant, policy: Policy) -> Mapping[Direction, Composed]:
    home = home_of(tenant, policy.endpoints)
    return {way: Composed(policy.operator, tenant, way, policy.return_traffic, home) for way in Direction}


def concerns(lift: Lift, rules: Sequence[Rule], lists: Lists) -> bool:
    """Return whether an added or removed rule overlaps the packets that a lift depends on."""
    groups = lists.both[Direction.INGRESS].tenant.acl.groups
    return any(
        rule.direction is direction and box.overlaps(asked)
        for rule in rules
        for box in boxes_of(rule, groups)
        for direction, asked in lift.asked
    )
