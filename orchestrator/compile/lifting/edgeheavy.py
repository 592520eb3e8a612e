"""Heavy hitters: popular rules whose packets bypass the firewall servers at the edge.

A rule is moved ahead of its list by the same hoist as on hosts (`lifts.py`), so that its packets at the edge are those
that it decides in its list, and no others: where a rule of another verdict overlaps it, either the rule is narrowed or
that part of the other comes along. A row that comes along and denies does not drop here, it sends its packets on to the
firewall server: an edge denies nothing that the policy speaks of.

Only permits of ingress lists can be heavy hitters. Replies to them leave by other ways, and return traffic that is let
in from outside is the servers' and the hosts' to judge, for the edge has seen nothing of it before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orchestrator.compile.lifting.lifted import lift_of
from orchestrator.compile.lifting.liftedrows import Target, Unit, rows_of
from orchestrator.compile.lifting.lifts import Lift, Lists
from orchestrator.compile.openflow.encoder import RuleStage
from orchestrator.compile.openflow.instructions import instructions, output
from orchestrator.compile.pipelines.edge import EdgeTable
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Action, Direction, Policy, Rule, Tenant
from orchestrator.program.flows import SYMBOL_BASE, FlowTable
from orchestrator.program.program import Tier

TO_WAN = instructions([output(SYMBOL_BASE)])
"""The instructions of a heavy hitter: the first symbol of every program is the uplink."""
PASSED_ON = instructions(goto=EdgeTable.EXCEPTIONS)
"""The instructions of a line that came along and denies."""

_STAGE = RuleStage(EdgeTable.HEAVY, None, TO_WAN, PASSED_ON)
EDGES = Target(Tier.EDGE, {(Direction.INGRESS, is_operators): _STAGE for is_operators in (False, True)}, reports=False)


@dataclass(frozen=True, slots=True, eq=False)
class Heavy:
    """The result for each rule named as heavy hitter, and the rows of all."""

    lifts: tuple[Lift, ...]
    rows: FlowTable


class HeavyTable:
    """Makes heavy hitters' rows, caching each tenant's analysis.

    For one thread at a time.
    """

    def __init__(self) -> None:
        self._known: dict[LiftedRule, tuple[_Source, Lift, Unit | None]] = {}
        self._last = Heavy((), FlowTable.of(()))

    def of(self, names: Sequence[LiftedRule], policy: Policy) -> Heavy:
        """Return the heavy hitters of a policy among the named rules.

        Unchanged inputs return the same value.
        """
        tenants = {tenant.id: tenant for tenant in policy.tenants}
        lists: dict[str, Lists] = {}
        found: dict[LiftedRule, tuple[_Source, Lift, Unit | None]] = {}
        for name in dict.fromkeys(names):
            source = _Source(tenants.get(name.tenant), policy)
            known = self._known.get(name)
            found[name] = known if known is not None and known[0].is_same(source) else _lift_rule(name, source, lists)
        if all(self._known.get(name) is each for name, each in found.items()) and len(found) == len(self._known):
            return self._last
        self._known = found
        units = [unit for _, _, unit in found.values() if unit is not None]
        rows = rows_of(units, policy.operator_numbers, EDGES)
        self._last = Heavy(tuple(lift for _, lift, _ in found.values()), rows)
        return self._last


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """The inputs of a lift."""

    tenant: Tenant | None
    policy: Policy

    def is_same(self, other: _Source) -> bool:
        """Return whether the lift would be the same.

        Compared by identity, for comparing lists costs as much as their rules.
        """
        if self.tenant is None or other.tenant is None:
            return self.tenant is other.tenant
        mine, theirs = self.policy, other.policy
        same_list = self.tenant.acl is other.tenant.acl and self.tenant.rule_numbers is other.tenant.rule_numbers
        same_operator = (mine.operator, mine.operator_numbers) == (theirs.operator, theirs.operator_numbers)
        return (
            same_list and same_operator and mine.return_traffic is theirs.return_traffic and self._home == other._home
        )

    @property
    def _home(self) -> tuple[object, ...]:
        """The prefixes of the tenant's endpoints: where its traffic goes."""
        assert self.tenant is not None
        return tuple(each.prefixes for each in self.policy.endpoints if each.tenant == self.tenant.id)


def _lift_rule(name: LiftedRule, source: _Source, lists: dict[str, Lists]) -> tuple[_Source, Lift, Unit | None]:
    tenant = source.tenant
    if tenant is None:
        return source, Lift(name, None, "there is no such tenant"), None
    rules = tenant.acl.rules
    place = next((place for place, rule in enumerate(rules) if rule.id == name.rule), None)
    if place is None:
        return source, Lift(name, None, "the list has no such rule"), None
    reason = why_not(rules[place])
    if reason:
        return source, Lift(name, None, reason), None
    mine = lists.get(tenant.id) or lists.setdefault(tenant.id, Lists.of(tenant, source.policy))
    lift = lift_of(name, place, mine)
    own = tuple(part for part in lift.parts if part.direction is Direction.INGRESS)
    lift = replace(lift, parts=own, replies=False, no_replies="")
    return source, lift, Unit(mine.both[Direction.INGRESS], own) if own else None


def entries_in(policy: Policy) -> Callable[[LiftedRule], int | None]:
    """Return a function that counts a rule's entries as a heavy hitter.

    None for a rule that cannot be moved.
    """
    tenants = {tenant.id: tenant for tenant in policy.tenants}
    lists: dict[str, Lists] = {}

    def count_entries(name: LiftedRule) -> int | None:
        _, lift, unit = _lift_rule(name, _Source(tenants.get(name.tenant), policy), lists)
        if unit is None or lift.form is None:
            return None
        return len(rows_of((unit,), policy.operator_numbers, EDGES))

    return count_entries


def why_not(rule: Rule) -> str:
    """Return why a rule's match excludes it as a heavy hitter, or an empty text."""
    if rule.action is not Action.PERMIT:
        return "it denies, and the edge leaves that to the firewall server"
    return "" if rule.direction is Direction.INGRESS else "it is an egress rule, and the edge sees what comes in"
