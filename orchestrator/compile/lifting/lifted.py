"""The lifted rules of a policy, with their rows, updated as lists change.

names, policy ──▶ by tenant: its two composed lists, the bounds of its rules ──▶ a lift for each rule (`lifts.py`)
                                                                     └─▶ their parts as rows (`liftedrows.py`)

A lift is taken over where nothing came or went that meets its packets, or the replies to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from orchestrator.compile.lifting.liftedrows import Unit, rows_of
from orchestrator.compile.lifting.lifts import Lift, Lists, concerns
from orchestrator.compile.lists.boxes import rows_taken
from orchestrator.compile.lists.edits import Hunk, hunks
from orchestrator.compile.lists.nearby import Bounds
from orchestrator.placement.lifting import LiftedRule
from orchestrator.policy.model import Direction, Endpoint, Policy, Rule, Tenant
from orchestrator.policy.stateless import is_mixed
from orchestrator.program.flows import FlowTable

MOST_ROWS = 256
"""A rule whose lift takes more flow entries stays where it is."""

_FEW = 64
"""When more rules come and go, finding every lift anew is the faster way."""


@dataclass(frozen=True, slots=True, eq=False)
class Lifted:
    """The lifted rules of a policy: the result for each, and the rows.

    It never changes.

    `known` are the bounds of every list that a rule was lifted from, now or before: a rule that comes down often goes
    up again.
    """

    names: tuple[LiftedRule, ...]
    policy: Policy
    tenants: Mapping[str, _Lifts]
    known: Mapping[str, Known]
    rows: FlowTable

    @property
    def lifts(self) -> tuple[Lift, ...]:
        """The result for every rule, in the order of their names."""
        found = {lift.rule: lift for each in self.tenants.values() for lift in each.lifts}
        return tuple(found[name] for name in self.names)

    @classmethod
    def of(cls, names: Sequence[LiftedRule], policy: Policy, before: Lifted | None = None) -> Lifted:
        """Lift rules.

        With the lifts of the policy `before`, only changed rules are examined again.
        """
        asked = dict.fromkeys(names)
        if is_mixed(policy):
            stays = "stateless rules of the domain decide beside connections"
            nothing = {
                str(name): _Lifts.of_nobody([each for each in asked if each.tenant == name], stays)
                for name in dict.fromkeys(each.tenant for each in asked)
            }
            return cls(tuple(asked), policy, nothing, {}, rows_of((), {}))
        tenants = {str(tenant.id): tenant for tenant in policy.tenants}
        known = {} if before is None else _still(before.known, tenants)
        old = {} if before is None or _differs(before.policy, policy) else before.tenants
        found = {}
        for name in dict.fromkeys(str(each.tenant) for each in asked):
            wanted = tuple(each for each in asked if each.tenant == name)
            tenant = tenants.get(name)
            if tenant is None:
                found[name] = _Lifts.of_nobody(wanted)
            else:
                found[name] = _Lifts.of(wanted, tenant, policy, old.get(name), known.get(name))
        known |= {
            name: Known(tenants[name].acl.rules, each.lists.bounds, each.places)
            for name, each in found.items()
            if each.lists
        }
        if before is not None and before.names == tuple(asked) and not any(each.renewed for each in found.values()):
            return cls(before.names, policy, found, known, before.rows)
        units = [unit for each in found.values() for unit in each.units()]
        return cls(tuple(asked), policy, found, known, rows_of(units, policy.operator_numbers))


class Known(NamedTuple):
    """A list's rules, their bounds, and their places.

    Places are computed at first use.
    """

    rules: tuple[Rule, ...]
    bounds: Bounds
    places: Mapping[str, int]


def _still(known: Mapping[str, Known], tenants: Mapping[str, Tenant]) -> dict[str, Known]:
    """Return the known parts whose lists have not changed."""
    return {name: each for name, each in known.items() if name in tenants and tenants[name].acl.rules is each.rules}


def _differs(old: Policy, new: Policy) -> bool:
    """Whether something changed that is asked of every tenant's packets."""
    return (
        old.operator != new.operator
        or old.operator_numbers != new.operator_numbers
        or old.return_traffic is not new.return_traffic
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Lifts:
    """The lifts of one tenant; `renewed` if one of them was looked at anew.

    `lists` is None where the policy does not have the tenant.
    """

    lists: Lists | None
    endpoints: tuple[Endpoint, ...]
    lifts: tuple[Lift, ...]
    places: Mapping[str, int]
    renewed: bool

    @classmethod
    def of_nobody(cls, names: Sequence[LiftedRule], because: str = "there is no such tenant") -> _Lifts:
        nothing = tuple(Lift(name, None, because) for name in names)
        return cls(None, (), nothing, {}, renewed=True)

    @classmethod
    def of(
        cls,
        names: Sequence[LiftedRule],
        tenant: Tenant,
        policy: Policy,
        before: _Lifts | None,
        known: Known | None,
    ) -> _Lifts:
        """Lift rules of a tenant; take over what `before` has, where nothing changed."""
        endpoints = tuple([each for each in policy.endpoints if each.tenant == tenant.id])
        if before is None or before.lists is None:
            lists, kept = Lists.of(tenant, policy, known.bounds if known is not None else None), {}
        else:
            old = before.lists.both[Direction.INGRESS].tenant
            edit = hunks(old.acl.rules, tenant.acl.rules)
            lists = before.lists.after(tenant, policy, edit)
            stays = before.endpoints == endpoints and not _differs_besides_rules(old, tenant)
            kept = before.keep_lifts(edit, tenant, lists, len(policy.operator)) if stays else {}
        others = [each for each in names if each not in kept]
        places = known.places if known is not None else {}
        if others and not places:
            places = {rule.id: place for place, rule in enumerate(tenant.acl.rules)}
        lifts = kept | {name: _lift_rule(name, places, lists) for name in others}
        return cls(lists, endpoints, tuple(lifts[name] for name in names), places, renewed=bool(others))

    def keep_lifts(self, edit: Sequence[Hunk], tenant: Tenant, lists: Lists, offset: int) -> dict[LiftedRule, Lift]:
        """The lifts that an edit of the list has nothing to do with."""
        assert self.lists is not None
        before = self.lists.both[Direction.INGRESS].tenant
        moved: list[Rule] = []
        for hunk in edit:
            moved += before.acl.rules[hunk.first : hunk.first + hunk.gone]
            moved += tenant.acl.rules[hunk.place : hunk.place + hunk.come]
        if len(moved) > _FEW:
            return {}
        old, new, named = before.rule_numbers, tenant.rule_numbers, {rule.id for rule in moved}
        return {
            lift.rule: lift.after(edit, offset)
            for lift in self.lifts
            if lift.asked
            and lift.rule.rule not in named
            and not concerns(lift, moved, lists)
            and (old is new or all(old.get(each) == new.get(each) for each in self.lists.named_by(lift)))
        }

    def units(self) -> Iterator[Unit]:
        """The parts of every lift, those of each list together."""
        if self.lists is None:
            return
        for lift, direction in product(self.lifts, Direction):
            parts = tuple(part for part in lift.parts if part.direction is direction)
            yield Unit(self.lists.both[direction], parts)


def _differs_besides_rules(old: Tenant, new: Tenant) -> bool:
    one, other = old.acl, new.acl
    return old.number != new.number or (one.groups, one.ingress_default, one.egress_default) != (
        other.groups,
        other.ingress_default,
        other.egress_default,
    )


def _lift_rule(name: LiftedRule, places: Mapping[str, int], lists: Lists) -> Lift:
    place = places.get(name.rule)
    return Lift(name, None, "the list has no such rule") if place is None else lift_of(name, place, lists)


def lift_of(name: LiftedRule, place: int, lists: Lists) -> Lift:
    """Return the lift of the rule at a place of a list, within limits."""
    lift = lists.lift(name, place)
    if sum(rows_taken(part.box) for part in lift.parts) > MOST_ROWS:
        return Lift(name, None, f"it would take over {MOST_ROWS} flow entries", asked=lift.asked)
    return lift
