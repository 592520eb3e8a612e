"""Narrow a policy to an intersection, by deny rules and by holding replies.

The rules are laid on top of tenants' lists. `intersection.py` says what must be held back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType

from orchestrator.policy.connections import narrow_rules
from orchestrator.policy.listed import Listed
from orchestrator.policy.model import Action, Policy, ReturnTraffic, Rule, RuleId, Tenant, TenantId, trusted_acl


@dataclass(frozen=True, slots=True)
class Withheld:
    """The part that an intersection holds back: deny rules on top of lists, and replies.

    The rules are by tenant. It is false where the policy may follow now.
    """

    rules: Mapping[TenantId, tuple[Rule, ...]] = field(default_factory=lambda: MappingProxyType({}))
    holds_replies: bool = False

    def __bool__(self) -> bool:
        return bool(self.rules) or self.holds_replies


class Narrowings:
    """Remembers narrowed tenants, so that an unchanged one stays the same object.

    Policies are compared, compiled and proven by the identity of their tenants. A list that is held back stays so
    while others write; made anew for each of their writes, it would be checked, compared and compiled each time. The
    memory changes how long that takes, never what comes out. Not to be shared between threads.
    """

    def __init__(self) -> None:
        self._known: dict[TenantId, tuple[Tenant, tuple[Rule, ...], int, Tenant]] = {}
        """The tenants narrowed, by which rules, their highest number, and the result."""
        self._connections: dict[TenantId, tuple[Tenant, bool, Tenant]] = {}

    def after(self, tenants: Iterable[Tenant], held_back: Withheld, highest_number: int) -> tuple[Tenant, ...]:
        """Return tenants with what is held back; see `narrow`."""
        before, self._known = self._known, {}
        made = []
        for tenant in tenants:
            rules = held_back.rules.get(tenant.id)
            if rules is not None:
                known = before.get(tenant.id)
                if known is None or known[0] is not tenant or known[2] != highest_number or known[1] != rules:
                    known = tenant, rules, highest_number, _narrow_tenant(tenant, rules, count(highest_number, -1))
                self._known[tenant.id] = known
                highest_number -= len(rules)
                tenant = known[3]  # noqa: PLW2901 -- the same tenant, narrowed
            made.append(tenant)
        return tuple(made)

    def of_connections(self, tenants: Iterable[Tenant], *, keep_stateless: bool) -> tuple[Tenant, ...]:
        """Return tenants whose rules can be asked of connections, or are stateless and stay."""
        before, self._connections = self._connections, {}
        for tenant in tenants:
            known = before.get(tenant.id)
            if known is None or known[0] is not tenant or known[1] is not keep_stateless:
                known = tenant, keep_stateless, _narrowed_to_connections(tenant, keep_stateless=keep_stateless)
            self._connections[tenant.id] = known
        return tuple(known for *_, known in self._connections.values())


def narrow(policy: Policy, held_back: Withheld, *, highest_number: int, known: Narrowings | None = None) -> Policy:
    """The policy with what is held back.

    The numbers of deny rules go down from `highest_number`. `known` has the tenants that were narrowed last.
    """
    known = known or Narrowings()
    tenants = known.after(policy.tenants, held_back, highest_number)
    tracks = held_back.holds_replies or policy.return_traffic is ReturnTraffic.TRACKED
    if not tracks:
        return replace(policy, tenants=tenants)
    keeps = policy.return_traffic is ReturnTraffic.TRACKED
    return replace(
        policy,
        tenants=known.of_connections(tenants, keep_stateless=keeps),
        operator=narrow_rules(policy.operator, keep_stateless=keeps),
        return_traffic=ReturnTraffic.TRACKED,
        holds_replies=held_back.holds_replies,
    )


def _narrowed_to_connections(tenant: Tenant, *, keep_stateless: bool) -> Tenant:
    rules = narrow_rules(tenant.acl.rules, keep_stateless=keep_stateless)
    return tenant if rules is tenant.acl.rules else replace(tenant, acl=replace(tenant.acl, rules=rules))


_LAID = "withheld-"


def is_laid(rule: Rule) -> bool:
    """Return whether a rule may have been laid on top of a list.

    A tenant may name its own deny rules in the same way.
    """
    return rule.action is Action.DENY and rule.id.startswith(_LAID)


def _narrow_tenant(tenant: Tenant, rules: tuple[Rule, ...], numbers: Iterator[int]) -> Tenant:
    acl = tenant.acl
    taken = {rule.id for rule in acl.listed}
    names = (name for name in (RuleId(f"{_LAID}{place}") for place in count()) if name not in taken)
    named = tuple(replace(rule, id=name) for rule, name in zip(rules, names, strict=False))
    numbered: dict[str, int] = dict(tenant.rule_numbers)
    numbered.update((rule.id, next(numbers)) for rule in named)
    longer = Listed([*Listed.of(named).pieces, *acl.listed.pieces])
    return replace(
        tenant,
        acl=trusted_acl(longer, acl.groups, acl.ingress_default, acl.egress_default),
        rule_numbers=MappingProxyType(numbered),
    )
