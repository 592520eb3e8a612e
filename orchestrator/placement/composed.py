"""The list that a packet meets: operator rules, one direction of a list, ending.

    position        line                                what asks it
    0 .. m-1        the operator's rules                every packet, whichever way it goes
    m .. m+n-1      the tenant's list                   rules of the one direction only
    m+n ..          return traffic                      where the domain has it, a line a rule
    last            the default                         everything else

A packet that came by the uplink meets the operator's rules and the receiver's ingress list, no other; one from an
endpoint meets the operator's rules and the sender's egress list, and what these permit is then the receiver's to judge.
So what may be decided ahead of the tables is one of these two lists. Lines are kept as rows of `RuleList`, only those
that meet the packets in question: everything that is asked of a long list then costs what is near.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.policy.addresses import Family
from orchestrator.policy.model import (
    Action,
    AddressGroup,
    Direction,
    Endpoint,
    Policy,
    ReturnTraffic,
    Rule,
    Tenant,
    spans_of,
)
from orchestrator.policy.oracle import return_rules
from orchestrator.policy.rulelist import Row, RuleList
from orchestrator.policy.space import Box, boxes_of, everything
from orchestrator.policy.spans import Spans


class Speaker(enum.Enum):
    """The author of a line of a composed list."""

    OPERATOR = "operator"
    RULE = "rule"
    RETURN = "return"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, eq=False)
class Composed:
    """The operator's rules and one direction of a tenant's list.

    `home` are the addresses that packets must go to for the list to be asked at all: in ingress those of the tenant's
    endpoints. In egress it is who sends that counts, and nothing is asked of addresses.
    """

    operator: tuple[Rule, ...]
    tenant: Tenant
    direction: Direction
    returns: ReturnTraffic
    home: Mapping[Family, Spans]

    @classmethod
    def of(cls, policy: Policy, tenant: Tenant, direction: Direction) -> Composed:
        """The list that packets to (ingress) or from (egress) a tenant's endpoints meet."""
        return cls(policy.operator, tenant, direction, policy.return_traffic, home_of(tenant, policy.endpoints))

    def world(self, family: Family) -> Box | None:
        """Every packet of one IP version that meets the list; None if there is none."""
        whole = everything(family)
        if self.direction is Direction.EGRESS:
            return whole
        home = self.home.get(family, ())
        return whole._replace(destination=home) if home else None

    def rows(self, within: Box, near: Iterable[int] | None = None) -> RuleList:
        """Return the lines that packets of `within` may meet, and the default.

        `within` lies in the world.

        `near` are places in the tenant's list, ascending: all of rules that meet `within`, and perhaps of others. None:
        look through the whole list. A row's position is its line's.
        """
        world = self.world(within.family)
        assert world is not None
        found = []
        for position, rule, groups in self._list_lines(near):
            for box in boxes_of(rule, groups):
                inside = box.intersect(world)
                if inside is not None and inside.overlaps(within):
                    found.append(Row(inside, rule.action is Action.PERMIT, rule, position))
        permits = self.tenant.acl.default(self.direction) is Action.PERMIT
        return RuleList([*found, Row(world, permits, None, self._end + len(self._returning))])

    def speaker(self, position: int) -> Speaker:
        """Return the author of the line at a position."""
        if position < len(self.operator):
            return Speaker.OPERATOR
        if position < self._end:
            return Speaker.RULE
        return Speaker.RETURN if self.returning(position) is not None else Speaker.DEFAULT

    def returning(self, position: int) -> Rule | None:
        """The domain's rule of return traffic at a position; None where another line stands."""
        place = position - self._end
        return self._returning[place] if 0 <= place < len(self._returning) else None

    def rule(self, position: int) -> Rule | None:
        """The rule that somebody wrote at a position; None for return traffic and the default."""
        if position >= self._end:
            return None
        operator = len(self.operator)
        return self.operator[position] if position < operator else self.tenant.acl.rules[position - operator]

    def permits(self, position: int) -> bool:
        """Say whether the line at a position permits its packets."""
        rule = self.rule(position)
        if rule is not None:
            return rule.action is Action.PERMIT
        is_return = self.returning(position) is not None
        return is_return or self.tenant.acl.default(self.direction) is Action.PERMIT

    def position(self, place: int) -> int:
        """The position of the rule at a place of the tenant's list."""
        return len(self.operator) + place

    @property
    def _end(self) -> int:
        """The place behind all rules: the list's default."""
        return len(self.operator) + len(self.tenant.acl.rules)

    @property
    def _returning(self) -> tuple[Rule, ...]:
        """The domain's rules for return traffic in this direction."""
        return tuple(rule for rule in return_rules(self.returns) if rule.direction is self.direction)

    def _list_lines(self, near: Iterable[int] | None) -> Iterator[tuple[int, Rule, Mapping[str, AddressGroup]]]:
        for position, rule in enumerate(self.operator):
            yield position, rule, {}
        rules = self.tenant.acl.rules
        for place in range(len(rules)) if near is None else near:
            if rules[place].direction is self.direction:
                yield self.position(place), rules[place], self.tenant.acl.groups
        for position, rule in enumerate(self._returning, self._end):
            yield position, rule, {}


def home_of(tenant: Tenant, endpoints: Sequence[Endpoint]) -> Mapping[Family, Spans]:
    """The addresses of a tenant's endpoints."""
    prefixes = [prefix for endpoint in endpoints if endpoint.tenant == tenant.id for prefix in endpoint.prefixes]
    return {family: spans_of(prefixes, family) for family in Family}
