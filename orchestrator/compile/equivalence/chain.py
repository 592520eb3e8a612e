"""An access list as a chain of deciders in order, with the rows of each.

These are the rows that it must have.

    a tenant's list    its rules, then the domain's return traffic; then the two defaults (a row each, not in the chain)
    the operator's     its rules, whatever their direction

A link's cookie names it on the switch, and its table, register and instructions are written down here once more, from
docs/pipeline.md: what this package shares with the compiler are the numbers of tables and registers and the cookie's
drawing.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from orchestrator.compile.cookies import Cookie, Kind
from orchestrator.compile.pipelines.host import DEFAULT_PRIORITY, MISS_PRIORITY, STATIC_PRIORITY, Table
from orchestrator.errors import NotEquivalent
from orchestrator.policy.model import Action, AddressGroup, Direction, Policy, ReturnTraffic, Rule, Tenant
from orchestrator.policy.numbers import RuleNumbers
from orchestrator.policy.oracle import PATH_MTU_RULES, return_rules
from orchestrator.policy.protocols import ICMP, ICMPV6
from orchestrator.policy.stateless import view_of_operator, view_of_tracking
from orchestrator.program.program import Tier

RULE = Cookie(Tier.HOST, Kind.RULE).pack()
OPERATOR_RULE = Cookie(Tier.HOST, Kind.OPERATOR_RULE).pack()
TABLE_OF = {Direction.INGRESS: Table.INGRESS, Direction.EGRESS: Table.EGRESS}
_RETURN = {Direction.INGRESS: Kind.INGRESS_RETURN, Direction.EGRESS: Kind.EGRESS_RETURN}
_DEFAULT = {Direction.INGRESS: Kind.INGRESS_DEFAULT, Direction.EGRESS: Kind.EGRESS_DEFAULT}
_PARTS: dict[int | None, int] = {ICMP: 1, ICMPV6: 2}
_ALL_32 = 0xFFFFFFFF
_FEW = 64
"""So many rules are asked for their numbers one by one."""


def goto(table: int) -> bytes:
    """The instruction list that only goes on to a table (OpenFlow 1.5, 7.2.5)."""
    return struct.pack(">HHB3x", 1, 8, table)


SET_REG3 = struct.pack(">HHHBBI4x", 25, 16, 0x0001, 3 << 1, 4, 1)
"""Action: write 1 into reg3."""


def apply_actions(*actions: bytes) -> bytes:
    """The instruction list that applies actions; nothing without any."""
    body = b"".join(actions)
    return struct.pack(">HHI", 4, 8 + len(body), 0) + body if body else b""


def report_action(tenant: int) -> bytes:
    """Return the action that reports 128 bytes of a packet by a tenant's meter.

    Tenant 0 is the operator.
    """
    return struct.pack(">HHIH6xHHH2xHHI", 0xFFFF, 32, 0x2320, 37, 0, 8, 128, 5, 8, tenant + 1)


def limit_action(tenant: int) -> bytes:
    """Return the action that limits a tenant's messages about path MTU.

    It drops packets beyond the rate (OpenFlow 1.5, 7.2.6.7).
    """
    return struct.pack(">HHI", 29, 8, 0x8000_0000 + tenant)


def is_limited(rule: Rule) -> bool:
    """Return whether a rule's packets pass only up to a rate.

    They are messages about path MTU, by the domain's own rule.
    """
    return rule in PATH_MTU_RULES


@dataclass(frozen=True, slots=True)
class Stage:
    """The rows of a table of rules: the tenant's register, and a permit's instructions."""

    table: int
    register: int | None
    to: int
    writes: bytes = b""

    def does(self, action: Action, tenant: int, *, log: bool = False, limited: bool = False) -> bytes:
        """Return the instructions that a rule's rows must have here.

        A deny has none, except for reporting the packet if the rule logs.
        """
        report = (report_action(tenant),) if log else (limit_action(tenant),) if limited else ()
        if action is Action.DENY:
            return apply_actions(*report)
        return apply_actions(*report, self.writes) + goto(self.to)


STAGES = {
    Table.INGRESS: Stage(Table.INGRESS, 1, Table.OUTPUT),
    Table.EGRESS: Stage(Table.EGRESS, 0, Table.LOCAL),
    Table.OPERATOR: Stage(Table.OPERATOR, None, Table.LOCAL, SET_REG3),
}


class Ends(NamedTuple):
    """A row of every program: place, match on one register (number, value, mask), instructions."""

    table: int
    priority: int
    register: tuple[int, int, int] | None
    instructions: bytes


STANDING = (
    Ends(Table.LIFTED, MISS_PRIORITY, None, goto(Table.OPERATOR)),
    Ends(Table.OPERATOR, MISS_PRIORITY, None, goto(Table.EGRESS)),
    Ends(Table.EGRESS, STATIC_PRIORITY, (0, 0, _ALL_32), goto(Table.LOCAL)),
    Ends(Table.EGRESS, MISS_PRIORITY, None, b""),
    Ends(Table.INGRESS, STATIC_PRIORITY, (3, 1, _ALL_32), goto(Table.OUTPUT)),
    Ends(Table.INGRESS, MISS_PRIORITY, None, b""),
)
"""The ends of the tables that decide, and the ways past the tenants' lists."""

DECIDING = frozenset(each.table for each in STANDING)
"""The tables whose rows are proven."""


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """A list in order.

    `place` is for errors, `tenant` the number that its rows carry (0: the operator's).

    `highest` and `lowest` bound the priorities: below the ways past the lists, above the defaults.
    """

    place: str
    tenant: int
    rules: Sequence[Rule]
    numbers: Mapping[str, int]
    groups: Mapping[str, AddressGroup]
    returns: tuple[Rule, ...]
    defaults: tuple[tuple[int, Ends], ...]
    highest: int
    lowest: int

    @classmethod
    def of_tenant(cls, tenant: Tenant, returns: ReturnTraffic) -> Chain:
        is_tracked = returns is ReturnTraffic.TRACKED
        return cls(
            place=f"tenants[{tenant.id}].acl",
            tenant=tenant.number,
            rules=(view_of_tracking(tenant.acl) if is_tracked else tenant.acl).listed,
            numbers=tenant.rule_numbers,
            groups=tenant.acl.groups,
            returns=return_rules(returns),
            defaults=_defaults(tenant.acl.ingress_default, tenant.acl.egress_default, tenant.number),
            highest=STATIC_PRIORITY - 1,
            lowest=DEFAULT_PRIORITY + 1,
        )

    @classmethod
    def of_operator(cls, policy: Policy) -> Chain:
        rules = policy.operator
        if policy.return_traffic is ReturnTraffic.TRACKED:
            rules = view_of_operator(rules)
        return cls("operator", 0, rules, policy.operator_numbers, {}, (), (), STATIC_PRIORITY, MISS_PRIORITY + 1)

    @property
    def links(self) -> tuple[Rule, ...]:
        """All rules in order, those that nobody writes at the end."""
        return (*self.rules, *self.returns)

    def cookies(self, rules: Sequence[Rule]) -> list[int]:
        """Return the cookies of some of the list's rules.

        Raises NotEquivalent where one has no number.
        """
        numbers, base = self.numbers, RULE if self.tenant else OPERATOR_RULE
        if isinstance(numbers, RuleNumbers) and len(rules) > _FEW:
            numbers = numbers.as_dict()
        try:
            return [base + numbers[rule.id] for rule in rules]
        except KeyError as error:
            raise NotEquivalent(f"rule {error} has no number", place=self.place) from None

    def return_cookies(self) -> list[int]:
        return [
            Cookie(Tier.HOST, _RETURN[rule.direction], self.tenant, _PARTS.get(rule.protocol, 0)).pack()
            for rule in self.returns
        ]

    def tables(self, rules: Sequence[Rule]) -> list[Table]:
        """The table that each of some rules is asked in."""
        if not self.tenant:
            return [Table.OPERATOR] * len(rules)
        return [Table.INGRESS if rule.direction is Direction.INGRESS else Table.EGRESS for rule in rules]

    def differs_besides_rules(self, other: Chain) -> bool:
        """Whether more than rules, their numbers and groups changed."""
        return self.tenant != other.tenant or self.returns != other.returns or self.defaults != other.defaults


@lru_cache(maxsize=1024)
def _defaults(ingress: Action, egress: Action, tenant: int) -> tuple[tuple[int, Ends], ...]:
    """Return the cookies and rows that end both directions, in the order of `Direction`."""
    return _make_default(ingress, tenant, Direction.INGRESS), _make_default(egress, tenant, Direction.EGRESS)


def _make_default(action: Action, tenant: int, direction: Direction) -> tuple[int, Ends]:
    stage = STAGES[TABLE_OF[direction]]
    assert stage.register is not None
    doing = stage.does(action, tenant)
    row = Ends(stage.table, DEFAULT_PRIORITY, (stage.register, tenant, _ALL_32), doing)
    return Cookie(Tier.HOST, _DEFAULT[direction], tenant).pack(), row
