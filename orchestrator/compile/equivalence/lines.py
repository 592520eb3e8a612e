"""The lines that packets ahead of the lists would meet: operator, tenant's list, end.

Only those near the packets in question are looked at: where the list itself is proven, the rules of whose rows some
meet the packets, for these rows are the rules' packets; else rules that speak of some of their sources and of some of
their destinations, as the rules themselves say. Packets that pass it are held against the rule's own box.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import compress
from operator import attrgetter, or_

from orchestrator.compile.equivalence.chain import Chain, is_limited
from orchestrator.compile.equivalence.shortestedit import edits_of
from orchestrator.policy.addresses import Addresses, Family, Prefix
from orchestrator.policy.model import Action, AddressGroup, Direction, Policy, ReturnTraffic, Rule, Tenant
from orchestrator.policy.rulelist import Row, RuleList
from orchestrator.policy.space import Box, boxes_of, everything
from orchestrator.policy.spans import Span, Spans, intersect, union

_MOST_STEPS = 64


@dataclass(frozen=True, slots=True)
class Line:
    """One line in one IP version: what its rows' cookie is, its packets, its verdict.

    `reports` is the number of the tenant (0: the operator) whose meter bounds its reports; None: it makes none.
    """

    cookie: int
    name: str
    is_operators: bool
    permits: bool
    box: Box
    reports: int | None = None
    limits: int | None = None
    """The tenant whose meter bounds its packets; None: nothing does."""


class Overlaps:
    """Boxes of both IP versions, to find those that share packets with others."""

    def __init__(self, boxes: Sequence[Box]) -> None:
        self._places = {family: [at for at, box in enumerate(boxes) if box.family is family] for family in Family}
        self._rows = {
            family: RuleList([Row(boxes[at], permit=False, rule=None, position=at) for at in places])
            for family, places in self._places.items()
            if places
        }

    def of(self, box: Box) -> list[int]:
        """Return the places of boxes that overlap one, ascending."""
        rows, places = self._rows.get(box.family), self._places[box.family]
        return [] if rows is None else [places[row] for row in rows.overlapping(box)]


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """The lines of a composed list that meet some packets, in order.

    `asked` are the packets.
    """

    policy: Policy
    tenant: Tenant
    direction: Direction
    near: tuple[Line, ...]
    index: Overlaps
    asked: tuple[Box, ...]
    boxes: Overlaps

    @classmethod
    def of(
        cls,
        policy: Policy,
        tenant: Tenant,
        direction: Direction,
        boxes: Sequence[Box],
        near: Sequence[Rule] | None = None,
    ) -> Lines:
        """Return the lines that meet packets of `boxes`.

        Raises NotEquivalent where a rule near them has no number.

        `near` are, in order, the rules of the list that may meet them, where that is known.
        """
        operator = Chain.of_operator(policy)
        chain = Chain.of_tenant(tenant, policy.return_traffic)
        rules = [chain.rules[place] for place in _near(chain, direction, boxes)] if near is None else near
        returning = [each.direction is direction for each in chain.returns]
        found = [
            *_make_lines(operator.rules, operator.cookies(operator.rules), operator),
            *_make_lines(rules, chain.cookies(rules), chain),
            *_make_lines([*compress(chain.returns, returning)], [*compress(chain.return_cookies(), returning)], chain),
            *_ends(chain, tenant, direction),
        ]
        meeting = Overlaps(boxes)
        met = tuple(each for each in found if meeting.of(each.box))
        return cls(policy, tenant, direction, met, Overlaps([line.box for line in met]), tuple(boxes), meeting)

    def meeting(self, box: Box) -> list[Line]:
        """Return the lines that meet packets of one of the boxes asked for."""
        return [self.near[place] for place in self.index.of(box)]

    def after(self, policy: Policy, tenant: Tenant) -> Lines | None:
        """Return the lines of the next policy; None where one may be another."""
        old, new = self.policy, policy
        if (
            old.operator != new.operator
            or old.operator_numbers != new.operator_numbers
            or old.return_traffic is not new.return_traffic
            or (self.direction is Direction.INGRESS and old.endpoints != new.endpoints)
            or self._has_other_rules(tenant, new.return_traffic)
        ):
            return None
        return replace(self, policy=policy, tenant=tenant)

    def _has_other_rules(self, tenant: Tenant, returns: ReturnTraffic) -> bool:
        """Whether changed rules of a tenant meet the boxes looked at, or are too many."""
        before, after = (Chain.of_tenant(each, returns) for each in (self.tenant, tenant))
        if after.differs_besides_rules(before) or self._is_renumbered(tenant):
            return True
        steps = edits_of(before.rules, after.rules, _MOST_STEPS)
        if steps is None:
            return True
        changed = [after.rules[step.new] if step.is_insert else before.rules[step.old] for step in steps]
        return any(
            rule.direction is self.direction and self.boxes.of(box)
            for rule in changed
            for box in boxes_of(rule, tenant.acl.groups)
        )

    def _is_renumbered(self, tenant: Tenant) -> bool:
        """Return whether an unchanged rule has another number.

        None should; that is not taken on trust.
        """
        old, new = self.tenant.rule_numbers, tenant.rule_numbers
        return old is not new and any(old.get(line.name) != new.get(line.name) for line in self.near)


def _make_lines(rules: Sequence[Rule], cookies: Sequence[int], chain: Chain) -> Iterator[Line]:
    for rule, cookie in zip(rules, cookies, strict=True):
        for box in boxes_of(rule, chain.groups):
            reports = chain.tenant if rule.log else None
            limits = chain.tenant if is_limited(rule) else None
            yield Line(cookie, rule.id, not chain.tenant, rule.action is Action.PERMIT, box, reports, limits)


def _ends(chain: Chain, tenant: Tenant, direction: Direction) -> Iterator[Line]:
    """The default of the direction, which holds every packet."""
    ends = dict(zip(Direction, chain.defaults, strict=True))
    cookie, _ = ends[direction]
    for family in Family:
        permits = tenant.acl.default(direction) is Action.PERMIT
        yield Line(cookie, f"the {direction.value} default", False, permits, everything(family))


def _near(chain: Chain, direction: Direction, boxes: Sequence[Box]) -> list[int]:
    """Return the places of rules that may match packets of boxes, ascending.

    Those that name some of their protocols and ports, some of their sources, and some of their destinations.
    """
    rules = chain.rules
    protocols = reduce(or_, (box.protocols for box in boxes), 0)
    ports = union(span for box in boxes for span in box.destination_ports)
    known_ports: dict[int, bool] = {}
    found = []
    for place, rule in enumerate(rules):
        if rule.direction is direction and (rule.protocol is None or protocols >> rule.protocol & 1):
            ranges = rule.destination_ports
            speaks = known_ports.get(id(ranges))
            if speaks is None:
                asked_ports = intersect(ports, tuple(Span(each.low, each.high) for each in ranges))
                speaks = known_ports[id(ranges)] = bool(asked_ports)
            if speaks:
                found.append(place)
    for name in ("destination", "source") if direction is Direction.INGRESS else ("source", "destination"):
        side, asked = attrgetter(name), _Asked.of([getattr(box, name) for box in boxes], [box.family for box in boxes])
        known: dict[int, bool] = {}
        kept = []
        for place in found:
            addresses = side(rules[place])
            speaks = known.get(id(addresses))
            if speaks is None:
                speaks = known[id(addresses)] = asked.by(addresses, chain.groups)
            if speaks:
                kept.append(place)
        found = kept
    return found


@dataclass(frozen=True, slots=True)
class _Asked:
    """The addresses in question by IP version, as disjoint spans: starts and ends."""

    spans: Mapping[Family, tuple[list[int], list[int]]]

    @classmethod
    def of(cls, sides: Sequence[Spans], families: Sequence[Family]) -> _Asked:
        """Join the addresses of all sides, by IP version."""
        every = {
            family: union(span for side, its in zip(sides, families, strict=True) if its is family for span in side)
            for family in set(families)
        }
        return cls({family: ([s.low for s in each], [s.high for s in each]) for family, each in every.items()})

    def by(self, addresses: Addresses, groups: Mapping[str, AddressGroup]) -> bool:
        """Whether a side of a rule speaks of some of them."""
        if addresses.is_any:
            return True
        if any(self._meets_prefix(prefix) for prefix in addresses.prefixes):
            return True
        return any(self._meets_prefix(prefix) for name in addresses.groups for prefix in groups[name].prefixes)

    def _meets_prefix(self, prefix: Prefix) -> bool:
        found = self.spans.get(prefix.family)
        if found is None:
            return False
        low, high = found
        place = bisect_right(low, prefix.last) - 1
        return place >= 0 and high[place] >= prefix.network
