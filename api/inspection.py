"""Looking at access lists without changing them: dry runs and traces."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from api.context import Services
from api.schemas.acl import RuleDocument
from api.schemas.cost import CostBody, WrittenList
from api.schemas.inspection import (
    ChangeBody,
    FindingBody,
    KindWord,
    PartWord,
    ReviewBody,
    StandingBody,
    StepBody,
    ToldBody,
    TraceBody,
)
from api.tiers import Settled, settled
from orchestrator.compile.cost import cost
from orchestrator.compile.firewall import firewall_cost
from orchestrator.control.judging import Told, findings_now, findings_then
from orchestrator.errors import TooLarge
from orchestrator.policy.difference import difference
from orchestrator.policy.findings import Checks
from orchestrator.policy.formats.native import rule_to_json
from orchestrator.policy.model import Acl, Packet, Policy, ReturnTraffic, Rule, check_ownership
from orchestrator.policy.oracle import RETURN_RULES, Decision, Step, decide
from orchestrator.store.records import AclRecord, Change, DomainRecord, TenantRecord
from orchestrator.store.unit import Unit

MOST_FINDINGS = 1000
"""Of a dry run; the counts are of all."""
MOST_OF_A_KIND = 200
"""Findings of a kind that are told of the list as it is; the counts are of all."""
_COSTS = frozenset({"cost", "firewall"})


def review(
    services: Services, tenant: str, candidate: Acl, parts: Collection[PartWord], *, against: int | None = None
) -> ReviewBody:
    """A dry run of a list, compared with the current one or that of a version.

    Raises BadPolicy for prefixes that are not the tenant's, NotFound (version), TooLarge when it takes too long.
    """

    def read(unit: Unit) -> tuple[TenantRecord, AclRecord, DomainRecord]:
        record = unit.tenants.get(tenant)
        current = unit.acls.current(tenant) if against is None else unit.acls.at(tenant, against)
        return record, current, unit.domains.get(record.domain)

    owner, current, domain = services.control.read(read)
    check_ownership(candidate, owner.prefixes)
    checks = Checks(own=owner.prefixes, returns=domain.return_traffic, now=services.clock())
    changes, told, priced = None, ToldBody(), None
    if "difference" in parts:
        changes = _changes(services, current.acl, candidate, checks)
    if "findings" in parts:
        within_s, most = services.review_limit_s, MOST_FINDINGS
        whole, more = services.workbench.run(within_s, findings_then, tenant, current.acl, candidate, checks, most)
        soon = _soon(services, candidate)
        told = ToldBody(
            findings=[*soon, *map(FindingBody.of, whole.first)][:MOST_FINDINGS],
            counts=_counts(whole, len(soon)),
            brought=[*map(FindingBody.of, more.first)],
            brought_counts=_counts(more, 0),
        )
    if not _COSTS.isdisjoint(parts):
        priced = _cost(services, candidate, domain.return_traffic, firewall="firewall" in parts)
    return ReviewBody(**dict(told), cost=priced, difference=changes)


def standing(services: Services, tenant: str, parts: Collection[PartWord]) -> StandingBody:
    """What is odd about the list as it is, and what it costs; looked for once a version.

    Raises TooLarge when it takes too long.
    """

    def read(unit: Unit) -> tuple[TenantRecord, AclRecord, DomainRecord]:
        record = unit.tenants.get(tenant)
        return record, unit.acls.current(tenant), unit.domains.get(record.domain)

    owner, current, domain = services.control.read(read)
    acl, returns = current.acl, domain.return_traffic
    state = (current.version, owner.prefixes, returns)

    def look() -> tuple[list[FindingBody], dict[KindWord, int]]:
        checks = Checks(own=owner.prefixes, returns=returns, now=services.clock())
        found = services.workbench.run(services.review_limit_s, findings_now, tenant, acl, checks, MOST_OF_A_KIND)
        return [*map(FindingBody.of, found.first)], _counts(found, 0)

    findings, counts, priced = None, None, None
    if "findings" in parts:
        first, counted = services.reviews.of((tenant, "findings"), state, look)
        soon = _soon(services, acl)
        findings, counts = [*soon[:MOST_OF_A_KIND], *first], counted | ({"expiring": len(soon)} if soon else {})
    if not _COSTS.isdisjoint(parts):
        firewall = "firewall" in parts
        asked = tenant, "firewall" if firewall else "cost"
        priced = services.reviews.of(asked, state, lambda: _cost(services, acl, returns, firewall=firewall))
    return StandingBody(version=current.version, findings=findings, counts=counts, cost=priced)


def _counts(found: Told, soon: int) -> dict[KindWord, int]:
    counts: dict[KindWord, int] = {kind.value: count for kind, count in found.counts.items()}
    return counts | ({"expiring": soon} if soon else {})


def _soon(services: Services, acl: Acl) -> list[FindingBody]:
    """Rules whose time is nearly over."""
    return [FindingBody.expiring(rule) for rule in acl.rules if _expires_soon(services, rule)]


def _expires_soon(services: Services, rule: Rule) -> bool:
    return rule.expires is not None and timedelta() < rule.expires - services.clock() <= services.expiry_lead


def _cost(services: Services, acl: Acl, returns: ReturnTraffic, *, firewall: bool) -> CostBody:
    """What a list costs on each kind of device; what takes too long to tell is left out."""
    found = None
    if firewall:
        with suppress(TooLarge):
            found = services.workbench.run(services.review_limit_s, firewall_cost, acl, returns)
    return CostBody.of(services.workbench.run(services.review_limit_s, cost, acl, returns), found)


def written_list(unit: Unit, tenant: str, change: Change, *, with_cost: bool) -> WrittenList:
    """The answer to a change of a list. Raises TooLarge where its cost is asked for and it cannot be expanded."""
    told = None
    if with_cost:
        returns = unit.domains.get(unit.tenants.get(tenant).domain).return_traffic
        told = CostBody.of(cost(unit.acls.current(tenant).acl, returns))
    return WrittenList(version=change.version, generation=change.generation, changed=change.changed, cost=told)


def _changes(services: Services, before: Acl, after: Acl, checks: Checks) -> list[ChangeBody] | None:
    try:
        found = services.workbench.run(
            services.review_limit_s, difference, before, after, own=checks.own, returns=checks.returns
        )
    except TooLarge:  # the lists have next to nothing in common: the list itself says more
        return None
    return ChangeBody.all_of(found)


def trace(services: Services, tenant: str, packet: Packet, *, whole_domain: bool) -> TraceBody:
    """What decides a packet: in the whole domain, or as far as one tenant's lists and the operator's rules go."""

    def read(unit: Unit) -> tuple[Policy, Decision, Settled]:
        domain = unit.tenants.get(tenant).domain
        policy = unit.domains.policy(domain).policy
        if not whole_domain:
            policy = replace(policy, tenants=tuple(each for each in policy.tenants if each.id == tenant), endpoints=())
        decision = decide(policy, packet)
        return policy, decision, settled(unit, domain, policy, packet, decision)

    policy, decision, where = services.control.read(read)
    rule = _rule_of(policy, decision.steps[-1]) if decision.steps else None
    return TraceBody(
        scope="domain" if whole_domain else "tenant",
        action=decision.action.value,
        steps=[StepBody.of(step) for step in decision.steps],
        rule=RuleDocument.model_validate(rule_to_json(rule)) if rule else None,
        tier=where.tier,
        server=where.server if whole_domain else None,
        lifted=where.lifted,
        heavy=where.heavy,
    )


def _rule_of(policy: Policy, step: Step) -> Rule | None:
    """The rule that a step names."""
    acl = next((each.acl for each in policy.tenants if each.id == step.tenant), Acl())
    rules = policy.operator if step.tenant is None else (*acl.rules, *RETURN_RULES)
    return next(
        (rule for rule in rules if rule.id == step.rule and step.direction in (None, rule.direction)),
        None,
    )
