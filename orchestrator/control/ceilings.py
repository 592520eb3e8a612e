"""Ceilings of a list and of a domain, checked before anything is compiled.

A tenant's edit is held to three limits by its estimate (`compile/estimate.py`), in this order:

    ceiling of a list     for every tenant, a setting; also asked of what a request brings, before it waits for its turn
    ceiling of a domain   for all lists together, a setting
    quota                 the tenant's own, also asked of what a request brings: of rules; of flow entries, where the
                          least that the list takes is over it; what is left is counted when it was compiled
                          (`quota.py`)

What may bring many flow entries is compiled in a process first (`precompiling.py`): until then it is sent back.
A list that is over a limit already may change as long as it does not grow. Another service may have changed it since it
was estimated here; so where something is over a limit, what is committed is estimated first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.compile.estimate import Estimate, rule_bounds, widest_rule
from orchestrator.control.precompiling import LongList, Precompiler, Untried
from orchestrator.errors import TooLarge
from orchestrator.policy.listed import find_replaced
from orchestrator.policy.model import Acl, Policy, ReturnTraffic, Rule, Tenant
from orchestrator.store.records import PolicySnapshot
from orchestrator.store.unit import Unit

LARGE_FLOWS = 20_000
"""A list of so many flow entries may take a tenth of a second to store, compile and prove."""


def takes_long(new: Estimate | None) -> bool:
    """Return whether the turn of a new list may take long; None: nothing is known."""
    return new is not None and new.bounds.most >= LARGE_FLOWS


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The most flow entries of a tenant's list, and of all lists of a domain."""

    tenant_flows: int = 400_000
    domain_flows: int = 4_000_000

    def check_list(self, acl: Acl) -> Estimate:
        """Check a request's list against the ceiling; return its estimate.

        Raises TooLarge with the rule's place.
        """
        estimate = Estimate.of(acl)
        if estimate.bounds.most > self.tenant_flows:
            raise _too_large(acl, estimate.bounds.most, f"the ceiling is {self.tenant_flows}", "")
        return estimate

    def check_rule(self, rule: Rule) -> None:
        """Check a request's rule against the ceiling; one with groups passes.

        Raises TooLarge.
        """
        if rule.source.groups or rule.destination.groups:
            return
        most = rule_bounds(rule, {}).most
        if most > self.tenant_flows:
            raise TooLarge(
                f"rule '{rule.id}' may need {most} flow entries, and the ceiling of a list is {self.tenant_flows}: "
                f"{_ADVICE}"
            )


def hold_rules(tenant: str, rules: int, quota: int | None, before: Callable[[], int]) -> None:
    """Refuse a list of more rules than its quota and than before.

    `before` is asked where the quota is exceeded. Raises TooLarge.
    """
    if quota is not None and rules > quota and rules > before():
        raise TooLarge(
            f"the list would have {rules} rules, and the quota is {quota}: take {rules - quota} out, or ask for more",
            place=f"tenants[{tenant}].acl.rules",
        )


def hold_flows(tenant: str, new: Estimate, quota: int | None, before: Callable[[], int]) -> None:
    """Refuse a list that certainly takes more flow entries than its quota and than before.

    `before`, the most that it took, is asked where the quota is exceeded. Raises TooLarge with the rule's place.
    """
    least = new.bounds.least
    if quota is not None and least > quota and least > before():
        raise _too_large(new.acl, new.bounds.least, f"the quota is {quota}", f"tenants[{tenant}].acl.")


class Admission:
    """Holds lists that changed to the ceilings and to quotas. Safe to share between threads.

    `precompiler` is where long ones are compiled first; None: nowhere.
    """

    def __init__(self, ceilings: Ceilings, precompiler: Precompiler | None = None) -> None:
        self.ceilings = ceilings
        self._precompiler = precompiler
        self._lock = threading.Lock()
        self._known: dict[str, _Estimates] = {}

    def learn(self, domain: str, policy: Policy) -> None:
        """Estimate all lists of a domain, so that the next write need not."""
        with self._lock:
            self._known[domain] = self._known.get(domain, _NOTHING).after(policy)

    def check(
        self, unit: Unit, domain: str, snapshot: PolicySnapshot, committed: Callable[[], Policy] = Policy
    ) -> None:
        """Check a transaction's changed lists against the limits; `committed` is the policy without it.

        Raises TooLarge with the rule's place, and Untried for a long list that must be compiled in a process first.
        """
        listed = unit.changed_lists - unit.reverted_lists
        if not listed:
            return
        with self._lock:
            before = self._known.get(domain, _NOTHING)
            now = before.after(snapshot.policy)
            changed = sorted(listed & now.lists.keys())
            quotas = {}
            for tenant in changed:
                quota = unit.tenants.quota(tenant)
                quotas[tenant] = quota.flows
                hold_rules(tenant, len(now.lists[tenant].acl.listed), quota.rules, partial(unit.rules_before, tenant))
            if self._is_over(now, quotas):
                before = before.after(committed())
                now = before.after(snapshot.policy)
                for tenant in changed:
                    self._check_list(tenant, now.lists[tenant], before.lists.get(tenant), quotas[tenant])
                if changed:
                    self._check_domain(now, before, changed)
            for tenant in changed:
                self._check_long(tenant, now.lists[tenant], before.lists.get(tenant), snapshot.policy.return_traffic)
            self._known[domain] = now

    def forget(self, domain: str) -> None:
        """Drop what is kept for a domain that is no more."""
        with self._lock:
            self._known.pop(domain, None)

    def _is_over(self, now: _Estimates, quotas: Mapping[str, int | None]) -> bool:
        """Return whether a changed list or the domain is over a limit now."""
        if now.most > self.ceilings.domain_flows:
            return True
        lists = [(now.lists[tenant].bounds, quota) for tenant, quota in quotas.items()]
        return any(
            most > self.ceilings.tenant_flows or (quota is not None and least > quota) for (least, most), quota in lists
        )

    def _check_list(self, tenant: str, now: Estimate, before: Estimate | None, quota: int | None) -> None:
        was = 0 if before is None else before.bounds.most
        place = f"tenants[{tenant}].acl."
        if now.bounds.most > max(self.ceilings.tenant_flows, was):
            raise _too_large(now.acl, now.bounds.most, f"the ceiling is {self.ceilings.tenant_flows}", place)
        hold_flows(tenant, now, quota, lambda: was)

    def _check_long(self, tenant: str, now: Estimate, before: Estimate | None, returns: ReturnTraffic) -> None:
        """Raise Untried for a list that brings much, unless a process was through with it."""
        if self._precompiler is None or now is before or now.fresh < self._precompiler.long_flows:
            return
        long = LongList(tenant, now.acl, returns)
        if not self._precompiler.was_in_time(long):
            raise Untried(long)

    def _check_domain(self, now: _Estimates, before: _Estimates, changed: Sequence[str]) -> None:
        if now.most <= max(self.ceilings.domain_flows, before.most):
            return
        tenant = max(changed, key=lambda name: now.lists[name].bounds.most)
        limit = f"all lists of the domain may need {now.most}, over its ceiling of {self.ceilings.domain_flows}"
        raise _too_large(now.lists[tenant].acl, now.lists[tenant].bounds.most, limit, f"tenants[{tenant}].acl.")


@dataclass(frozen=True, slots=True)
class _Estimates:
    """The estimates of a domain's lists, and the most flow entries of all."""

    tenants: tuple[Tenant, ...]
    lists: Mapping[str, Estimate]
    most: int
    is_tracked: bool = False

    def after(self, policy: Policy) -> _Estimates:
        """Estimate the lists of the tenants that changed.

        All of them, where the domain begins or ceases to track connections.
        """
        tenants, is_tracked = policy.tenants, policy.return_traffic is ReturnTraffic.TRACKED
        gone, come = find_replaced(self.tenants, tenants) if is_tracked is self.is_tracked else (self.tenants, tenants)
        lists, most = dict(self.lists), self.most
        for tenant in gone:
            most -= lists.pop(tenant.id).bounds.most
        for tenant in come:
            known = self.lists.get(tenant.id)
            estimate = Estimate.of if known is None else known.after
            lists[tenant.id] = estimate(tenant.acl, is_tracked=is_tracked)
            most += lists[tenant.id].bounds.most
        return _Estimates(tenants, lists, most, is_tracked)


_NOTHING = _Estimates((), {}, 0)


_ADVICE = (
    "it needs one for each combination of its prefixes and of the blocks of its port ranges (1-65535 is 16 blocks, "
    "0-65535 none): name fewer prefixes and ports, aligned ranges or `any`, or split the list among tenants"
)


def _too_large(acl: Acl, flows: int, limit: str, place: str) -> TooLarge:
    """Return an error that names the costliest rule, and how to make it cheaper."""
    if not acl.rules:
        return TooLarge(f"the list may need {flows} flow entries, and {limit}", place=place.removesuffix("."))
    position, bounds = widest_rule(acl)
    reason = f"the list may need {flows} flow entries, and {limit}. Rule '{acl.rules[position].id}' may need the most"
    return TooLarge(f"{reason}, {bounds.most}: {_ADVICE}", place=f"{place}rules[{position}]")
